"""Stand-ins for names of upstream that are not served, so that a file's other tests can run.

A test that uses a stand-in leans on upstream's structure: each use raises `PrivateStructureError` with the name.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn


class PrivateStructureError(Exception):
    """Use of a name that is not served; the text is the name."""


class StandIn:
    """Object in place of a name that is not served."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise PrivateStructureError(object.__getattribute__(self, "_name"))

    __call__ = __iter__ = __len__ = __bool__ = __contains__ = __getitem__ = __setitem__ = __delitem__ = _refuse
    __enter__ = __exit__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __or__ = _refuse
    __setattr__ = __delattr__ = __hash__ = __str__ = __mro_entries__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("__wrapped__", "__test__", "pytestmark", "__file__", "__dict__", "__name__"):
            raise AttributeError(name)  # pytest asks each name of a file for these
        self._refuse()

    def __repr__(self) -> str:
        return f"<stand-in for {object.__getattribute__(self, '_name')}>"


class StandInModule(ModuleType):
    """Module that is not served; each of its names is a stand-in."""

    __path__ = ()  # type: ignore[assignment]  # a package without files

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, ModuleType) and not name.startswith("__"):
            raise PrivateStructureError(f"{self.__name__}.{name}")
        super().__setattr__(name, value)


def install(file: Path, reserved: frozenset[str]) -> None:
    """Serve a stand-in for each name that a file imports from a reserved package and does not get."""
    for module, names in _imports(ast.parse(file.read_text(encoding="utf-8"))):
        if module.partition(".")[0] not in reserved:
            continue
        owner = _imported(module)
        for name in names:
            full = f"{module}.{name}"
            if isinstance(owner, StandInModule) or hasattr(owner, name) or _exists(full):
                continue
            vars(owner)[name] = StandIn(full)


def _imports(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, [alias.name for alias in node.names if alias.name != "*"]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []


def _exists(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _imported(name: str) -> ModuleType:
    """Return a module; a stand-in if it is not served."""
    parent, _, last = name.rpartition(".")
    above = _imported(parent) if parent else None
    try:
        return importlib.import_module(name)
    except ImportError:
        module = sys.modules[name] = StandInModule(name)
        if above is not None:
            vars(above)[last] = module
        return module
