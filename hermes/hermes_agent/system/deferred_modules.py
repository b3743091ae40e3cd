"""Modules that others import and few processes use: they run when one of their names is used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder

KEPT = frozenset({"__all__", "__version__"})
"""Names with underscores that need the module; the import system asks for others of each module."""


def defer(
    name: str,
    known: Mapping[str, Callable[[], object]] | None = None,
    lent: Mapping[tuple[str, str], object] | None = None,
) -> None:
    """Make a module run when one of its names is used; one that is loaded or missing is left alone.

    Args:
        known: names that are given without the module.
        lent: what a module that takes a name at its import, and does not use it, gets in its place: by the module and
            the name. Any other module that asks for the name makes this module run.
    """
    if name in sys.modules or (spec := _find_spec(name)) is None or spec.loader is None:
        return
    module, loader, given, lock = importlib.util.module_from_spec(spec), spec.loader, known or {}, threading.RLock()
    begun: list[bool] = []

    def load(wanted: str) -> object:
        if wanted in given and not begun:
            return given[wanted]()
        if lent and not begun and (borrower := (sys._getframe(1).f_globals.get("__name__", ""), wanted)) in lent:
            return lent[borrower]
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


def _find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module, without an import of its package."""
    parent, _, _ = name.rpartition(".")
    if not parent:
        return importlib.util.find_spec(name)
    package = _find_spec(parent)
    return None if package is None else PathFinder.find_spec(name, package.submodule_search_locations)


def defer_tls() -> None:
    """Leave out TLS until its first use: 1.5 MiB of a daemon. Imports asyncio."""
    if "ssl" in sys.modules or "asyncio" in sys.modules or importlib.util.find_spec("_ssl") is None:
        return
    lent = {
        ("asyncio.base_events", "SSLSocket"): _NoSocket,  # refuses such sockets; without `ssl` there are none
        ("uvicorn.config", "PROTOCOL_TLS_SERVER"): 17,  # defaults of a server with TLS, which the daemon's is not
        ("uvicorn.config", "CERT_NONE"): 0,
    }
    defer("ssl", lent=lent)
    defer("asyncio.sslproto")
    import asyncio

    vars(asyncio).setdefault("sslproto", sys.modules["asyncio.sslproto"])


class _NodeVisitor:
    """Base of a visitor of syntax trees, with the methods of `ast.NodeVisitor`."""

    def __getattr__(self, name: str) -> object:
        import ast  # at the first look-up: that is what it is for

        return getattr(ast.NodeVisitor, name).__get__(self)


class _NoSocket:
    """No object is an instance of it."""


def defer_unused() -> None:
    """Leave out what the modules of every command import without using it; before their import."""
    for name in ("bz2", "lzma"):  # `shutil` unpacks archives with them
        if importlib.util.find_spec(f"_{name}") is not None:
            defer(name)
    defer("ipaddress")  # `urllib.parse`, and `pathlib` imports that
    defer("locale")  # `subprocess`
    defer("ast", lent={("inspect", "NodeVisitor"): _NodeVisitor})  # `inspect`, for the source of a class
    defer("tokenize")  # `inspect` and `linecache`, which lets a line of a file be missing that cannot be opened
