"""Who registers right now: bound to the context that registers, never guessed from stack frames or names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["NOBODY", "Owner", "current_owner", "registering"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A registrant.

    Attributes:
        key: the plugin's key, `builtin` for the agent, or empty for code that cannot be attributed.
        may_override: the operator allowed it to take over names (`plugins.entries.<key>.allow_tool_override`).
    """

    key: str
    may_override: bool = False


NOBODY = Owner("")
"""Code that registers outside every `register(ctx)`: it may add names, never take one over."""

_owner: ContextVar[Owner] = ContextVar("hermes_owner", default=NOBODY)


def current_owner() -> Owner:
    """Return who registers in this context."""
    return _owner.get()


@contextlib.contextmanager
def registering(owner: Owner) -> Iterator[None]:
    """Attribute every registration inside the block to `owner`."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)
