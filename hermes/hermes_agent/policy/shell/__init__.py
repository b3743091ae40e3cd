"""Verdicts on shell commands, from the parsed command and not from patterns in its text.

Names are imported on first use: the rules take 30 ms, and a sandbox needs the kinds of paths alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.policy.shell.script import ShellCommand, ShellRedirect, ShellScript, ShellWord
    from hermes_agent.policy.shell.verdict import ShellVerdict, judge

__all__ = ["ShellCommand", "ShellVerdict", "ShellRedirect", "ShellScript", "ShellWord", "judge"]

_OF_VERDICT = ("ShellVerdict", "judge")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "verdict" if name in _OF_VERDICT else "script"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
