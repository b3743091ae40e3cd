"""What a fetched plugin would register: it is loaded in the sandbox (`plugins.apart`), with nothing of the user's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.core.errors import UserError
from hermes_agent.plugins.apart import check_in_sandbox
from hermes_agent.plugins.check import read_outcome

__all__ = ["LIMIT_S", "RegistrationPreview", "preview_registrations"]

LIMIT_S = 120.0
_NO_NAMES = frozenset({"requires_env", "provides_tools"})


class RegistrationPreview(NamedTuple):
    """What became of a plugin that was loaded for a look."""

    loaded: bool
    registers: Mapping[str, list[str]]
    """Names by kind; empty when it was not loaded."""
    problems: tuple[str, ...]
    """Why it was not loaded, and what it would have to go without."""


def preview_registrations(key: str, *, directory: Path | None) -> RegistrationPreview:
    """Load a plugin in the sandbox and say what it registers.

    Args:
        key: of the plugin.
        directory: of a directory plugin; None for one whose entry point is installed.
    """
    try:
        looked = check_in_sandbox([str(directory)] if directory else [], limit_s=LIMIT_S)
        if looked.outcome is None:
            return RegistrationPreview(False, {}, (looked.output.strip()[-500:] or looked.how,))
        report = json.loads(read_outcome(looked.outcome).document(strict=False))
    except UserError as exc:
        return RegistrationPreview(False, {}, (exc.message,))
    return _read(report, key, directory)


def _read(report: Mapping[str, Any], key: str, directory: Path | None) -> RegistrationPreview:
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
    return RegistrationPreview(not failed, registers, tuple(problems))
