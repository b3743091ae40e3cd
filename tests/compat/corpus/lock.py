"""Write the locks of the lists: `python -m compat.corpus.lock [NAME …]` in `tests/`, after a list has changed.

A lock names the plugin's files and those of its dependencies with their hashes. What the agent itself is locked to
(`requirements/run.txt`) is left out: plugins share it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from compat.corpus.lists import DATA, plugins

__all__ = ["main", "text_of"]

ROOT = DATA.parents[2]
SEPARATORS = re.compile(r"[-_.]+")


def canonical(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return SEPARATORS.sub("-", name).lower()


def shared() -> set[str]:
    """Return the names that `requirements/run.txt` pins, and our own."""
    lines = (ROOT / "requirements" / "run.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonical(line.partition("==")[0]) for line in lines if "==" in line and not line.startswith((" ", "#"))}
    return pinned | {"hermes-agent"}


def text_of(report: dict[str, Any]) -> str:
    """Return the lock that a `pip install --report` describes, the plugin first."""
    left_out = shared()
    lines = []
    for item in sorted(report["install"], key=lambda i: (not i["requested"], canonical(i["metadata"]["name"]))):
        name, version = canonical(item["metadata"]["name"]), item["metadata"]["version"]
        if name in left_out and not item["requested"]:
            continue
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        kind = "" if item["download_info"]["url"].endswith("-none-any.whl") else "  # of one platform"
        lines.append(f"{name}=={version} --hash=sha256:{digest}{kind}\n")
    return "".join(lines)


def main(names: list[str]) -> int:
    """Resolve each plugin in an empty world and write its lock."""
    for plugin in plugins(names):
        if plugin.repository is not None:
            print(f"{plugin.name}: write its lock by hand, it is on no package index", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as place:
            report = Path(place) / "report.json"
            spec = f"{plugin.name}=={plugin.version}"
            command = ["install", "--dry-run", "--ignore-installed", "--prefer-binary", "--quiet"]
            command = [sys.executable, "-m", "pip", *command, "--report", str(report), spec]
            # a dependency may ask for a later Python than the plugin needs; then all are resolved without asking
            if subprocess.run(command, capture_output=True, check=False).returncode:
                subprocess.run([*command, "--ignore-requires-python"], check=True)
            plugin.lock.write_text(text_of(json.loads(report.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
