"""One rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hermes_agent.policy.shell.script import ShellCommand

__all__ = ["ShellRule"]


class ShellRule(NamedTuple):
    """What is dangerous, and how it is told."""

    key: str
    """What a person reads, and what `command_allowlist` holds."""
    test: Callable[[ShellCommand], bool]
    detail: Callable[[ShellCommand], str] | None = None
    """What follows the key, where that is about one program and not about a kind of harm."""

    def key_for(self, command: ShellCommand) -> str:
        """Return the key where the command is dangerous in this way, else an empty text."""
        if not self.test(command):
            return ""
        return self.key if self.detail is None else f"{self.key}: {self.detail(command)}"
