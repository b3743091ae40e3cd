"""Describe what was registered in the words of the oracle."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "answer",
    "callback",
    "cli_tree",
    "extra_public",
    "overrides",
    "plain",
    "schema_sha",
    "signature",
    "text_sha",
]

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
LONGEST = 400
"""The oracle cuts a signature there, in characters."""


def schema_sha(schema: Any) -> str:
    """Return the first 16 digits of the schema's SHA-256."""
    return text_sha(json.dumps(schema, sort_keys=True, ensure_ascii=False))


def text_sha(text: str) -> str:
    """Return the first 16 digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def signature(function: Any) -> str:
    """Return the signature as text; a question mark where there is none."""
    try:
        return ADDRESS.sub("", str(inspect.signature(function)))[:LONGEST]
    except (TypeError, ValueError):
        return "?"


def callback(function: Any) -> dict[str, Any] | None:
    """Describe a callable: module, name, parameters."""
    if function is None:
        return None
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {
        "is_async": inspect.iscoroutinefunction(function),
        "module": getattr(function, "__module__", None),
        "name": getattr(function, "__qualname__", type(function).__qualname__),
        "params": [stars.get(p.kind, "") + p.name for p in parameters],
        "signature": signature(function),
    }


def answer(question: Callable[[], Any]) -> list[Any]:
    """Return what a call answers and what it raises, one of them None."""
    try:
        return [plain(question()), None]
    except Exception as exc:
        return [None, f"{type(exc).__name__}: {exc}"]


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def overrides(cls: type, base: type) -> list[str]:
    """Return the names of `base` that `cls` itself defines."""
    own = (n for n in vars(cls) if not n.startswith("__") and hasattr(base, n))
    return sorted(n for n in own if vars(cls)[n] is not inspect.getattr_static(base, n))


def extra_public(cls: type, base: type) -> list[str]:
    """Return the public names that `cls` itself defines and `base` lacks."""
    return sorted(n for n in vars(cls) if not n.startswith("_") and not hasattr(base, n))


def cli_tree(setup: Callable[[argparse.ArgumentParser], Any]) -> tuple[dict[str, Any], str | None]:
    """Return the tree of the parser that `setup` fills, and its error."""
    parser = argparse.ArgumentParser()
    error = answer(lambda: setup(parser) and None)[1]
    return _tree(parser), error


def _tree(parser: argparse.ArgumentParser) -> dict[str, Any]:
    options: list[str] = []
    positionals: list[str] = []
    sub: dict[str, Any] | None = None
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            sub = {name: _tree(child) for name, child in sorted(action.choices.items())}
        elif isinstance(action, argparse._HelpAction):
            continue
        elif action.option_strings:
            options.append(action.option_strings[-1])
        else:
            positionals.append(action.dest)
    return {"options": sorted(options), "positionals": positionals} | ({} if sub is None else {"sub": sub})
