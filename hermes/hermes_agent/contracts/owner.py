"""Who registers right now: bound to the context that registers, never guessed from stack frames or names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["NO_OWNER", "Owner", "StagedStores", "current_owner", "registration_context", "staged_store"]


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


NO_OWNER = Owner("")
"""Code that registers outside every `register(ctx)`: it may add names, never take one over."""

T = TypeVar("T")
StagedStores = Callable[[Any], Any]
"""Returns the store that stands for another one while a plugin is loaded beside those that serve."""

_staged_stores: ContextVar[StagedStores | None] = ContextVar("hermes_stand_in", default=None)
_owner: ContextVar[Owner] = ContextVar("hermes_owner", default=NO_OWNER)


def current_owner() -> Owner:
    """Return who registers in this context."""
    return _owner.get()


def staged_store(store: T) -> T:
    """Return the store that a registration in this context goes to: `store`, unless another one stands for it."""
    found = _staged_stores.get()
    return store if found is None else found(store)


@contextlib.contextmanager
def registration_context(owner: Owner, stores: StagedStores | None = None) -> Iterator[None]:
    """Attribute every registration inside the block to `owner`.

    Args:
        stores: what stands for the stores that the code reaches past its context (`tools.registry`).
    """
    tokens = _owner.set(owner), _staged_stores.set(stores)
    try:
        yield
    finally:
        _owner.reset(tokens[0])
        _staged_stores.reset(tokens[1])
