"""Refuse a declared configuration that the agent would not take.

config_check.py PACKAGE FILE. PACKAGE is the agent with its plugins, FILE the rendered settings. Keys and values are
checked by `hermes config check --strict`; the names in `plugins.enabled` against the plugins that were built in.
"""

import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OPTION = "services.hermes-agent.settings"


def findings(package: Path, file: str) -> list[str]:
    """Return what `hermes config check` has against `file`, a sentence each."""
    with tempfile.TemporaryDirectory() as home:
        checked = subprocess.run(
            [package / "bin" / "hermes", "config", "check", file, "--strict", "--json", "--label", OPTION],
            env={"PATH": os.environ["PATH"], "HOME": home, "HERMES_HOME": home, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        report = json.loads(checked.stdout)
    except ValueError:
        sys.exit(f"error: hermes-agent: `hermes config check` ended with {checked.returncode}:\n{checked.stderr}")
    return [f["message"] for f in report["findings"] if f["level"] == "error"]


def unknown_plugins(config: Any, plugins: list[dict[str, Any]]) -> Iterator[str]:
    section = config.get("plugins") if isinstance(config, dict) else None
    enabled = section.get("enabled") if isinstance(section, dict) else None
    known = sorted({name for plugin in plugins for name in (plugin["key"], plugin["name"])})
    for name in enabled if isinstance(enabled, list) else []:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            guess = f" (did you mean `{near[0]}`?)" if near else ""
            there = ", ".join(f"`{k}`" for k in known) or "none"
            yield f"`plugins.enabled` names `{name}`, which no plugin has{guess}; there are: {there}"


def main(package: str, file: str) -> int:
    problems = findings(Path(package), file)
    if not problems:
        plugins = json.loads(Path(package, "nix-support", "plugins.json").read_text(encoding="utf-8"))["plugins"]
        problems = list(unknown_plugins(json.loads(Path(file).read_text(encoding="utf-8")), plugins))
    for problem in problems:
        print(f"error: hermes-agent: {OPTION}: {problem}", file=sys.stderr)
    if problems:
        print("hint: docs/reference/config.md has every key with its type and default.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
