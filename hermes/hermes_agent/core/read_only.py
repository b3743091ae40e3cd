"""Collections that refuse a change, which would have no effect, and name what to call instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn


class _ReadOnly:
    """Base of collections that refuse a change, which would have no effect, and name what to call instead.

    Args:
        instead: the call for the same purpose.
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
    """A list that refuses changes."""

    def __init__(self, content: Iterable[Any], instead: str) -> None:
        super().__init__(content)
        self.instead = instead

    append = extend = insert = remove = pop = clear = sort = reverse = _ReadOnly._refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _ReadOnly._refuse


class ReadOnlyDict(_ReadOnly, dict[Any, Any]):
    """A mapping that refuses changes; so do the mappings and lists in it."""

    def __init__(self, content: Mapping[Any, Any], instead: str) -> None:
        super().__init__({key: _make_read_only(value, instead) for key, value in content.items()})
        self.instead = instead

    pop = popitem = clear = update = _ReadOnly._refuse
    __setitem__ = __delitem__ = __ior__ = _ReadOnly._refuse

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key.

        Raises:
            TypeError: the key has no value, and none can be set.
        """
        return self[key] if key in self else self._refuse()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return {key: value.__deepcopy__(memo) if isinstance(value, _ReadOnly) else value for key, value in self.items()}


class ReadOnlySet(_ReadOnly, set[Any]):
    """A set that refuses changes."""

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
