"""The one registry class: named things with an owner.

Lists, mappings and sets that refuse a change, which would have no effect, and say what to call instead.

Who registers right now: bound to the context that registers, never guessed from stack frames or names.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, NoReturn, Self, TypeVar

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


class RegistryEntry(NamedTuple, Generic[T]):
    """A value and whose it is."""

    value: T
    owner: str
    replaced: Any = None
    """The `RegistryEntry` of another owner that it took the name from; it comes back when this owner leaves."""


class Registry(Generic[T]):
    """Values by name. Safe for threads; iteration is over a copy, in order of registration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, RegistryEntry[T]] = {}
        self._lock = threading.RLock()
        self.why_absent: Callable[[str], str] = _unknown
        """Says why a name is not there that was; empty for any other. The host puts in its own."""

    def add(self, name: str, value: T, *, owner: str = BUILTIN, replace: bool = False) -> None:
        """Register `value`.

        Raises:
            Conflict: another owner has the name and `replace` is false. The same owner replaces freely.
        """
        with self._lock:
            present = self._items.get(name)
            if present is not None and present.owner != owner and not replace:
                raise Conflict(self.kind, name, present.owner, owner)
            self._items[name] = self._over(present, value, owner)

    @staticmethod
    def _over(present: RegistryEntry[T] | None, value: T, owner: str) -> RegistryEntry[T]:
        """Return the entry that replaces `present`, which comes back when `owner` leaves, if it is another's."""
        if present is not None and present.owner == owner:
            return RegistryEntry(value, owner, present.replaced)
        return RegistryEntry(value, owner, present)

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

    def snapshot(self) -> dict[str, RegistryEntry[T]]:
        """Return the state for `restore`."""
        with self._lock:
            return dict(self._items)

    def restore(self, state: dict[str, RegistryEntry[T]]) -> None:
        """Go back to a `snapshot`; what came since is gone."""
        with self._lock:
            self._items = dict(state)

    def fork(self, without: str) -> Self:
        """Return a registry of its own with the same content, but for what `without` registered."""
        fork = copy.copy(self)
        fork._lock = threading.RLock()
        fork._items = _without(self.snapshot(), without)
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace, in one step, what `owner` has here by what it has in `fork`; nobody else's names change.

        The new entries take the place of the first old one, so that the order of load stays.
        """
        fresh = {name: item for name, item in fork.snapshot().items() if item.owner == owner}
        with self._lock:
            kept = _without(self._items, owner)
            merged: dict[str, RegistryEntry[T]] = {}
            for name, item in self._items.items():
                if item.owner == owner:
                    merged.update(_without_taken(fresh, kept))
                    fresh = {}
                if name in kept and name not in merged:
                    merged[name] = kept[name]
            merged.update(_without_taken(fresh, kept))
            self._items = merged

    def remove_owner(self, owner: str) -> list[str]:
        """Forget everything of `owner` and return its names; what it had replaced comes back."""
        with self._lock:
            names = self.owned_by(owner)
            self._items = _without(self._items, owner)
            return names

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._items)


def _unknown(name: str) -> str:
    return ""


def _without(items: Mapping[str, RegistryEntry[T]], owner: str) -> dict[str, RegistryEntry[T]]:
    found = ((name, _previous_entry(item, owner)) for name, item in items.items())
    return {name: item for name, item in found if item is not None}


def _previous_entry(item: RegistryEntry[T] | None, owner: str) -> RegistryEntry[T] | None:
    """Return the entry as if `owner` had never registered."""
    if item is None or item.replaced is None:
        return None if item is None or item.owner == owner else item
    under = _previous_entry(item.replaced, owner)
    return under if item.owner == owner else item._replace(replaced=under)


def _without_taken(
    fresh: Mapping[str, RegistryEntry[T]], kept: Mapping[str, RegistryEntry[T]]
) -> dict[str, RegistryEntry[T]]:
    """Leave out the names that somebody else took after the fork was made."""
    return {
        name: item
        for name, item in fresh.items()
        if name not in kept or (item.replaced is not None and item.replaced.owner == kept[name].owner)
    }


class _ReadOnly:
    """Base of the three.

    Args:
        instead: what to call for the same purpose.
    """

    instead = ""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"this {type(self).__bases__[-1].__name__} shows what is there and takes no change: {self.instead}"
        )

    def __copy__(self) -> Any:
        return type(self).__bases__[-1](self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self).__bases__[-1], (self.__copy__(),)

    copy = __copy__


class ReadOnlyList(_ReadOnly, list[Any]):
    """A list."""

    def __init__(self, content: Iterable[Any], instead: str) -> None:
        super().__init__(content)
        self.instead = instead

    append = extend = insert = remove = pop = clear = sort = reverse = _ReadOnly._refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _ReadOnly._refuse


class ReadOnlyDict(_ReadOnly, dict[Any, Any]):
    """A mapping. Those in it are read-only, too, and the lists."""

    def __init__(self, content: Mapping[Any, Any], instead: str) -> None:
        super().__init__({key: _make_read_only(value, instead) for key, value in content.items()})
        self.instead = instead

    pop = popitem = clear = update = _ReadOnly._refuse
    __setitem__ = __delitem__ = __ior__ = _ReadOnly._refuse

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return what is there.

        Raises:
            TypeError: nothing is there, and nothing can be put there.
        """
        return self[key] if key in self else self._refuse()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return {key: value.__deepcopy__(memo) if isinstance(value, _ReadOnly) else value for key, value in self.items()}


class ReadOnlySet(_ReadOnly, set[Any]):
    """A set."""

    def __init__(self, content: Iterable[Any], instead: str) -> None:
        super().__init__(content)
        self.instead = instead

    add = discard = remove = pop = clear = update = _ReadOnly._refuse
    difference_update = intersection_update = symmetric_difference_update = _ReadOnly._refuse
    __ior__ = __iand__ = __isub__ = __ixor__ = _ReadOnly._refuse


def _make_read_only(value: Any, instead: str) -> Any:
    if type(value) is dict:
        return ReadOnlyDict(value, instead)
    return ReadOnlyList(value, instead) if type(value) is list else value


class Owner(NamedTuple):
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
