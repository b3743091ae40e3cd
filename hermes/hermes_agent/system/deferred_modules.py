"""Modules that others import and few processes use: they run when one of their names is used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, MethodType
from typing import Any

COROUTINE = 0x80
"""The flag of a coroutine function's code (`inspect.CO_COROUTINE`)."""
KEPT = frozenset({"__all__", "__version__"})
"""Names with underscores that need the module; the import system asks for others of each module."""


def defer(
    name: str, known: Mapping[str, Callable[[], object]] | None = None, then: Callable[[], object] | None = None
) -> None:
    """Make a module run when one of its names is used; one that is loaded or missing is left alone.

    Args:
        known: names that are given without the module.
        then: called after the module ran.
    """
    if name in sys.modules or (spec := _find_spec(name)) is None or spec.loader is None:
        return
    module, loader, given, lock = importlib.util.module_from_spec(spec), spec.loader, known or {}, threading.RLock()
    begun: list[bool] = []

    def load(wanted: str) -> object:
        if wanted in given and not begun:
            return given[wanted]()
        if wanted.startswith("__") and wanted not in KEPT:
            raise AttributeError(wanted)
        with lock:  # another thread waits until all of the module is there
            if not begun:
                begun.append(True)
                try:
                    loader.exec_module(module)
                except BaseException:
                    begun.clear()
                    raise
                if vars(module).get("__getattr__") is load:
                    del vars(module)["__getattr__"]
                if then is not None:
                    then()
        try:
            return vars(module)[wanted]
        except KeyError:
            raise AttributeError(f"module {name!r} has no attribute {wanted!r}", name=wanted, obj=module) from None

    vars(module)["__getattr__"] = load
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)


def is_deferred(name: str) -> bool:
    """Return whether a module waits for its first use."""
    module = sys.modules.get(name)
    return getattr(vars(module).get("__getattr__"), "__module__", "") == __name__ if module is not None else False


def run_now(name: str) -> Any:
    """Return a module that has run, for what stands in for one of its names."""
    module = importlib.import_module(name)
    getattr(module, "__all__", ())
    return module


def _find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module, without an import of its package."""
    parent, _, _ = name.rpartition(".")
    if not parent:
        return importlib.util.find_spec(name)
    package = _find_spec(parent)
    return None if package is None else PathFinder.find_spec(name, package.submodule_search_locations)


def defer_unused() -> None:
    """Leave out what the modules of every command import without using it; before their import."""
    for name in ("bz2", "lzma"):  # `shutil` unpacks archives with them
        if importlib.util.find_spec(f"_{name}") is not None:
            defer(name)
    defer("ipaddress")  # `urllib.parse`, and `pathlib` imports that
    defer("locale")  # `subprocess`
    # `dataclasses` and `asyncio` import it, and it `ast` and `dis`: 1.3 MiB
    defer("inspect", {"iscoroutinefunction": lambda: _is_coroutine_function, "signature": lambda: _signature})


def _is_coroutine_function(function: object) -> bool:
    """Answer for plain functions, which an event loop asks about each handler of a signal."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if type(plain) is FunctionType and not plain.__dict__:
        return bool(plain.__code__.co_flags & COROUTINE)
    return bool(run_now("inspect").iscoroutinefunction(function))


def _signature(function: Any, **named: Any) -> object:
    """Return the signature of a function; of a class of h11, which is asked for a docstring alone, none.

    Raises:
        ValueError: it is a class of h11; `dataclasses` then takes its name.
    """
    if isinstance(function, type) and function.__module__ == "h11._events":
        raise ValueError("left out")
    return run_now("inspect").signature(function, **named)


def defer_tls() -> None:
    """Leave out TLS until its first use: 1.5 MiB of a daemon, and 20 ms of its start; imports asyncio.

    asyncio refuses sockets of `ssl`, and would load that module to recognize them. Without it there are none.
    """
    if "ssl" in sys.modules or "asyncio" in sys.modules or importlib.util.find_spec("_ssl") is None:
        return
    constants = {"CERT_NONE": lambda: 0, "PROTOCOL_TLS_SERVER": lambda: 17}  # uvicorn's defaults
    defer("ssl", constants, _return_tls)
    defer("asyncio.sslproto")
    import asyncio

    vars(asyncio)["sslproto"] = sys.modules["asyncio.sslproto"]
    if is_deferred("ssl"):
        vars(asyncio.base_events)["ssl"] = None


def _return_tls() -> None:
    if "asyncio.base_events" in sys.modules:
        vars(sys.modules["asyncio.base_events"])["ssl"] = sys.modules["ssl"]
