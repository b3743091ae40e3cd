"""`python -m compat.repositories DIR [NAME …]` in `tests/`: plugins of repositories, compared with upstream.

DIR has a folder `OWNER+NAME` for each repository; `tests/data/corpus/repositories.json` says at which commit. What is
not there is named and left out. `--record` asks the published program anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from compat.corpus.install import CACHE
from compat.corpus.world import offline
from compat.repositories import record
from compat.repositories.find import RepositoryPlugin, find_plugins
from compat.repositories.run import probed

AT_A_TIME = 2
OURS = Path(sys.executable)


class Program(NamedTuple):
    """One of the two programs, with what its empty home answers."""

    python: Path
    more: str
    """Folder of packages that plugins import without saying so."""
    base: dict[str, Any]
    file: Path
    """The same as a file, for the probe."""

    @classmethod
    def of(cls, python: Path, more: str, place: Path, repositories: Path) -> Program:
        """Return the program after a run with an empty home."""
        base = probed(python, None, repositories, None, more=more)
        if "registered" not in base:
            raise SystemExit(f"{python} does not start: {base.get('ended')}")
        file = place / f"{len(list(place.iterdir()))}.json"
        file.write_text(json.dumps(base), encoding="utf-8")
        return cls(python, more, base, file)

    def ask(self, plugin: RepositoryPlugin, repositories: Path) -> dict[str, Any]:
        """Return what the probe answers with a plugin."""
        answer = probed(self.python, plugin, repositories, self.file, more=self.more)
        return {"calls": {}} | answer

    def summary(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return what is compared of an answer."""
        return record.summary(answer, self.base)


def main(argv: Sequence[str]) -> int:
    """Compare or record; return 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m compat.repositories", description=__doc__)
    parser.add_argument("place", metavar="DIR", type=Path, help="folder with a folder OWNER+NAME for each repository")
    parser.add_argument("names", metavar="NAME", nargs="*", help="these plugins alone; a part of the name will do")
    parser.add_argument(
        "--record",
        metavar="PYTHON",
        type=Path,
        help="record what upstream does: an interpreter with 0.19.0 and aiohttp",
    )
    parser.add_argument("--commits", metavar="FILE", type=Path, help="lines `OWNER/NAME COMMIT`, for --record")
    options = parser.parse_args(argv)
    plugins = find_plugins(options.place)
    plugins = [p for p in plugins if not options.names or any(name in p.key for name in options.names)]
    known = record.read() if record.RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if options.record:
            commits = dict(line.split() for line in options.commits.read_text().splitlines() if line.strip())
            commits = {name.replace("/", "+"): commit for name, commit in commits.items()}
            recorded(options.record, Path(folder), options.place, plugins, commits, known)
            return 0
        return compare(Path(folder), options.place, plugins, known, whole=not options.names)


def recorded(
    python: Path,
    folder: Path,
    place: Path,
    plugins: list[RepositoryPlugin],
    commits: dict[str, str],
    known: dict[str, Any],
) -> None:
    """Ask the published program twice for each plugin, and write the record after each."""
    peer = Program.of(python, "", folder, place)

    def ask(plugin: RepositoryPlugin) -> dict[str, Any]:
        answers = [peer.ask(plugin, place) for _ in range(2)]
        first, second = (peer.summary(answer) for answer in answers)
        varies = sorted(what for what, said in first["calls"].items() if second["calls"].get(what) != said)
        about = {"commit": commits.get(plugin.repository, ""), "source": record.digest(plugin, place)}
        return about | first | {"varies": varies, "log": record.raised(answers[0]), "mode": plugin.mode}

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for plugin, entry in zip(plugins, pool.map(ask, plugins), strict=True):
            if record.loads(entry):
                known[plugin.key] = entry
            print(f"{plugin.key:70} {'loads' if record.loads(entry) else 'does not load'}", flush=True)
            record.RECORD.write_text(record.written(known), encoding="utf-8")


def compare(folder: Path, place: Path, plugins: list[RepositoryPlugin], known: dict[str, Any], *, whole: bool) -> int:
    """Print a row for each plugin of the record; return 1 if one differs or cannot be compared."""
    if not offline():
        print("the runs have the network: `unshare -n` needs root", file=sys.stderr)
    ours = Program.of(OURS, str(undeclared_packages()), folder, place)
    wanted = [plugin for plugin in plugins if plugin.key in known]
    good = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        rows = pool.map(lambda plugin: list(differences(ours, plugin, place, known[plugin.key])), wanted)
        for plugin, lines in zip(wanted, rows, strict=True):
            good += not lines
            print(f"{plugin.key:70} {'differs' if lines else 'same'}", flush=True)
            print("".join(f"    {line}\n" for line in lines[:8]), end="", flush=True)
    absent = sorted(set(known) - {plugin.key for plugin in wanted}) if whole else []
    for key in absent:
        print(f"{key:70} skipped: not in {place} (commit {known[key]['commit']})")
    print(f"repositories: {good} of {len(wanted)} plugins as in the published program, {len(absent)} not there")
    return 0 if wanted and good == len(wanted) else 1


def differences(ours: Program, plugin: RepositoryPlugin, place: Path, expected: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each difference, and for each error of the host itself."""
    if record.digest(plugin, place) != expected["source"]:
        yield f"this is another version than the recorded one, commit {expected['commit']}"
        return
    answer = ours.ask(plugin, place)
    if "registered" not in answer:
        yield str(answer.get("ended"))
        return
    yield from record.compared(expected, ours.summary(answer), record.known_differences().get(plugin.key))
    yield from record.host_errors(answer, expected["log"])


def undeclared_packages() -> Path:
    """Return a folder with what the extra `compat` brings and this interpreter lacks; it is installed once."""
    place = CACHE / f"compat-extra-{sys.version_info.major}.{sys.version_info.minor}"
    if not place.is_dir():
        names = (
            "croniter",
            "fastapi",
            "jinja2",
            "markdown",
            "psutil",
            "ptyprocess",
            "python-dateutil",
            "python-dotenv",
        )
        missing = [*names, "python-multipart", "tenacity", "websockets", "pathspec"]
        part = place.with_suffix(".part")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(part)]
        subprocess.run([*command, *missing, "markupsafe", "annotated-doc", "typing-inspection", "six"], check=True)
        part.rename(place)
    return place


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
