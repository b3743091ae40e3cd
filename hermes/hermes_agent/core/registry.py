"""Registries: named values with an owner, listeners by name, and who registers in the current context.

`Registry` and `ListenerStore` are the only stores of registrations; a `StoreGroup` holds some. A plugin that is loaded
while others serve registers in forks of them, and `adopt` replaces its old entries in one step.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from hermes_agent.core.lazy_types import LazyNamedTuple

BUILTIN = "builtin"
"""Owner of the agent's own registrations."""

T = TypeVar("T")
E = TypeVar("E")


class Conflict(Exception):
    """A name that another owner has.

    Args:
        kind: the kind of registration, in words (`tool`, `slash command`).
        owner: key of the owner that has the name.
        claimed_by: key of the owner that wants it.
    """

    def __init__(self, kind: str, name: str, owner: str, claimed_by: str) -> None:
        super().__init__(
            f"{kind} `{name}` belongs to {describe_owner(owner)}; {describe_owner(claimed_by)} wants it too"
        )
        self.kind, self.name, self.owner, self.claimed_by = kind, name, owner, claimed_by


def describe_owner(owner: str) -> str:
    """Return the owner in words: `the agent` or ``plugin `x` ``."""
    return "the agent" if owner == BUILTIN else f"plugin `{owner}`"


class EntryStore(Generic[E]):
    """Entries by name, each with an owner: the base of `Registry` and `ListenerStore`.

    Safe for threads.
    """

    def __init__(self) -> None:
        self.entries: dict[str, E] = {}
        """Entries by name, for reading: the hot path looks up names here."""
        self.generation = 0
        """Rises with each change."""
        self._lock = threading.RLock()

    def names(self) -> list[str]:
        """Return the names in order of registration."""
        with self._lock:
            return list(self.entries)

    def owned_by(self, owner: str) -> list[str]:
        """Return the names of the entries of `owner`."""
        with self._lock:
            return [name for name, entry in self.entries.items() if self._is_owned(entry, owner)]

    def snapshot(self) -> dict[str, E]:
        """Return the state for `restore`."""
        with self._lock:
            return dict(self.entries)

    def restore(self, state: dict[str, E]) -> None:
        """Return to the state of a `snapshot`."""
        self._replace(dict(state))

    def fork(self, without: str) -> Self:
        """Return an independent store with the same entries, but without those of the owner `without`."""
        fork = copy.copy(self)
        fork._lock = threading.RLock()
        fork.entries = self._without(self.snapshot(), without)
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace the entries of `owner` in one step by those that it has in `fork`.

        The new entries take the place of the first old one, so that the order of load stays.
        """
        fresh = fork.snapshot()
        with self._lock:
            self._replace(self._merge(self.entries, fresh, owner))

    def remove_owner(self, owner: str) -> list[str]:
        """Remove the entries of `owner` and return their names; what it had replaced returns."""
        with self._lock:
            names = self.owned_by(owner)
            self._replace(self._without(self.entries, owner))
            return names

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.entries)

    def _replace(self, entries: dict[str, E]) -> None:
        with self._lock:
            self.entries = entries
            self.generation += 1

    @staticmethod
    def _is_owned(entry: E, owner: str) -> bool:
        raise NotImplementedError

    @staticmethod
    def _without(entries: Mapping[str, E], owner: str) -> dict[str, E]:
        raise NotImplementedError

    @staticmethod
    def _merge(entries: Mapping[str, E], fresh: Mapping[str, E], owner: str) -> dict[str, E]:
        raise NotImplementedError


class RegistryEntry(LazyNamedTuple, Generic[T]):
    """A value and its owner."""

    value: T
    owner: str
    replaced: Any = None
    """The `RegistryEntry` of another owner that had the name before; it returns when this owner leaves."""


def no_reason(name: str) -> str:
    """Return "": no reason is known why there is no entry of this name."""
    return ""


class Registry(EntryStore[RegistryEntry[T]]):
    """Values by name, at most one for each name. Iteration is over a copy, in order of registration."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.why_absent: Callable[[str], str] = no_reason
        """Returns why a name has no value, or "" if no reason is known; the plugin manager sets it."""

    def add(
        self,
        name: str,
        value: T,
        *,
        owner: str = BUILTIN,
        replace: bool | Callable[[RegistryEntry[T]], bool] = False,
    ) -> None:
        """Register `value`; an owner may always replace its own value.

        Args:
            replace: whether the entry of another owner may be replaced, or a function that decides it for that entry.

        Raises:
            Conflict: another owner has the name and it may not be replaced.
        """
        with self._lock:
            present = self.entries.get(name)
            if present is not None and present.owner == owner:
                entry = RegistryEntry(value, owner, present.replaced)
            elif present is None or (replace(present) if callable(replace) else replace):
                entry = RegistryEntry(value, owner, present)
            else:
                raise Conflict(self.kind, name, present.owner, owner)
            self.entries[name] = entry
            self.generation += 1

    def get(self, name: str) -> T | None:
        """Return the value, or None if the name has none."""
        entry = self.entries.get(name)
        return None if entry is None else entry.value

    def owner(self, name: str) -> str | None:
        """Return the owner of `name`, or None if the name has no value."""
        entry = self.entries.get(name)
        return None if entry is None else entry.owner

    def remove(self, name: str, only: RegistryEntry[T] | None = None) -> bool:
        """Remove `name`; return whether it had a value.

        Args:
            only: the entry to remove; another one of this name stays.
        """
        with self._lock:
            if name not in self.entries or (only is not None and self.entries[name] is not only):
                return False
            del self.entries[name]
            self.generation += 1
            return True

    def withdraw(self, name: str, value: T) -> bool:
        """Remove one registration by its value; return whether it was there. What it had replaced returns."""
        with self._lock:
            present = self.entries.get(name)
            remaining = _without_value(present, value)
            if present is remaining:
                return False
            if remaining is None:
                del self.entries[name]
            else:
                self.entries[name] = remaining
            self.generation += 1
            return True

    def items(self) -> list[tuple[str, T]]:
        """Return names and values in order of registration."""
        with self._lock:
            return [(name, entry.value) for name, entry in self.entries.items()]

    @staticmethod
    def _is_owned(entry: RegistryEntry[T], owner: str) -> bool:
        return entry.owner == owner

    @staticmethod
    def _without(entries: Mapping[str, RegistryEntry[T]], owner: str) -> dict[str, RegistryEntry[T]]:
        found = ((name, _previous_entry(entry, owner)) for name, entry in entries.items())
        return {name: entry for name, entry in found if entry is not None}

    @staticmethod
    def _merge(
        entries: Mapping[str, RegistryEntry[T]], fresh: Mapping[str, RegistryEntry[T]], owner: str
    ) -> dict[str, RegistryEntry[T]]:
        others = Registry._without(entries, owner)
        added = {
            name: entry for name, entry in fresh.items() if entry.owner == owner and _may_take(entry, others.get(name))
        }
        merged: dict[str, RegistryEntry[T]] = {}
        for name, entry in entries.items():
            if entry.owner == owner:
                merged.update(added)
                added = {}
            if name in others and name not in merged:
                merged[name] = others[name]
        merged.update(added)
        return merged


def _previous_entry(entry: RegistryEntry[T] | None, owner: str) -> RegistryEntry[T] | None:
    """Return the entry as if `owner` had never registered."""
    if entry is None or entry.replaced is None:
        return None if entry is None or entry.owner == owner else entry
    under = _previous_entry(entry.replaced, owner)
    return under if entry.owner == owner else entry._replace(replaced=under)


def _without_value(entry: RegistryEntry[T] | None, value: T) -> RegistryEntry[T] | None:
    """Return the entry without the registration of `value`; the same object if it has none."""
    if entry is None or entry.value is value:
        return None if entry is None else entry.replaced
    under = _without_value(entry.replaced, value)
    return entry if under is entry.replaced else entry._replace(replaced=under)


def _may_take(entry: RegistryEntry[T], present: RegistryEntry[T] | None) -> bool:
    """Return False if another owner took the name after the fork was made."""
    return present is None or (entry.replaced is not None and entry.replaced.owner == present.owner)


class Owned(Protocol):
    """An item of a `ListenerStore`."""

    @property
    def owner(self) -> str: ...


L = TypeVar("L", bound=Owned)


class ListenerStore(EntryStore[tuple[L, ...]]):
    """Items by name, any number for each name, in order of registration."""

    def add(self, name: str, item: L) -> None:
        """Append an item; the same one twice stays twice."""
        with self._lock:
            self.entries[name] = (*self.entries.get(name, ()), item)
            self.generation += 1

    def remove(self, name: str, item: L) -> None:
        """Remove this object from a name."""
        with self._lock:
            self.put(name, tuple(present for present in self.entries.get(name, ()) if present is not item))

    def put(self, name: str, items: tuple[L, ...]) -> None:
        """Replace the items of a name."""
        with self._lock:
            if items:
                self.entries[name] = items
            else:
                self.entries.pop(name, None)
            self.generation += 1

    def listeners_for(self, name: str) -> tuple[L, ...]:
        """Return the items of a name, in order."""
        return self.entries.get(name, ())

    def items(self) -> list[L]:
        """Return the items of all names."""
        return [item for items in self.snapshot().values() for item in items]

    @staticmethod
    def _is_owned(entry: tuple[L, ...], owner: str) -> bool:
        return any(item.owner == owner for item in entry)

    @staticmethod
    def _without(entries: Mapping[str, tuple[L, ...]], owner: str) -> dict[str, tuple[L, ...]]:
        found = {name: _items_of_others(items, owner) for name, items in entries.items()}
        return {name: items for name, items in found.items() if items}

    @staticmethod
    def _merge(
        entries: Mapping[str, tuple[L, ...]], fresh: Mapping[str, tuple[L, ...]], owner: str
    ) -> dict[str, tuple[L, ...]]:
        names = dict.fromkeys((*entries, *fresh))
        merged = {name: _splice(entries.get(name, ()), fresh.get(name, ()), owner) for name in names}
        return {name: items for name, items in merged.items() if items}


def _items_of_others(items: tuple[L, ...], owner: str) -> tuple[L, ...]:
    return tuple(item for item in items if item.owner != owner)


def _splice(items: tuple[L, ...], fresh: tuple[L, ...], owner: str) -> tuple[L, ...]:
    """Return `items` with the items that `owner` has in `fresh`, at the place of its first one."""
    place = next((n for n, item in enumerate(items) if item.owner == owner), len(items))
    new = tuple(item for item in fresh if item.owner == owner)
    return (*_items_of_others(items[:place], owner), *new, *_items_of_others(items[place:], owner))


class StoreGroup:
    """Base of an object that keeps its registrations in stores; these change together.

    A subclass names the attributes that hold its stores in `_parts`.
    """

    _parts: ClassVar[tuple[str, ...]] = ("_entries",)

    def stores(self) -> tuple[RegistrationStore, ...]:
        """Return the stores."""
        return tuple(getattr(self, name) for name in self._parts)

    def with_stores(self, stores: Iterable[RegistrationStore]) -> Self:
        """Return a copy that keeps its registrations in other stores."""
        other = copy.copy(self)
        for name, store in zip(self._parts, stores, strict=True):
            setattr(other, name, store)
        return other

    def owned_by(self, owner: str) -> list[str]:
        """Return the names of what `owner` registered."""
        return [name for store in self.stores() for name in store.owned_by(owner)]

    def snapshot(self) -> tuple[Any, ...]:
        """Return the state for `restore`."""
        return tuple(store.snapshot() for store in self.stores())

    def restore(self, state: tuple[Any, ...]) -> None:
        """Return to the state of a `snapshot`."""
        for store, part in zip(self.stores(), state, strict=True):
            store.restore(part)

    def fork(self, without: str) -> Self:
        """Return an independent copy without the registrations of the owner `without`."""
        return self.with_stores(store.fork(without) for store in self.stores())

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace the registrations of `owner` by those that it has in `fork`; each store changes in one step."""
        for store, forked in zip(self.stores(), fork.stores(), strict=True):
            store.adopt(owner, forked)  # type: ignore[arg-type]  # the fork of this store
        self._after_change(owner, fork)

    def remove_owner(self, owner: str) -> list[str]:
        """Remove what `owner` registered and return the names; what it had replaced returns."""
        names = [name for store in self.stores() for name in store.remove_owner(owner)]
        self._after_change(owner, None)
        return names

    def _after_change(self, owner: str, fork: Self | None) -> None:
        """Follow a change of all that `owner` registered.

        Args:
            fork: holds the new registrations; None if all were removed.
        """


RegistrationStore = EntryStore[Any] | StoreGroup
"""A place where plugins register something."""


class Stores(tuple[RegistrationStore, ...], StoreGroup):
    """All stores of a host."""

    def stores(self) -> tuple[RegistrationStore, ...]:
        """Return the stores."""
        return self

    def with_stores(self, stores: Iterable[RegistrationStore]) -> Self:
        """Return other stores in their place."""
        return type(self)(stores)


class RegistryFacade(StoreGroup, Generic[T]):
    """Base of an object that keeps its registrations in one registry and offers its reading methods."""

    def __init__(self, kind: str) -> None:
        self._entries: Registry[T] = Registry(kind)
        self.why_absent: Callable[[str], str] = no_reason
        """Returns why a name has no value, or "" if no reason is known; the plugin manager sets it."""

    def get(self, name: str) -> T | None:
        """Return the value, or None if the name has none."""
        return None if (entry := self._entries.entries.get(name)) is None else entry.value  # often in a tool call

    def owner(self, name: str) -> str | None:
        """Return the owner of `name`, or None if the name has no value."""
        return None if (entry := self._entries.entries.get(name)) is None else entry.owner  # often in a tool call

    def names(self) -> list[str]:
        """Return the names in order of registration."""
        return self._entries.names()

    def items(self) -> list[tuple[str, T]]:
        """Return names and values in order of registration."""
        return self._entries.items()

    def remove(self, name: str) -> bool:
        """Remove `name`; return whether it had a value."""
        return self._entries.remove(name)

    def withdraw(self, name: str, value: T) -> bool:
        """Remove one registration by its value; return whether it was there. What it had replaced returns."""
        return self._entries.withdraw(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Owner(LazyNamedTuple):
    """A registrant.

    Attributes:
        key: the plugin's key, `builtin` for the agent, or empty for code that cannot be attributed.
        may_override: the operator allowed it to take over names (`plugins.entries.<key>.allow_tool_override`).
        free_tools: tools that every owner may take over (`plugins.allow_tool_override`).
    """

    key: str
    may_override: bool = False
    free_tools: tuple[str, ...] = ()


NO_OWNER = Owner("")
"""Owner of registrations outside every `register(ctx)`: they may add names, and never take over one."""

StagedStores = Callable[[Any], Any]
"""Returns the store that stands for another one while a plugin is loaded and others serve."""

_staged_stores: ContextVar[StagedStores | None] = ContextVar("hermes_staged_stores", default=None)
_owner: ContextVar[Owner] = ContextVar("hermes_owner", default=NO_OWNER)


def current_owner() -> Owner:
    """Return the owner of registrations in this context."""
    return _owner.get()


def staged_store(store: T) -> T:
    """Return the store for registrations in this context: `store`, or the one that stands for it."""
    staged = _staged_stores.get()
    return store if staged is None else staged(store)


@contextlib.contextmanager
def registration_context(owner: Owner, stores: StagedStores | None = None) -> Iterator[None]:
    """Attribute each registration inside the block to `owner`.

    Args:
        stores: stands for the stores that plugin code reaches without its context (`tools.registry`).
    """
    tokens = _owner.set(owner), _staged_stores.set(stores)
    try:
        yield
    finally:
        _owner.reset(tokens[0])
        _staged_stores.reset(tokens[1])
