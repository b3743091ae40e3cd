"""What a fetched plugin would register: it is loaded in a process of its own, in an empty home, without credentials.

`hermes plugins check` does it, in a fresh interpreter whose environment is a short list: no key of the surrounding one
is in it, and none in its `/proc/PID/environ`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.io.environment import tool_environment
from hermes_agent.io.processes import run

__all__ = ["LIMIT_S", "Preview", "preview"]

LIMIT_S = 120.0
OUTPUT_BYTES = 16 * 1024
_PASSED = ("HERMES_BUNDLED_PLUGINS",)
_NO_NAMES = frozenset({"requires_env", "provides_tools"})


class Preview(NamedTuple):
    """What became of a plugin that was loaded for a look."""

    loaded: bool
    registers: Mapping[str, list[str]]
    """Names by kind; empty when it was not loaded."""
    problems: tuple[str, ...]
    """Why it was not loaded, and what it would have to go without."""


def preview(key: str, place: Path, *, directory: Path | None) -> Preview:
    """Load a plugin and say what it registers.

    Args:
        key: of the plugin.
        place: an empty folder for the process.
        directory: of a directory plugin; None for one whose entry point is installed.
    """
    empty = place / "preview"
    empty.mkdir()
    out = empty / "plugins.json"
    directories = [str(directory)] if directory else []
    done = run(
        [sys.executable, "-m", "hermes_agent", "plugins", "check", "--out", str(out), *directories],
        cwd=empty,
        env=_environment(empty),
        timeout_s=LIMIT_S,
        output_limit_bytes=OUTPUT_BYTES,
        cancelled=threading.Event(),
    )
    try:
        report = json.loads(out.read_bytes())
    except (OSError, ValueError):
        words = "it took too long" if done.timed_out else done.output.decode("utf-8", "replace").strip()[-500:]
        return Preview(False, {}, (words or f"the check ended with status {done.exit_code}",))
    return _read(report, key, directory)


def _read(report: Mapping[str, Any], key: str, directory: Path | None) -> Preview:
    mine = [p for p in report["plugins"] if p["key"] == key and directory in (None, Path(p["path"]))]
    problems = [text for text in report["errors"] if f"`{key}`" in text]
    problems += [
        f"{conflict['text']} {', '.join(o for o in conflict['owners'] if o != key)}"
        for conflict in report["conflicts"]
        if key in conflict["owners"]
    ]
    failed = not mine or any(
        "failed to load" in text or "did not finish" in text or "ended" in text for text in problems
    )
    registers = {} if failed else {k: v for k, v in mine[0].items() if isinstance(v, list) and v and k not in _NO_NAMES}
    if not mine and not problems:
        problems = [*report["errors"]] or ["the check did not find it"]
    return Preview(not failed, registers, tuple(problems))


def _environment(home: Path) -> dict[str, str]:
    environ = {k: v for k, v in tool_environment(os.environ).items() if not k.lower().endswith("_proxy")}
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**environ, **passed, "HOME": str(home), "HERMES_HOME": str(home / "home"), "PYTHONPATH": paths}
