"""One rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hermes_agent.policy.shell.script import Command

__all__ = ["Rule"]


class Rule(NamedTuple):
    """What is dangerous, and how it is told."""

    key: str
    """What a person reads, and what `command_allowlist` holds."""
    test: Callable[[Command], bool]
