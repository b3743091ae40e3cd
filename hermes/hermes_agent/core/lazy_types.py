"""Data classes and named tuples with methods that are compiled at their first use.

The standard library compiles up to six methods for a data class and one for a named tuple, and with a named tuple each
annotation that is text. A process uses few of them. A `lazy_dataclass` and a `LazyNamedTuple` have a descriptor in the
place of each method; at its first use the method replaces the descriptor. `dataclasses` is imported for the first data
class: `hermes plugins list` has none.
"""

from __future__ import annotations

import functools
import keyword
import sys
import typing
from collections import namedtuple
from collections.abc import Iterable
from types import SimpleNamespace, new_class
from typing import TYPE_CHECKING, Any

__all__ = ["LazyNamedTuple", "lazy_dataclass"]

_REQUESTS = {"__init__": "init", "__repr__": "repr", "__eq__": "eq", "__hash__": "unsafe_hash"}
"""The option of `dataclass` that asks for a method and for no other."""

_NO_METHODS = {"init": False, "repr": False, "eq": False, "frozen": False}


class _LazyMethod:
    """Stands in a data class for a method that is not compiled yet."""

    __slots__ = ("cls", "name")

    def __init__(self, cls: type, name: str) -> None:
        self.cls = cls
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Put the method in the place of this object, and return what the class gives for it."""
        method = _compile_method(self.cls, self.name)
        if self.cls.__dict__.get(self.name) is self:
            setattr(self.cls, self.name, method)
        return method.__get__(instance, owner)


def _lazy_dataclass(cls: type | None = None, /, **options: bool) -> Any:
    """Make a data class of a class, with the options of `dataclasses.dataclass`.

    Classes of some kinds have their methods at once: with `order`, `unsafe_hash` or `weakref_slot`, without a
    docstring (the signature becomes the docstring), and where data classes inherit and one of them is frozen.
    """
    if cls is None:
        return lambda decorated: _lazy_dataclass(decorated, **options)
    import dataclasses  # as above; it imports `inspect`

    frozen = options.get("frozen", False)
    own = vars(cls)
    bases: list[Any] = [base for base in cls.__mro__[1:] if dataclasses.is_dataclass(base)]
    if (
        not cls.__doc__
        or any(options.get(name) for name in ("order", "unsafe_hash", "weakref_slot"))
        or (frozen and ("__setattr__" in own or "__delattr__" in own))
        or any(frozen or base.__dataclass_params__.frozen for base in bases)
    ):
        return dataclasses.dataclass(**options)(cls)

    asked = {name: options.get(name, True) for name in ("init", "repr", "eq")}
    names = [f"__{name}__" for name in asked if asked[name] and f"__{name}__" not in own]
    if asked["eq"] and ("__hash__" not in own or (own["__hash__"] is None and "__eq__" in own)):
        if frozen:
            names.append("__hash__")
        else:
            cls.__hash__ = None  # type: ignore[assignment]
    methods = [_LazyMethod(cls, name) for name in names]
    for method in methods:
        setattr(cls, method.name, method)
    made: Any = dataclasses.dataclass(**(options | _NO_METHODS))(cls)
    for method in methods:  # with slots, it is another class
        method.cls = made
    params = made.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = *asked.values(), frozen
    if frozen:
        made.__setattr__, made.__delattr__ = _set, _delete
        for name, method in _pickling().items() if options.get("slots") else ():
            if name not in vars(made):
                setattr(made, name, method)
    optional = [
        field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        for field in made.__dataclass_fields__.values()
        if field.init and not field.kw_only
    ]
    if asked["init"] and optional != sorted(optional):
        _compile_method(made, "__init__")  # the standard library refuses this order with an error
    return made


def _set(self: Any, name: str, value: object) -> None:
    _refuse(self, name, "assign to")
    super(_frozen(self)[-1], self).__setattr__(name, value)


def _delete(self: Any, name: str) -> None:
    _refuse(self, name, "delete")
    super(_frozen(self)[-1], self).__delattr__(name)


def _frozen(self: object) -> list[Any]:
    """Return the lazy frozen classes of an object, which share the two functions above."""
    return [cls for cls in type(self).__mro__ if vars(cls).get("__setattr__") is _set]


def _refuse(self: object, name: str, what: str) -> None:
    import dataclasses

    for cls in _frozen(self):
        if type(self) is cls or name in {field.name for field in dataclasses.fields(cls)}:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")


@functools.cache
def _pickling() -> dict[str, Any]:
    """Return the methods that pickle frozen data classes with slots."""
    import dataclasses

    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True, slots=True)(
        type("Pickled", (), {"__doc__": "Has them."})
    )
    return {name: vars(made)[name] for name in ("__getstate__", "__setstate__")}


def _make_workshop() -> Any:
    """Make a class that stands for others while a method of theirs is compiled; its base has their fields."""
    return type("Workshop", (type("Fields", (), {}),), {"__doc__": "Stands for a data class."})


_spare_workshops = [_make_workshop()]
"""Made once and taken in turns: a class that is thrown away for each method would be garbage of the start."""


def _compile_method(cls: Any, name: str) -> Any:
    """Let the standard library make one method of a data class."""
    import dataclasses

    try:
        workshop = _spare_workshops.pop()
    except IndexError:  # another thread has it
        workshop = _make_workshop()
    empty = set(vars(workshop))
    frozen = name == "__init__" and cls.__dataclass_params__.frozen
    workshop.__base__.__dataclass_fields__ = fields = cls.__dataclass_fields__
    workshop.__base__.__dataclass_params__ = SimpleNamespace(frozen=frozen)
    workshop.__module__, workshop.__name__, workshop.__qualname__ = cls.__module__, cls.__name__, cls.__qualname__
    if hasattr(cls, "__post_init__"):
        workshop.__post_init__ = None
    # with slots, `__init__` assigns what is no argument and has a default
    slots = "__slots__" in vars(cls) and any(not field.init for field in fields.values())
    request = _NO_METHODS | {"match_args": False, "frozen": frozen, "slots": slots, _REQUESTS[name]: True}
    method = vars(dataclasses.dataclass(**request)(workshop))[name]
    for left in set(vars(workshop)) - empty:
        delattr(workshop, left)
    _spare_workshops.append(workshop)
    return method


class _LazyNew:
    """Stands in named tuples for `__new__`; one object for all of them."""

    def __get__(self, instance: object, owner: Any = None) -> Any:
        """Put the function in the place of this object, and return it."""
        cls = next(base for base in owner.__mro__ if "_fields" in vars(base))
        names = _listed(cls._fields)
        known = {"_tuple_new": tuple.__new__, "__builtins__": {}, "__name__": f"namedtuple_{cls.__name__}"}
        new = eval(f"lambda _cls, {', '.join(cls._fields)}: _tuple_new(_cls, ({names}))", known)
        new.__name__, new.__qualname__ = "__new__", f"{cls.__name__}.__new__"
        new.__doc__ = f"Create new instance of {cls.__name__}({names})"
        new.__defaults__ = tuple(cls._field_defaults.values())
        new.__annotations__ = cls.__annotations__
        if vars(cls).get("__new__") is self:
            cls.__new__ = staticmethod(new)
        return new


class _Tuple:
    """Has the methods that all lazy named tuples share."""

    __new__ = _LazyNew()

    @classmethod
    def _make(cls: Any, iterable: Iterable[Any]) -> Any:
        """Make a named tuple of a sequence or iterable."""
        made = tuple.__new__(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self: Any, /, **changes: Any) -> Any:
        """Return a named tuple with other values in some fields."""
        values = dict(zip(self._fields, self, strict=True))
        if unexpected := [name for name in changes if name not in values]:
            raise _UNEXPECTED(f"Got unexpected field names: {unexpected!r}")
        return self._make((values | changes).values())

    def __repr__(self: Any) -> str:
        return f"{self.__class__.__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"


_COLUMNS = [f"column{number}" for number in range(40)]
_Columns: Any = namedtuple("_Columns", _COLUMNS)  # type: ignore[misc]
_GETTERS = [vars(_Columns)[name] for name in _COLUMNS]
"""The descriptors of fields; a field has that of its number, in each class."""
_METHODS = {name: vars(_Tuple)[name] for name in ("__new__", "_make", "_replace", "__repr__")}
_METHODS |= {name: vars(_Columns)[name] for name in ("_asdict", "__getnewargs__")}
_UNEXPECTED = ValueError
if sys.version_info >= (3, 13):
    _METHODS["__replace__"] = _METHODS["_replace"]
    _UNEXPECTED = TypeError


class _NamedTupleMaker(type):
    """Makes a named tuple of each class that is derived from its instance."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        """Return a class as `typing.NamedTuple` does, which itself makes generic ones and refuses wrong ones."""
        fields = tuple(body.get("__annotations__", ()))
        optional = [field in body for field in fields]
        if (
            len(bases) > 1
            or len(fields) > len(_GETTERS)
            or not _FIXED.isdisjoint(body)
            or optional != sorted(optional)
            or any(field.startswith("_") or keyword.iskeyword(field) for field in fields)
        ):
            asked = body.pop("__orig_bases__", bases)
            real = tuple(typing.NamedTuple if base is LazyNamedTuple else base for base in asked)
            return new_class(name, real, exec_body=lambda space: space.update(body))
        usual = {"__doc__": f"{name}({_listed(fields)})", "__orig_bases__": (typing.NamedTuple,)}
        given = {field: body[field] for field in fields if field in body}
        fixed = {"__slots__": (), "_fields": fields, "_field_defaults": given, "__match_args__": fields}
        contents = usual | _METHODS | body | fixed | dict(zip(fields, _GETTERS, strict=False))
        equal = contents.pop("__eq__", None)
        made = type(name, (tuple,), contents)
        if equal is not None:
            made.__eq__ = equal  # type: ignore[method-assign]  # afterwards, or the class would have no hash
        return made


def _listed(fields: tuple[str, ...]) -> str:
    return ", ".join(fields) + "," * (len(fields) == 1)


_FIXED = frozenset(
    {"__new__", "__init__", "__slots__", "__getnewargs__", "_fields", "_field_defaults", "_make", "_replace", "_asdict"}
)
"""What the body of a named tuple may not define."""

if TYPE_CHECKING:
    from dataclasses import dataclass as lazy_dataclass
    from typing import NamedTuple as LazyNamedTuple
else:
    lazy_dataclass = _lazy_dataclass
    LazyNamedTuple = type.__new__(_NamedTupleMaker, "LazyNamedTuple", (), {})
