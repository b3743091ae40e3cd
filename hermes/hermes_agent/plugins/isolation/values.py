"""Values between the agent and the process of a plugin: plain data and references.

Nothing of the other side is executed while a value is read: classes are those of `DATA_MODULES` alone, and a function
or an object becomes a reference, which `Exchange` resolves. An object of the agent that is no plain data reaches the
plugin as a `HostPlaceholder`.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import dataclasses
import datetime
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Protocol

from hermes_agent.core.calls import parameters_of
from hermes_agent.core.lazy_types import LazyNamedTuple

KIND = "$"
"""Key that marks a value that JSON lacks."""
MAX_DEPTH = 64
DATA_MODULES = (
    "hermes_agent.contracts.",
    "hermes_agent.core.messages",
    "hermes_agent.cron.current_run",
    "hermes_agent.plugins.isolation.passed_files",
    "hermes_agent.plugins.llm_types",
    "hermes_agent.plugins.subagent_lifecycle",
)
"""Modules with classes of plain data that both sides know."""
ERROR_MODULES = (*DATA_MODULES, "hermes_agent.core.errors", "hermes_agent.plugins.isolation.values")


class PluginHostUnsupported(RuntimeError):
    """The plugin runs in a process of its own, where this is not possible."""


class UnusableValue(ValueError):
    """A value that cannot be sent, or a message that cannot be read."""


class HostPlaceholder:
    """Stands for an object of the agent that stays in the agent's process."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"`{self._name}` stays in the process of the agent: a plugin in a process of its own has no `{name}` of it"
        )

    def __repr__(self) -> str:
        return f"<{self._name}, in the process of the agent>"


class FunctionShape(LazyNamedTuple):
    """What the caller of a function sees of it."""

    name: str
    parameters: list[list[Any]] | None
    """Name, kind and whether it has a default, of each parameter; None if they are unknown."""
    is_async: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionShape:
        """Return the shape of a function."""
        parameters = parameters_of(function)
        shown = None
        if parameters is not None:
            shown = [[p.name, int(p.kind), p.default is not p.empty] for p in parameters]
        name = str(getattr(function, "__name__", "") or type(function).__name__)
        call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
        return cls(name, shown, inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call))

    @classmethod
    def read(cls, value: Any) -> FunctionShape:
        """Return the shape in a message.

        Raises:
            UnusableValue: it is none.
        """
        try:
            name, shown, is_async = value
            parameters = None if shown is None else [[str(n), int(k), bool(d)] for n, k, d in shown]
        except (TypeError, ValueError) as exc:
            raise UnusableValue(f"a function is described by {value!r:.200}") from exc
        return cls(str(name), parameters, bool(is_async))

    def signature(self, *, is_method: bool = False) -> inspect.Signature | None:
        """Return the signature, or None if it is unknown."""
        if self.parameters is None:
            return None
        empty = inspect.Parameter.empty
        shown = [
            inspect.Parameter(name, inspect._ParameterKind(kind), default=None if has_default else empty)
            for name, kind, has_default in self.parameters
        ]
        try:
            return inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *shown]
                                     if is_method else shown)  # fmt: skip
        except ValueError:
            return None


class ValueExchange(Protocol):
    """The tables of references of one side."""

    def export(self, value: Any) -> dict[str, Any] | None:
        """Return the reference of a function or object of this side, or None if it is not passed on."""
        ...

    def resolve(self, reference: Mapping[str, Any]) -> Any:
        """Return the object of a reference of either side.

        Raises:
            UnusableValue: it does not exist.
        """
        ...


def encode(value: Any, exchange: ValueExchange, depth: int = 0) -> Any:
    """Return a value in JSON types.

    Raises:
        UnusableValue: it is nested too deeply.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if depth > MAX_DEPTH:
        raise UnusableValue(f"a value is nested more than {MAX_DEPTH} deep")
    deeper = depth + 1
    if isinstance(value, Enum | tuple) or dataclasses.is_dataclass(value):
        data = _encode_data(value, exchange, deeper)
        if data is not None:
            return data
    if isinstance(value, Enum):
        return encode(value.value, exchange, deeper)
    if isinstance(value, Mapping):
        return _encode_mapping(value, exchange, deeper)
    if isinstance(value, list):
        return [encode(each, exchange, deeper) for each in value]
    if isinstance(value, tuple | set | frozenset):
        return {KIND: "tuple" if isinstance(value, tuple) else "set", "v": [encode(e, exchange, deeper) for e in value]}
    if (single := _encode_single(value)) is not None:
        return single
    if inspect.isgenerator(value) or (isinstance(value, Iterator) and not callable(value)):
        return [encode(each, exchange, deeper) for each in value]
    reference = exchange.export(value)
    return {KIND: "held", "n": type(value).__name__} if reference is None else reference


def _encode_single(value: Any) -> Any:
    """Return a value without parts in JSON types, or None if it is none."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {KIND: "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, PurePath):
        return {KIND: "path", "v": str(value)}
    if isinstance(value, datetime.datetime):
        return {KIND: "time", "v": value.isoformat()}
    return next((plain(value) for plain in (str, bool, int, float) if isinstance(value, plain)), None)


def _encode_mapping(value: Mapping[Any, Any], exchange: ValueExchange, depth: int) -> dict[str, Any]:
    items = dict(value)
    if KIND not in items and all(type(key) is str for key in items):
        return {key: encode(each, exchange, depth) for key, each in items.items()}
    return {KIND: "map", "v": [[encode(k, exchange, depth), encode(v, exchange, depth)] for k, v in items.items()]}


def _encode_data(value: Any, exchange: ValueExchange, depth: int) -> dict[str, Any] | None:
    """Return the fields of an object of a class that both sides know, or None for any other."""
    if isinstance(value, type):
        return None
    known = next((cls for cls in type(value).__mro__ if _is_known(cls)), None)
    if known is None:
        return None
    name = f"{known.__module__}:{known.__qualname__}"
    if isinstance(value, Enum):
        return {KIND: "enum", "c": name, "v": value.value}
    if isinstance(value, tuple):
        fields = list(getattr(value, "_fields", ()))
    else:
        fields = [f.name for f in dataclasses.fields(value) if f.init]
    return {KIND: "data", "c": name, "v": {f: encode(getattr(value, f, None), exchange, depth) for f in fields}}


def _is_known(cls: type) -> bool:
    is_data = dataclasses.is_dataclass(cls) or issubclass(cls, Enum) or hasattr(cls, "_fields")
    return is_data and f"{cls.__module__}".startswith(DATA_MODULES)


def decode(value: Any, exchange: ValueExchange) -> Any:
    """Return the value of JSON types.

    Raises:
        UnusableValue: it names something that does not exist.
    """
    if isinstance(value, list):
        return [decode(each, exchange) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(KIND)
    if kind is None:
        return {key: decode(each, exchange) for key, each in value.items()}
    try:
        return _decode_marked(str(kind), value, exchange)
    except UnusableValue:
        raise
    except Exception as exc:
        raise UnusableValue(f"a value of kind {kind!r} cannot be read: {type(exc).__name__}: {exc}") from exc


def _decode_marked(kind: str, value: Mapping[str, Any], exchange: ValueExchange) -> Any:
    given = value.get("v")
    match kind:
        case "tuple":
            return tuple(decode(each, exchange) for each in given or ())
        case "set":
            return {decode(each, exchange) for each in given or ()}
        case "bytes":
            return base64.b64decode(str(given), validate=True)
        case "path":
            return Path(str(given))
        case "time":
            return datetime.datetime.fromisoformat(str(given))
        case "map":
            return {decode(k, exchange): decode(v, exchange) for k, v in given or ()}
        case "held":
            return HostPlaceholder(str(value.get("n")))
        case "enum":
            return _data_class(str(value.get("c")))(given)
        case "data":
            fields = {str(name): decode(each, exchange) for name, each in (given or {}).items()}
            return _data_class(str(value.get("c")))(**fields)
        case _:
            return exchange.resolve(value)


def _data_class(name: str) -> type[Any]:
    module, _, qualname = name.partition(":")
    if not module.startswith(DATA_MODULES) or "." in qualname:
        raise UnusableValue(f"class {name!r} is not passed on")
    found = getattr(importlib.import_module(module), qualname, None)
    if not isinstance(found, type) or not _is_known(found):
        raise UnusableValue(f"{name!r} is no class of plain data")
    return found


def describe_error(exc: BaseException) -> dict[str, str]:
    """Return the class and the text of an exception."""
    text = str(exc.args[0]) if isinstance(exc, KeyError) and exc.args else str(exc)
    return {"type": type(exc).__name__, "module": type(exc).__module__, "text": text}


def make_error(described: Mapping[str, Any]) -> Exception:
    """Return the exception that the other side described.

    A class that this side does not know becomes one of the same name below `RuntimeError`.
    """
    name, text = str(described.get("type")), str(described.get("text"))
    module = str(described.get("module"))
    found: Any = None
    if module == "builtins":
        found = getattr(builtins, name, None)
    elif module.startswith(ERROR_MODULES):
        with contextlib.suppress(ImportError):  # the plugin may name anything
            found = getattr(importlib.import_module(module), name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        found = type(name if name.isidentifier() else "PluginError", (RuntimeError,), {})
    try:
        made = found(text)
    except Exception:  # noqa: BLE001 - a class with other arguments
        made = RuntimeError(f"{name}: {text}")
    return made if isinstance(made, Exception) else RuntimeError(text)
