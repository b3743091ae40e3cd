"""`python -m compat.surface` in `tests/`: compare upstream's public names with what is served.

Without an option it compares the record with what is served, and checks that the page is of today. `--record` installs
the published program into an environment of its own and records its names anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from compat.surface import describe
from compat.surface.compare import PAGE, RECORD, ROOT, Surface, compare, imported_names, known_differences, page
from hermes_agent.compat import import_hook

UPSTREAM = "hermes-agent==0.19.0"
NAMED_IN = ("docs/plugins/contract.md", "docs/plugins/contract-0.23.md")
"""Pages with modules that upstream's guides name."""
MODULE = re.compile(rf"(?<![\w./])(?:{'|'.join(sorted(import_hook.RESERVED))})(?:\.[a-z_0-9]+)*(?![\w/])")
LIMIT_S = 600


def main(argv: Sequence[str]) -> int:
    """Compare, record or write; return 1 if something is stale or undecided."""
    parser = argparse.ArgumentParser(prog="python -m compat.surface", description=__doc__)
    parser.add_argument("--record", action="store_true", help=f"install {UPSTREAM} and record its names")
    parser.add_argument("--venv", metavar="DIR", help="environment for --record that has the program already")
    parser.add_argument("--write", action="store_true", help="write docs/plugins/surface.md")
    options = parser.parse_args(argv)
    if options.record:
        RECORD.write_text(recorded(options.venv), encoding="utf-8")
    surface = compare()
    if options.write:
        PAGE.write_text(page(surface), encoding="utf-8")
    served, declined = surface.counts
    print(
        f"{served} served, {declined} declined, {len(surface.undecided)} undecided; {len(surface.differences)} differ"
    )
    problems = list(problems_of(surface))
    print("\n".join(problems))
    return 1 if problems else 0


def problems_of(surface: Surface) -> Sequence[str]:
    """Return what is undecided or stale, one line each."""
    known = known_differences()
    found = [f"undecided: {name}" for name in surface.undecided]
    found += [f"differs: {n}: {'; '.join(d)}" for n, d in surface.differences.items() if n not in known]
    found += [f"stale in differences.toml: {name}" for name in known if name not in surface.differences]
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page(surface):
        found.append(f"stale: {PAGE.relative_to(ROOT)}; `python -m compat.surface --write` makes it anew")
    return found


def recorded(place: str | None = None) -> str:
    """Return the record of the published program, as it is stored.

    Args:
        place: an environment with the program; None installs one for this call.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        environment = Path(place) if place else Path(folder) / "venv"
        if not place:
            venv.create(environment, with_pip=True)
            pip = [environment / "bin" / "pip", "install", "--quiet", UPSTREAM]
            subprocess.run(pip, check=True, timeout=LIMIT_S)
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home), "HERMES_HOME": str(home / ".hermes")}
        done = subprocess.run(
            [environment / "bin" / "python", describe.__file__],
            input=json.dumps(wanted_modules()),
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT_S,
            env=env,
            cwd=home,
        )
    lines = []
    for module, names in json.loads(done.stdout).items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(about)}" for name, about in names.items())
        lines.append(f"{json.dumps(module)}: {{\n{rows}\n}}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def wanted_modules() -> dict[str, list[str]]:
    """Return the modules that plugins and guides name, each with private names that plugins import."""
    wanted: dict[str, list[str]] = {}
    for module, name in imported_names():
        wanted.setdefault(module, []).extend([name] if name else [])
    for name, section in import_hook.served().items():
        wanted.setdefault(name, []).extend(section.names)
    for page_of in NAMED_IN:
        for module in MODULE.findall((ROOT / page_of).read_text(encoding="utf-8")):
            wanted.setdefault(module, [])
    for oracle in sorted((ROOT / "tests" / "data" / "corpus" / "oracle").glob("*.json")):
        for module in MODULE.findall(" ".join(_host_modules(json.loads(oracle.read_text(encoding="utf-8"))))):
            wanted.setdefault(module, [])
    return wanted


def _host_modules(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [str(module) for module in value.get("host_modules") or ()]
        return [*own, *(found for item in value.values() for found in _host_modules(item))]
    return [found for item in value for found in _host_modules(item)] if isinstance(value, list) else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
