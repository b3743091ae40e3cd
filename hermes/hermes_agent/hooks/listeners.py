"""Who is called for what: callbacks by name, in the order in which plugins load."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, Self

from hermes_agent.hooks.listener import Listener

__all__ = ["ListenerStore"]

_State = dict[str, tuple[Listener, ...]]


class ListenerStore:
    """A store of registrations (`plugins.ground.Store`).

    Args:
        label: what the names are, for errors: `hook`.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self.there: _State = {}
        """By name; to be read only. A name that nobody is called for is not in it."""
        self._lock = threading.Lock()

    def add(self, name: str, callback: Callable[..., Any], plugin: str) -> None:
        """Append `callback`; the same one twice is called twice, as upstream.

        Raises:
            TypeError: it cannot be called.
        """
        listener = Listener.of(callback, plugin, self._label, name)
        with self._lock:
            self.there[name] = (*self.there.get(name, ()), listener)

    def listeners_for(self, name: str) -> tuple[Listener, ...]:
        """Return who is called for `name`, in order."""
        return self.there.get(name, ())

    def names(self) -> list[str]:
        """Return the names that somebody is called for."""
        return list(self.there)

    def snapshot(self) -> _State:
        """Return the state for `restore`."""
        with self._lock:
            return dict(self.there)

    def restore(self, state: _State) -> None:
        """Go back to a `snapshot`."""
        with self._lock:
            self.there = dict(state)

    def fork(self, without: str) -> Self:
        """Return a store of its own with the same content, but for that of `without`."""
        fork = copy.copy(self)
        fork._lock = threading.Lock()
        fork.there = {name: kept for name, there in self.snapshot().items() if (kept := _others(there, without))}
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace, in one step, what `owner` has here by what it has in `fork`, at the same place."""
        fresh = fork.snapshot()
        with self._lock:
            names = dict.fromkeys((*self.there, *fresh))
            merged = {name: _spliced(self.there.get(name, ()), fresh.get(name, ()), owner) for name in names}
            self.there = {name: there for name, there in merged.items() if there}

    def remove_owner(self, owner: str) -> list[str]:
        """Forget what `owner` registered and return the names."""
        with self._lock:
            names = self._owned_by(owner)
            found = {name: _others(there, owner) for name, there in self.there.items()}
            self.there = {name: there for name, there in found.items() if there}
        return names

    def owned_by(self, owner: str) -> list[str]:
        """Return the names that `owner` is called for."""
        with self._lock:
            return self._owned_by(owner)

    def _owned_by(self, owner: str) -> list[str]:
        return [name for name, there in self.there.items() if any(item.plugin == owner for item in there)]


def _others(there: tuple[Listener, ...], owner: str) -> tuple[Listener, ...]:
    return tuple(item for item in there if item.plugin != owner)


def _spliced(there: tuple[Listener, ...], fresh: tuple[Listener, ...], owner: str) -> tuple[Listener, ...]:
    """Return `there` with the listeners that `owner` has in `fresh`, where its first one stood."""
    place = next((n for n, item in enumerate(there) if item.plugin == owner), len(there))
    mine = tuple(item for item in fresh if item.plugin == owner)
    return (*_others(there[:place], owner), *mine, *_others(there[place:], owner))
