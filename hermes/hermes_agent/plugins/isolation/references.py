"""Functions and objects of the other side, and those that this side lends.

`Exchange` keeps what the other side may call, by key. The keys of declared registrations are made from the names of the
registrations, so that they are the same after a restart of the plugin's process; other keys are numbers, and end with
the call or the object for which they were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Protocol

from hermes_agent.contracts.context_engine import ContextEngine
from hermes_agent.contracts.memory import MemoryProvider
from hermes_agent.plugins.host_services import KINDS
from hermes_agent.plugins.isolation.passed_files import USES, AgentFiles, HostedFiles
from hermes_agent.plugins.isolation.peer import CallTarget
from hermes_agent.plugins.isolation.values import KIND, FunctionShape, UnusableValue, decode, encode

STATEFUL = (ContextEngine, MemoryProvider)
"""Contracts with methods that change attributes: also inherited methods run where the object is."""
SET = "="
"""First character of the method of a target that sets an attribute."""


class CallOther(Protocol):
    """Calls of the other side."""

    def __call__(self, target: CallTarget, args: Any, kwargs: Any, /) -> Any:
        """Call the other side with encoded arguments and return the encoded result."""
        ...


class Exchange:
    """The references of one side.

    Args:
        call: calls the other side.
        drop: tells the other side that this side needs an object no longer.
        lends_objects: whether objects that are no plain data are lent; only the process of a plugin does.
        mark: differs between the processes of a plugin, so that no key means another object after a restart.
    """

    def __init__(self, call: CallOther, drop: Callable[[str], object], *, lends_objects: bool, mark: str = "") -> None:
        self._call, self._drop, self._lends_objects, self.mark = call, drop, lends_objects, mark
        self._held: dict[str, Any] = {}
        self._sent: dict[str, dict[str, Any]] = {}
        """The attributes of a lent object that the other side has."""
        self._numbers = itertools.count(1)
        self._local = threading.local()

    # -- lending ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """Make lasting keys from a name within the context, the same ones for the same name."""
        before = getattr(self._local, "naming", None)
        self._local.naming = (name, itertools.count())
        try:
            yield
        finally:
            self._local.naming = before

    @contextlib.contextmanager
    def for_a_call(self) -> Iterator[None]:
        """Lend what is encoded within the context until its end."""
        before = getattr(self._local, "lent", None)
        lent: list[str] = []
        self._local.lent = lent
        try:
            yield
        finally:
            self._local.lent = before
            for key in lent:
                self.release(key)

    def export(self, value: Any) -> dict[str, Any] | None:
        """Return the reference of a function or object, or None if it is not passed on."""
        known = getattr(value, "isolated_key", None) if not isinstance(value, type) else None
        if isinstance(known, tuple) and known[0] is self:
            return {KIND: "own", "k": known[1]}
        if isinstance(value, type | ModuleType):
            return None
        if callable(value) and not self._is_object(value):
            return {KIND: "fn", "k": self._hold(value), "s": list(FunctionShape.of(value))}
        if not self._lends_objects:
            return None
        key = self._hold(value)
        shown = self._describe(value)
        self._sent[key] = shown["at"]
        return {KIND: "obj", "k": key, "o": shown}

    @staticmethod
    def _is_object(value: Any) -> bool:
        return any(isinstance(value, kind.contract) for kind in KINDS.values())

    def _hold(self, value: Any) -> str:
        naming = getattr(self._local, "naming", None)
        if naming is not None:
            key = f"{naming[0]}#{next(naming[1])}"
        else:
            key = f"~{self.mark}{next(self._numbers)}"
            if (lent := getattr(self._local, "lent", None)) is not None:
                lent.append(key)
        self._held[key] = value
        return key

    def hold(self, key: str, value: Any) -> None:
        """Lend an object under a key permanently."""
        self._held[key] = value

    def release(self, key: str) -> None:
        """Lend an object no longer."""
        self._held.pop(key, None)
        self._sent.pop(key, None)

    def held(self, key: str) -> Any:
        """Return a lent object.

        Raises:
            UnusableValue: nothing is lent under the key.
        """
        try:
            return self._held[key]
        except KeyError:
            raise UnusableValue(f"`{key}` is not registered any more") from None

    def _describe(self, value: Any) -> dict[str, Any]:
        """Return the kind, methods and attributes of an object."""
        kind = _kind_of(value)
        contract: type = KINDS[kind].contract if kind else object
        everything = isinstance(value, STATEFUL)
        methods = {}
        for name in dir(type(value)):
            found = getattr(type(value), name)
            own = everything or found is not getattr(contract, name, None)
            if not name.startswith("_") and own and inspect.isroutine(found):
                methods[name] = list(FunctionShape.of(getattr(value, name)))
        return {
            "kind": kind,
            "class": type(value).__name__,
            "methods": methods,
            "at": self._attributes(value, contract),
        }

    def _attributes(self, value: Any, contract: type) -> dict[str, Any]:
        """Return the public attributes that are plain data, encoded."""
        everything = isinstance(value, STATEFUL)
        names = [n for n in (*dir(type(value)), *getattr(value, "__dict__", ())) if not n.startswith("_")]
        found: dict[str, Any] = {}
        for name in dict.fromkeys(names):
            static = inspect.getattr_static(type(value), name, None)
            inherited = name not in getattr(value, "__dict__", {}) and static is inspect.getattr_static(
                contract, name, 0
            )
            if inspect.isroutine(static) or isinstance(static, type) or (inherited and not everything):
                continue
            try:
                given = getattr(value, name)
                if _is_plain(given):
                    found[name] = encode(given, self)
            except Exception:  # noqa: BLE001 - a property of the plugin: the object goes without it
                continue
        return found

    # -- what the other side calls ---------------------------------------------------------------------------------

    def serve(self, target: CallTarget, args: Any, kwargs: Any, run: Callable[[Callable[[], Any]], Any]) -> Any:
        """Call a lent function, or a method of a lent object, and return the encoded result.

        Args:
            run: calls a function and awaits a coroutine.
        """
        value = self.held(target.key)
        given = [decode(each, self) for each in args]
        named = {str(name): decode(each, self) for name, each in dict(kwargs).items()}
        if not target.method:
            return self._encode_result(run(partial(value, *given, **named)))
        if target.key not in self._sent:
            raise UnusableValue(f"`{target.key}` has no methods")
        if target.method.startswith(SET):
            setattr(value, target.method[1:], given[0])
            result = None
        elif target.method.startswith("_"):
            raise UnusableValue(f"method `{target.method}` is not called from outside")
        elif (use := USES.get((_kind_of(value), target.method))) is not None:
            files = HostedFiles(use)
            with files.unpacked(given, named) as (given, named):
                done = run(partial(getattr(value, target.method), *given, **named))
                result = self._encode_result(files.pack(done))
        else:
            result = self._encode_result(run(partial(getattr(value, target.method), *given, **named)))
        kind = next((spec.contract for spec in KINDS.values() if isinstance(value, spec.contract)), object)
        present, before = self._attributes(value, kind), self._sent[target.key]
        changed = {name: each for name, each in present.items() if name not in before or before[name] != each}
        self._sent[target.key] = present
        return {"r": result, "at": changed}

    def _encode_result(self, value: Any) -> Any:
        return encode(value, self)

    # -- what the other side lends ---------------------------------------------------------------------------------

    def resolve(self, reference: Mapping[str, Any]) -> Any:
        """Return the function or object of a reference.

        Raises:
            UnusableValue: it does not exist.
        """
        key = str(reference.get("k"))
        match reference.get(KIND):
            case "own":
                return self.held(key)
            case "fn":
                return self.function(CallTarget(key), FunctionShape.read(reference.get("s")))
            case "obj" if not self._lends_objects:
                return self._object(key, reference.get("o") or {})
        raise UnusableValue(f"a reference of kind {reference.get(KIND)!r} is unknown")

    def function(self, target: CallTarget, shape: FunctionShape) -> Callable[..., Any]:
        """Return a function that calls a function of the other side."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(target, args, kwargs)

        made: Callable[..., Any] = call
        if shape.is_async:

            async def call_async(*args: Any, **kwargs: Any) -> Any:
                return await asyncio.to_thread(self.call, target, args, kwargs)

            made = call_async
        _show(made, shape)
        made.isolated_key = (self, target.key)  # type: ignore[attr-defined]
        return made

    def call(self, target: CallTarget, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call the other side and return its result; what the arguments lend ends with the call."""
        with self.for_a_call():
            given = [encode(each, self) for each in args]
            named = {name: encode(each, self) for name, each in kwargs.items()}
            return decode(self._call(target, given, named), self)

    def _object(self, key: str, shown: Mapping[str, Any]) -> Any:
        methods = {str(name): FunctionShape.read(each) for name, each in dict(shown.get("methods") or {}).items()}
        attributes = {str(name): decode(each, self) for name, each in dict(shown.get("at") or {}).items()}
        kind = KINDS.get(str(shown.get("kind")))
        bases: tuple[type, ...] = (LentObject,) if kind is None else (LentObject, kind.contract)
        members: dict[str, Any] = {
            name: property(partial(_read, name), partial(_write, name))
            for name in attributes
            if name.isidentifier() and not name.startswith("_")
        }
        members |= {n: _method(n, s) for n, s in methods.items() if n.isidentifier() and not n.startswith("_")}
        made = type(str(shown.get("class") or "Lent"), bases, members)
        made.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # a property that is no plain data is missing
        value: Any = object.__new__(made)
        value.__dict__.update(isolated_key=(self, key), isolated_attributes=attributes)
        value.__dict__["isolated_kind"] = "" if kind is None else kind.kind.name
        if key.startswith("~"):
            weakref.finalize(value, self._drop, key)
        return value


class LentObject:
    """An object of the plugin's process, as the agent sees it."""

    isolated_key: tuple[Exchange, str]
    isolated_attributes: dict[str, Any]
    isolated_kind: str

    def isolated_call(self, method: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a method of the object, and take the attributes that it changed."""
        exchange, key = self.isolated_key
        use = USES.get((self.isolated_kind, method))
        files = None if use is None else AgentFiles(use)
        if files is not None:
            args, kwargs = files.pack(args, kwargs)
        with exchange.for_a_call():
            given = [encode(each, exchange) for each in args]
            named = {name: encode(each, exchange) for name, each in kwargs.items()}
            answer = exchange._call(CallTarget(key, method), given, named)
        if not isinstance(answer, Mapping):
            raise UnusableValue(f"`{method}` of {key} answered {answer!r:.100}")
        for name, value in dict(answer.get("at") or {}).items():
            self.isolated_attributes[str(name)] = decode(value, exchange)
        result = decode(answer.get("r"), exchange)
        return result if files is None else files.unpack(result)


def _read(name: str, value: LentObject) -> Any:
    return value.isolated_attributes[name]


def _write(name: str, value: LentObject, given: Any) -> None:
    value.isolated_call(SET + name, (given,), {})
    value.isolated_attributes[name] = given


def _method(name: str, shape: FunctionShape) -> Callable[..., Any]:
    def call(self: LentObject, *args: Any, **kwargs: Any) -> Any:
        return self.isolated_call(name, args, kwargs)

    made: Callable[..., Any] = call
    if shape.is_async:

        async def call_async(self: LentObject, *args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(self.isolated_call, name, args, kwargs)

        made = call_async
    _show(made, shape, is_method=True)
    return made


def _show(made: Callable[..., Any], shape: FunctionShape, *, is_method: bool = False) -> None:
    made.__name__ = made.__qualname__ = shape.name
    if (signature := shape.signature(is_method=is_method)) is not None:
        made.__signature__ = signature  # type: ignore[attr-defined]


def _kind_of(value: Any) -> str:
    """Return the name of the kind of a provider, or "" for another object."""
    return next((name for name, spec in KINDS.items() if isinstance(value, spec.contract)), "")


def _is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, str | bool | int | float | bytes):
        return True
    if depth > 6:
        return False
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_plain(v, depth + 1) for k, v in value.items())
    return isinstance(value, list | tuple | set | frozenset) and all(_is_plain(each, depth + 1) for each in value)
