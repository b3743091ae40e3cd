"""Calls of plugin functions that may take fewer arguments than this release offers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

_BY_KEYWORD = ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
_TAKES_MORE, _TAKES_KEYWORDS = 4, 8
"""The flags of code with `*more` and with `**named` (`inspect.CO_VARARGS`, `inspect.CO_VARKEYWORDS`)."""
_BY_POSITION = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")


def parameters_of(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...] | None:
    """Return the parameters of a function, or None if its signature is unknown (some built-in functions)."""
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def keywords_of(function: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """Return the keywords that a function names, and whether it takes others; all without a signature."""
    if (plain := _code_of(function)) is not None:
        named = plain.co_argcount + plain.co_kwonlyargcount
        return frozenset(plain.co_varnames[plain.co_posonlyargcount : named]), bool(plain.co_flags & _TAKES_KEYWORDS)
    parameters = parameters_of(function)
    if parameters is None:
        return frozenset(), True
    names = frozenset(p.name for p in parameters if p.kind.name in _BY_KEYWORD)
    return names, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    """Return the code of a function in Python that shows its own parameters; None for others."""
    if type(function) is not FunctionType or function.__dict__:  # the latter may say which signature it shows
        return None
    return function.__code__


def supported(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offered keywords that a function takes."""
    names, takes_any = keywords_of(function)
    return {name: value for name, value in offered.items() if takes_any or name in names}


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has this parameter or takes any keyword; False without a signature."""
    parameters = parameters_of(function) or ()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def required_arguments(function: Callable[..., Any]) -> int | None:
    """Return the number of required positional arguments of a function, or None without a signature."""
    parameters = parameters_of(function)
    if parameters is None:
        return None
    return sum(p.kind.name in _BY_POSITION and p.default is p.empty for p in parameters)


def takes_positional(function: Callable[..., Any]) -> bool:
    """Return whether a function takes a positional argument; True without a signature."""
    if (plain := _code_of(function)) is not None:
        return bool(plain.co_argcount or plain.co_flags & _TAKES_MORE)
    parameters = parameters_of(function)
    return parameters is None or any(p.kind.name in (*_BY_POSITION, "VAR_POSITIONAL") for p in parameters)


def overrides(value: object, base: type, method: str) -> bool:
    """Return whether the class of an object has a method that is not the one of `base`."""
    own = getattr(type(value), method, None)
    return own is not None and own is not getattr(base, method)


def call_supported(
    function: Callable[..., Any], positional: Iterable[tuple[str, Any]] = (), optional: Mapping[str, Any] | None = None
) -> Any:
    """Call a function with all positional arguments and with the optional ones that it takes.

    Args:
        positional: name and value; given by keyword where the function takes them only so.
    """
    leading = tuple(positional)
    parameters = parameters_of(function)
    if parameters is None:
        return function(*(value for _, value in leading))
    only_by_name = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    by_name = {p.name for p in parameters if p.kind.name in _BY_KEYWORD}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {name: value for name, value in leading if name in only_by_name}
    values = [value for name, value in leading if name not in named]
    filled = {p.name for p in [p for p in parameters if p.kind.name in _BY_POSITION][: len(values)]}
    taken = {n: v for n, v in (optional or {}).items() if (takes_any or n in by_name) and n not in filled}
    return function(*values, **named, **taken)
