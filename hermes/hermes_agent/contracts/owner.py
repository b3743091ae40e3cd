"""Who registers right now: bound to the context that registers, never guessed from stack frames or names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["NOBODY", "Owner", "StandIn", "current_owner", "registering", "stand_in"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A registrant.

    Attributes:
        key: the plugin's key, `builtin` for the agent, or empty for code that cannot be attributed.
        may_override: the operator allowed it to take over names (`plugins.entries.<key>.allow_tool_override`).
        free_tools: tools that anybody may take over (`plugins.allow_tool_override`).
    """

    key: str
    may_override: bool = False
    free_tools: tuple[str, ...] = ()


NOBODY = Owner("")
"""Code that registers outside every `register(ctx)`: it may add names, never take one over."""

T = TypeVar("T")
StandIn = Callable[[Any], Any]
"""Returns the store that stands for another one while a plugin is loaded beside those that serve."""

_stand_in: ContextVar[StandIn | None] = ContextVar("hermes_stand_in", default=None)
_owner: ContextVar[Owner] = ContextVar("hermes_owner", default=NOBODY)


def current_owner() -> Owner:
    """Return who registers in this context."""
    return _owner.get()


def stand_in(store: T) -> T:
    """Return the store that a registration in this context goes to: `store`, unless another one stands for it."""
    found = _stand_in.get()
    return store if found is None else found(store)


@contextlib.contextmanager
def registering(owner: Owner, stores: StandIn | None = None) -> Iterator[None]:
    """Attribute every registration inside the block to `owner`.

    Args:
        stores: what stands for the stores that the code reaches past its context (`tools.registry`).
    """
    tokens = _owner.set(owner), _stand_in.set(stores)
    try:
        yield
    finally:
        _owner.reset(tokens[0])
        _stand_in.reset(tokens[1])
