"""Description of the public names of modules: kind, parameters, class hierarchy, attributes.

It runs as a script in upstream's environment, which has nothing of this project, so it needs the standard library
alone. Standard input has `{module: [further names]}`, standard output gets `{module: {name: description}}`.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import json
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["describe", "describe_module", "parameters", "public_names"]

PLUMBING = frozenset({"logger", "log", "T"})
"""Names that a module has for itself, whatever their form."""


def public_names(module: types.ModuleType) -> set[str]:
    """Return the names that a module defines for others: `__all__` and what its top level assigns and defines."""
    names = set(getattr(module, "__all__", ()))
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return names
    package = hasattr(module, "__path__")
    return {name for name in names | set(_defined(tree.body, package)) if name[:1] != "_"} - PLUMBING


def _defined(body: Iterable[ast.stmt], package: bool) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.ImportFrom) and package and node.level:
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                yield from _defined(getattr(node, field, []), package)


def parameters(function: Any) -> str | None:
    """Return the parameters in short form (`a, b=, *, c=, **rest`), or None if they cannot be read."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    words: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        starred = starred or mark == "*"
        words.append(mark + parameter.name + ("=" if parameter.default is not parameter.empty else ""))
    return ", ".join(words)


def describe(value: Any) -> dict[str, Any]:
    """Return what can be compared of a value."""
    if isinstance(value, types.ModuleType):
        return {"kind": "module"}
    if isinstance(value, type):
        bases = [base.__name__ for base in value.__mro__[1:] if base is not object]
        described: dict[str, Any] = {"kind": "class", "bases": bases}
        if not issubclass(value, enum.Enum):
            described["parameters"] = parameters(value)
        described["methods"] = {
            name: parameters(found)
            for name, found in _members(value)
            if callable(found) and not isinstance(found, type)
        }
        fields = {name for name, found in _members(value) if not callable(found)}
        for base in value.__mro__:
            fields |= {name for name in vars(base).get("__annotations__", {}) if name[0] != "_"}
        described["attributes"] = sorted(fields)
        return described
    if inspect.iscoroutinefunction(value):
        return {"kind": "async function", "parameters": parameters(value)}
    if inspect.isroutine(value) or isinstance(value, functools.partial) or hasattr(value, "__wrapped__"):
        return {"kind": "function", "parameters": parameters(value)}
    if isinstance(value, re.Pattern):
        return {"kind": "Pattern"}
    return {"kind": type(value).__name__}


def _members(value: type) -> Iterator[tuple[str, Any]]:
    for name in sorted({name for base in value.__mro__ if base is not object for name in vars(base)}):
        if name[0] != "_":
            try:
                yield name, inspect.getattr_static(value, name) if name in ("mro",) else getattr(value, name)
            except AttributeError:
                continue


def describe_module(name: str, further: Iterable[str]) -> dict[str, Any] | None:
    """Return the descriptions by name, or None if there is no such module."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    found: dict[str, Any] = {}
    for given in sorted(public_names(module) | set(further)):
        try:
            value = getattr(module, given)
        except AttributeError:
            continue
        found[given] = describe(value)
    return found


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    sys.stdin = open("/dev/null")  # noqa: SIM115  a module may read it while it is imported
    result = {name: described for name in sorted(asked) if (described := describe_module(name, asked[name]))}
    sys.stdout.write(json.dumps(result))
