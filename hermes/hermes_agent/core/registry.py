"""The one registry class: named things with an owner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

__all__ = ["BUILTIN", "Conflict", "Registered", "Registry", "describe_owner"]

T = TypeVar("T")

BUILTIN = "builtin"
"""Owner of what the agent itself brings."""


class Conflict(Exception):
    """The name is taken.

    Args:
        kind: what is registered, in words (`tool`, `slash command`).
        owner: who has the name.
    """

    def __init__(self, kind: str, name: str, owner: str, claimed_by: str) -> None:
        super().__init__(
            f"{kind} `{name}` belongs to {describe_owner(owner)}; {describe_owner(claimed_by)} wants it too"
        )
        self.kind, self.name, self.owner, self.claimed_by = kind, name, owner, claimed_by


def describe_owner(owner: str) -> str:
    """Return the owner in words: `the agent` or ``plugin `x` ``."""
    return "the agent" if owner == BUILTIN else f"plugin `{owner}`"


class Registered(NamedTuple, Generic[T]):
    """A value and whose it is."""

    value: T
    owner: str


class Registry(Generic[T]):
    """Values by name. Safe for threads; iteration is over a copy, in order of registration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, Registered[T]] = {}
        self._lock = threading.RLock()

    def add(self, name: str, value: T, *, owner: str = BUILTIN, replace: bool = False) -> None:
        """Register `value`.

        Raises:
            Conflict: another owner has the name and `replace` is false. The same owner replaces freely.
        """
        with self._lock:
            present = self._items.get(name)
            if present is not None and present.owner != owner and not replace:
                raise Conflict(self.kind, name, present.owner, owner)
            self._items[name] = Registered(value, owner)

    def get(self, name: str) -> T | None:
        """Return the value, or None when nobody has the name."""
        item = self._items.get(name)
        return None if item is None else item.value

    def owner(self, name: str) -> str | None:
        """Return who registered `name`."""
        item = self._items.get(name)
        return None if item is None else item.owner

    def remove(self, name: str) -> bool:
        """Forget `name`; false when it was not there."""
        with self._lock:
            return self._items.pop(name, None) is not None

    def names(self) -> list[str]:
        """Return the names in order of registration."""
        with self._lock:
            return list(self._items)

    def items(self) -> list[tuple[str, T]]:
        """Return names and values in order of registration."""
        with self._lock:
            return [(name, item.value) for name, item in self._items.items()]

    def owned_by(self, owner: str) -> list[str]:
        """Return what `owner` registered."""
        with self._lock:
            return [name for name, item in self._items.items() if item.owner == owner]

    def snapshot(self) -> dict[str, Registered[T]]:
        """Return the state for `restore`."""
        with self._lock:
            return dict(self._items)

    def restore(self, state: dict[str, Registered[T]]) -> None:
        """Go back to a `snapshot`; what came since is gone."""
        with self._lock:
            self._items = dict(state)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._items)
