"""Lazy data classes and named tuples are compared with those that the standard library makes of the same class."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import pickle
import re
import sys
import threading
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass

Decorator = Callable[..., Any]
lazy: Decorator = lazy_dataclass
plain: Decorator = dataclass
COMPILED = ("__init__", "__repr__", "__eq__", "__hash__")
FIELDS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "plain": lambda: (int,),
    "default": lambda: (int, 7),
    "factory": lambda: (list, field(default_factory=list)),
    "mutable default": lambda: (list, []),
    "keyword": lambda: (str, field(kw_only=True)),
    "keyword with default": lambda: (str, field(default="x", kw_only=True)),
    "set later": lambda: (int, field(init=False)),
    "constant": lambda: (int, field(init=False, default=3)),
    "constant list": lambda: (list, field(init=False, default_factory=list)),
    "hidden": lambda: (int, field(repr=False)),
    "not compared": lambda: (int, field(compare=False)),
    "compared, not hashed": lambda: (int, field(hash=False)),
    "of the class": lambda: (ClassVar[int], 5),
    "of the class, as text": lambda: ("ClassVar[int]", 5),
    "for the start": lambda: (dataclasses.InitVar[int],),
    "for the start, with default": lambda: (dataclasses.InitVar[int], 4),
    "for the start, as text": lambda: ("dataclasses.InitVar[int]", 4),
    "the rest by keyword": lambda: (dataclasses.KW_ONLY,),
}
METHODS: dict[str, Callable[..., Any]] = {
    "__init__": lambda self, *args, **more: None,
    "__repr__": lambda self: "made by hand",
    "__eq__": lambda self, other: True,
    "__hash__": lambda self: 11,
    "__setattr__": lambda self, name, value: object.__setattr__(self, name, value),
    "__getstate__": lambda self: [],
    "__post_init__": lambda self, *given: self.__dict__.update(seen=given) if hasattr(self, "__dict__") else None,
}
BASES: dict[str, Callable[[Decorator], type]] = {
    "object": lambda make: object,
    "a data class": lambda make: make(type("Base", (), space({"base": (int, 1)}))),
    "a frozen data class": lambda make: make(frozen=True)(type("Base", (), space({"base": (int, 1)}))),
    "a data class with slots": lambda make: make(slots=True)(type("Base", (), space({"base": (int,)}))),
    "an ordinary class": lambda make: type("Base", (), {"__module__": __name__, "hello": lambda self: "hello"}),
}
OPTIONS = ("init", "repr", "eq", "order", "unsafe_hash", "frozen", "match_args", "kw_only", "slots", "weakref_slot")


class Case(typing.NamedTuple):
    """A class before it is decorated, and the options."""

    options: dict[str, bool]
    fields: list[str]
    methods: list[str]
    base: str
    doc: str | None
    first: list[str]
    """The order in which the methods are used."""

    def make(self, decorator: Decorator) -> Any:
        """Return the class that a decorator makes."""
        contents = space({f"f{number}": FIELDS[kind]() for number, kind in enumerate(self.fields)})
        contents |= {name: METHODS[name] for name in self.methods} | {"__doc__": self.doc}
        return decorator(**self.options)(type("Made", (BASES[self.base](decorator),), contents))


def space(fields: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return what the body of a class defines."""
    values = {name: declared[1] for name, declared in fields.items() if len(declared) > 1}
    return {
        "__annotations__": {name: declared[0] for name, declared in fields.items()},
        "__module__": __name__,
    } | values


def outcome(function: Callable[[], Any]) -> Any:
    """Return a result, or the error in its place."""
    try:
        result = function()
    except Exception as error:
        return type(error), str(error)
    return re.sub(" at 0x[0-9a-f]+", "", result) if isinstance(result, str) else result


def described(method: Any) -> Any:
    """Return what is known of a method, its code too."""
    real = inspect.unwrap(method) if callable(method) else method
    names = ("__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__", "__annotations__", "__doc__")
    code = getattr(real, "__code__", None)
    said = [outcome(lambda name=name: repr(getattr(method, name, None))) for name in names]
    return said, code and (code.co_code, code.co_varnames, code.co_names)


def observed(cls: Any, first: list[str]) -> dict[str, Any]:
    """Return what a program sees of a class and of its instances."""
    seen: dict[str, Any] = {"names": sorted(vars(cls)), "slots": getattr(cls, "__slots__", None), "doc": cls.__doc__}
    seen["fields"] = outcome(lambda: repr(cls.__dataclass_fields__))
    seen["params"] = repr(cls.__dataclass_params__)
    seen["match"] = getattr(cls, "__match_args__", None)
    seen |= {name: described(getattr(cls, name)) for name in first}
    seen["signature"] = outcome(lambda: str(inspect.signature(cls)))
    seen["hints"] = outcome(lambda: repr(typing.get_type_hints(cls.__init__)))
    needed = [
        p for p in inspect.signature(cls).parameters.values() if p.default is p.empty and "VAR" not in p.kind.name
    ]
    values = {parameter.name: number for number, parameter in enumerate(needed)}
    one, same, other = cls(**values), cls(**values), cls(**{name: -1 for name in values})
    for instance in (one, same, other):
        for name in [f.name for f in dataclasses.fields(cls) if not hasattr(instance, f.name)]:
            object.__setattr__(instance, name, 9)
    seen["state"] = [getattr(one, f.name) for f in dataclasses.fields(cls)], getattr(one, "seen", None)
    seen["repr"] = outcome(lambda: repr(one))
    seen["equal"] = [outcome(lambda right=right: one == right) for right in (one, same, other, 5)]
    seen["ordered"] = [outcome(lambda right=right: one <= right) for right in (same, other, 5)]
    seen["hash"] = cls.__hash__ is None or cls.__hash__ is object.__hash__ or outcome(lambda: hash(one))
    seen["replaced"] = outcome(lambda: repr(dataclasses.replace(one, **dict.fromkeys(list(values)[:1], 6))))
    seen["tuple"] = dataclasses.asdict(one), dataclasses.astuple(one)
    seen["copied"] = [outcome(lambda copier=copier: repr(copier(one))) for copier in (copy.copy, copy.deepcopy)]
    sys.modules[__name__].Made = cls  # type: ignore[attr-defined]
    seen["pickled"] = outcome(lambda: repr(pickle.loads(pickle.dumps(one))))
    names = [f.name for f in dataclasses.fields(cls)]
    seen["assigned"] = [outcome(lambda name=name: setattr(copy.copy(one), name, 1)) for name in names]
    seen["deleted"] = [outcome(lambda name=name: delattr(copy.copy(one), name)) for name in names]
    return seen


def heirs(cls: Any) -> dict[str, Any]:
    """Return what becomes of the classes that a plugin derives from a class."""
    ordinary = type(
        "Heir",
        (cls,),
        {"__module__": __name__, "__init__": lambda self, **more: super(ordinary, self).__init__(**more)},
    )
    decorated = [
        outcome(
            lambda frozen=frozen: dataclass(frozen=frozen, kw_only=True)(type("Heir", (cls,), space({"own": (int, 1)})))
        )
        for frozen in (False, True)
    ]
    needed = [
        p for p in inspect.signature(cls).parameters.values() if p.default is p.empty and "VAR" not in p.kind.name
    ]
    values = dict.fromkeys([parameter.name for parameter in needed], 2)
    seen = {"ordinary": outcome(lambda: repr(ordinary(**values)))}
    for number, heir in enumerate(decorated):
        signature = str(inspect.signature(heir)) if isinstance(heir, type) else heir
        seen[f"decorated {number}"] = signature, outcome(lambda heir=heir: repr(heir(**values)))
    return seen


CASES = st.builds(
    Case,
    options=st.dictionaries(st.sampled_from(OPTIONS), st.booleans(), max_size=4),
    fields=st.lists(st.sampled_from(sorted(FIELDS)), max_size=5),
    methods=st.lists(st.sampled_from(sorted(METHODS)), max_size=2, unique=True),
    base=st.sampled_from(["object", "object", *sorted(BASES)]),
    doc=st.sampled_from(["A value.", "A value.", None]),
    first=st.permutations(COMPILED),
)
ALL = list(COMPILED)


@given(CASES)
@example(Case({"frozen": True, "slots": True}, ["plain", "default", "constant"], [], "object", "A value.", ALL))
@example(Case({"slots": True}, ["constant", "for the start"], ["__post_init__"], "object", "A value.", ALL))
@example(Case({"kw_only": True}, ["default", "plain"], [], "a data class", "A value.", ALL[::-1]))
@example(Case({}, ["default", "plain"], [], "object", "A value.", ALL))
@example(Case({"frozen": True}, ["plain"], [], "a frozen data class", "A value.", ALL))
@example(Case({"frozen": True}, ["plain"], ["__setattr__"], "object", "A value.", ALL))
@example(Case({"frozen": True}, ["plain"], ["__eq__"], "object", "A value.", ALL))
@example(Case({"init": False}, ["default", "plain"], [], "object", "A value.", ALL))
def test_a_lazy_data_class_is_as_one_of_the_standard_library(case: Case) -> None:
    theirs, ours = outcome(lambda: case.make(plain)), outcome(lambda: case.make(lazy))
    if not isinstance(theirs, type):
        assert ours == theirs
        return
    assert outcome(lambda: observed(ours, case.first)) == outcome(lambda: observed(theirs, case.first))
    assert outcome(lambda: heirs(case.make(lazy))) == outcome(lambda: heirs(case.make(plain)))
    assert outcome(lambda: observed(case.make(lazy), [])) == outcome(lambda: observed(case.make(plain), []))


@lazy_dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    x: int
    y: int = 0


def test_a_frozen_object_with_slots_refuses_every_assignment() -> None:
    for name in ("x", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(Point(1), name, 2)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(Point(1), name)


def test_a_pattern_matches_by_position() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_the_first_use_puts_the_method_of_the_standard_library_into_the_class() -> None:
    @lazy_dataclass(frozen=True)
    class Value:
        """A value."""

        number: int

    assert {name for name in COMPILED if inspect.isfunction(vars(Value)[name])} == set()
    assert Value(1) == Value(1)
    assert {name for name in COMPILED if inspect.isfunction(vars(Value)[name])} == {"__init__", "__eq__"}


def test_a_first_use_leaves_no_garbage() -> None:
    @lazy_dataclass(frozen=True, slots=True)
    class Value:
        """A value."""

        number: int

    def made() -> int:
        return len(
            [kind for kind in gc.get_objects() if isinstance(kind, type) and kind.__module__ == "value of a test"]
        )

    Value.__module__ = "value of a test"
    gc.collect()
    assert made() == 1
    gc.disable()
    try:
        assert repr(Value(1)).endswith("Value(number=1)") and Value(1) == Value(1) and hash(Value(1))
        assert made() <= 2, "one stands for all classes while their methods are compiled"
    finally:
        gc.enable()


def test_many_threads_may_use_a_class_first() -> None:
    for _ in range(50):

        @lazy_dataclass(slots=True)
        class Value:
            """A value."""

            number: int

        start, found = threading.Barrier(4), []

        def use(number: int, start: threading.Barrier = start, kind: Any = Value, found: list[Any] = found) -> None:
            start.wait()
            found.append(kind(number) == kind(number) and repr(kind(number)).endswith(f"Value(number={number})"))

        threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 4


def test_a_method_that_a_program_replaced_stays() -> None:
    @lazy_dataclass
    class Value:
        """A value."""

        number: int

    genuine = Value.__init__

    def counted(self: Value, number: int) -> None:
        genuine(self, number + 1)

    Value.__init__ = counted  # type: ignore[method-assign]
    assert Value(1).number == 2


VALUES: dict[str, Any] = {
    "needed": ...,
    "optional": 3,
    "with a list": [1],
    "a method": lambda self: self[0],
    "text": "x",
}
BODIES: dict[str, Any] = {
    "__repr__": lambda self: f"<{self[:1]}>",
    "__eq__": lambda self, other: True,
    "__new__": lambda cls: None,
    "_make": lambda self: None,
    "length": property(len),
    "__doc__": "A row.",
    "LIMIT": 5,
}


class Row(typing.NamedTuple):
    """A named tuple before it is made."""

    fields: list[tuple[str, str]]
    body: list[str]
    used: list[str]

    def make(self, base: Any) -> Any:
        """Return the class that derives from a base."""
        annotations = {name: "int | None" for name, _ in self.fields}
        values = {name: VALUES[kind] for name, kind in self.fields if kind != "needed"}
        body = {"__annotations__": annotations, "__module__": __name__, "__qualname__": "Made"} | values
        return types.new_class(
            "Made", (base,), exec_body=lambda space: space.update(body | {k: BODIES[k] for k in self.body})
        )


def row_seen(cls: Any, used: list[str]) -> dict[str, Any]:
    """Return what a program sees of a named tuple and of its instances."""
    seen: dict[str, Any] = {
        "names": sorted(vars(cls)),
        "bases": cls.__bases__,
        "doc": cls.__doc__,
        "of": cls.__orig_bases__,
    }
    seen["annotations"] = {name: getattr(t, "__forward_arg__", t) for name, t in cls.__annotations__.items()}
    seen["fields"] = cls._fields, cls._field_defaults, cls.__match_args__, cls.__slots__, cls.__qualname__
    values = [number for number, name in enumerate(cls._fields) if name not in cls._field_defaults]
    steps: dict[str, Callable[[], Any]] = {
        "new": lambda: cls(*values),
        "named": lambda: cls(**dict(zip(cls._fields, values, strict=False))),
        "few": lambda: cls(),
        "many": lambda: cls(*range(9)),
        "made": lambda: cls._make(range(len(cls._fields))),
        "made of few": lambda: cls._make([7] * 9),
        "signature": lambda: str(inspect.signature(cls)).replace("ForwardRef(", "").replace(")", ""),
        "function": lambda: (
            cls.__new__.__name__,
            cls.__new__.__qualname__,
            cls.__new__.__doc__,
            cls.__new__.__defaults__,
        ),
        "hints": lambda: typing.get_type_hints(cls),
    }
    for name in [*used, *steps]:
        seen[name] = outcome(steps[name])
    one = cls._make([7] * len(cls._fields))
    seen["shown"] = outcome(lambda: repr(one)), str(one)
    seen["kept"] = (
        one == copy.copy(one),
        one == copy.deepcopy(one),
        hash(one),
        one._asdict(),
        one == tuple(one),
        len(one),
    )
    seen["getters"] = [(getattr(one, name), getattr(cls, name).__doc__) for name in cls._fields]
    seen["replaced"] = [outcome(lambda name=name: one._replace(**{name: 1})) for name in (*cls._fields, "other")]
    seen["assigned"] = [outcome(lambda name=name: setattr(one, name, 1)) for name in (*cls._fields, "other")]
    sys.modules[__name__].Made = cls  # type: ignore[attr-defined]
    seen["pickled"] = outcome(lambda: repr(pickle.loads(pickle.dumps(one))))
    heir = type("Heir", (cls,), {"__module__": __name__, "__slots__": ()})
    seen["heir"] = outcome(lambda: (repr(heir(*values)), repr(heir(*values)._replace())))
    return {
        name: str(what) if name in ("new", "named", "made", "heir", "replaced") else what for name, what in seen.items()
    }


ROWS = st.builds(
    Row,
    fields=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "cls", "self", "_low", "class", "count"]), st.sampled_from(sorted(VALUES))
        ),
        max_size=4,
        unique_by=lambda pair: pair[0],
    ),
    body=st.lists(st.sampled_from(sorted(BODIES)), max_size=2, unique=True),
    used=st.lists(st.sampled_from(["new", "few", "made", "signature", "function"]), max_size=2),
)


@given(ROWS)
@example(Row([], [], ["new"]))
@example(Row([("a", "needed")], ["__doc__", "__repr__"], ["signature"]))
@example(Row([("a", "needed"), ("self", "optional")], ["LIMIT", "length"], ["function"]))
@example(Row([("a", "optional"), ("b", "needed")], [], []))
@example(Row([("_low", "needed")], [], []))
def test_a_lazy_named_tuple_is_as_one_of_the_standard_library(row: Row) -> None:
    base: Any = LazyNamedTuple
    theirs, ours = outcome(lambda: row.make(typing.NamedTuple)), outcome(lambda: row.make(base))
    if isinstance(theirs, type):
        theirs, ours = row_seen(theirs, row.used), row_seen(ours, row.used)
    assert ours == theirs


T = typing.TypeVar("T")


class Pair(LazyNamedTuple, typing.Generic[T]):
    """Two values of a kind."""

    left: T
    right: T


class Place(LazyNamedTuple):
    """A place."""

    x: int
    y: int = 0


def test_a_generic_named_tuple_is_that_of_the_standard_library() -> None:
    assert Pair[int](1, 2).right == 2
    assert Pair.__mro__[1] is tuple


def test_the_first_new_named_tuple_puts_the_function_into_the_class() -> None:
    assert not isinstance(vars(Place)["__new__"], staticmethod)
    assert (Place(1), Place(y=1, x=2)) == ((1, 0), (2, 1))
    assert isinstance(vars(Place)["__new__"], staticmethod)
    match Place(1, 2):
        case Place(x, y=2):
            assert x == 1


def test_many_threads_may_make_a_named_tuple_first() -> None:
    for _ in range(50):
        kind = Row([("a", "needed"), ("b", "optional")], [], []).make(LazyNamedTuple)
        start, found = threading.Barrier(4), []

        def use(start: threading.Barrier = start, kind: Any = kind, found: list[Any] = found) -> None:
            start.wait()
            found.append(kind(1)._replace(b=4))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [(1, 4)] * 4
