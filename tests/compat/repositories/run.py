"""Run one plugin of a repository in a program, in a home of its own, and return what the probe wrote."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from compat.corpus.world import OFFLINE, made_up, offline
from compat.repositories.find import RepositoryPlugin

__all__ = ["normal", "probed", "read_only"]

PROBE = Path(__file__).with_name("probe.py")
LIMIT_S = 150
WHY = r"\([^()]*(?:\([^()]*\)[^()]*)*\)"
"""Words in brackets after the error of an import: a path there, a reason here."""
VOLATILE = (
    (re.compile(r" at 0x[0-9a-f]+"), ""),
    (re.compile(rf"(cannot import name '\w+' from '[\w.]+'|No module named '[\w.]+') {WHY}"), r"\1"),
    (
        re.compile(r" \(`\w+`(, `\w+`)* (is|are) required and (was|were) not given\)"),
        "",
    ),  # what is said here in addition
    (re.compile("Could not contact DNS servers"), "Temporary failure in name resolution"),  # as aiodns says it
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([.,]\d+)?(Z|[+-]\d\d:?\d\d)?"), "$TIME"),
    (re.compile(r"\b[MTWFS][a-z]{2,5}day (?=\$TIME)|(?<=\$TIME UTC) 星期[一二三四五六日天]"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d"), "$DATE"),
    (re.compile(r"\b[MTWFS][a-z]{2,5}day, \d{1,2} [A-Z][a-z]{2,8} \d{4}\b"), "$DATE"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "$UUID"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b"), "$HEX"),
    (re.compile(r'(?<=(ms|ed|ds|on|cy)\\": )\d+(\.\d+)?'), "$NUMBER"),
    (re.compile(r"\b\d{10}(\.\d+|\d{3})?\b"), "$EPOCH"),
    (re.compile(r"\b\d+\.\d{3,}\b"), "$FLOAT"),
)
"""What differs from one run to the next."""


def probed(
    python: Path, plugin: RepositoryPlugin | None, repositories: Path, base: Path | None, *, more: str = ""
) -> dict[str, Any]:
    """Return the answer of a probe, paths and times in it replaced; `ended` says how the process ended otherwise.

    Args:
        python: the interpreter of the program.
        plugin: the plugin; None for an empty home.
        repositories: the folder with the repositories.
        base: what an empty home answers; None records that.
        more: a folder of packages that the interpreter lacks.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True, prefix="probe-") as folder:
        place = Path(folder)
        home, hermes, work, programs = (place / n for n in ("home", "home/.hermes", "work", "programs"))
        for made in (hermes, work, programs, place / "tmp"):
            made.mkdir(parents=True, exist_ok=True)
        for name, text in OFFLINE.items():
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
        paths = [more] if more else []
        config: dict[str, Any] = {"plugins": {"enabled": []}}
        if plugin is not None:
            paths += _install(plugin, repositories, hermes, place / "site", config)
        (hermes / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        environ = {
            "HOME": str(home),
            "HERMES_HOME": str(hermes),
            "HERMES_BUNDLED_PLUGINS": str(place / "none"),
            "LANG": "C.UTF-8",
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(place / "tmp"),
            "TZ": "UTC",
        } | {name: made_up(name) for name in (plugin.env if plugin is not None else ())}
        command = [*offline(), *read_only(python), str(python), str(PROBE), str(place / "answer.json")]
        command += ["--baseline", str(base)] if base is not None else []
        command += ["--memory", plugin.name] if plugin is not None and plugin.mode == "dir-memory" else []
        ended = ""
        try:
            done = subprocess.run(
                command, cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=LIMIT_S, check=False,
            )  # fmt: skip
            if done.returncode:
                ended = f"ended with {done.returncode}: {' | '.join(done.stderr.strip().splitlines()[-4:])}"
        except subprocess.TimeoutExpired:
            ended = f"did not end within {LIMIT_S} s"
        answer = place / "answer.json"
        text = answer.read_text(encoding="utf-8") if answer.exists() else "{}"
        places = {hermes: "$HERMES_HOME", home: "$HOME", work: "$WORK", place: "$PLACE", repositories: "$REPOSITORIES"}
        places |= {Path(os.path.abspath(python)): "$PYTHON"}
        for path, name in places.items():
            text = text.replace(str(path), name)
        result: dict[str, Any] = json.loads(text)
        return result | ({"ended": ended} if ended else {})


@functools.cache
def read_only(python: Path) -> tuple[str, ...]:
    """Return what makes an interpreter's packages read-only for a command, since plugins install files there.

    It needs the rights of `offline()`; without them it is nothing.
    """
    code = "import sys; print(sys.prefix, sys.base_prefix, sep=chr(10))"
    asked = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    places = list(dict.fromkeys(asked.stdout.split("\n")[:2]))
    script = (
        'while [ "$1" != -- ]; do mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit; shift; done; shift; '
    )
    command = ("unshare", "--mount", "--", "sh", "-c", f'{script}exec "$@"', "sh", *places, "--")
    if not offline() or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        return ()
    return command


def _install(
    plugin: RepositoryPlugin, repositories: Path, hermes: Path, site: Path, config: dict[str, Any]
) -> list[str]:
    """Put a plugin where both programs find it; return the folders that its modules lie in."""
    source = repositories / plugin.repository / plugin.folder
    config["plugins"]["enabled"] = [plugin.name]
    if plugin.mode == "entrypoint":
        metadata = site / "plugin_of_repository-1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-repository\nVersion: 1\n")
        lines = "\n".join(["[hermes_agent.plugins]", *plugin.entry_points, ""])
        (metadata / "entry_points.txt").write_text(lines, encoding="utf-8")
        config["plugins"]["enabled"] = [line.partition(" = ")[0] for line in plugin.entry_points]
        return [str(site), *(str(repositories / plugin.repository / path) for path in plugin.paths)]
    target = hermes / "plugins" / plugin.name
    if plugin.mode == "dir-provider":
        target = hermes / "plugins" / "model-providers" / plugin.name
    if plugin.mode == "dir-memory":
        config["memory"] = {"provider": plugin.name}
    ignored = shutil.ignore_patterns(".git", "node_modules", "__pycache__")
    shutil.copytree(source, target, symlinks=True, ignore=ignored, ignore_dangling_symlinks=True)
    return []


def normal(value: Any) -> str:
    """Return a value as text, without what differs from one run to the next."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    for pattern, name in VOLATILE:
        text = pattern.sub(name, text)
    return text
