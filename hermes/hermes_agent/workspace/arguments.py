"""Read the arguments of a tool call; what is wrong with one is said in words that the model can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.core.errors import ToolFailed

__all__ = ["parse_choice", "parse_text", "parse_number"]


def parse_text(args: Mapping[str, Any], name: str, *, default: str | None = None, may_be_empty: bool = False) -> str:
    """Return a text argument.

    Args:
        default: taken when the argument is absent or null; None means that it is required.

    Raises:
        ToolFailed: it is missing, empty, not text, or holds a NUL character.
    """
    value = args.get(name)
    if value is None:
        if default is None:
            raise ToolFailed(f"`{name}` is missing")
        return default
    if not isinstance(value, str):
        raise ToolFailed(f"`{name}` is {repr(value)[:100]}: expected a string")
    if not value and not may_be_empty:
        raise ToolFailed(f"`{name}` is empty")
    if "\0" in value and not may_be_empty:
        raise ToolFailed(f"`{name}` holds a NUL character")
    return value


def parse_number(args: Mapping[str, Any], name: str, *, default: int, least: int, most: int | None = None) -> int:
    """Return a whole number; what is over `most` counts as `most`.

    Raises:
        ToolFailed: it is not a whole number, or less than `least`.
    """
    value = args.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ToolFailed(f"`{name}` is {repr(value)[:100]}: expected a whole number")
    if value < least:
        raise ToolFailed(f"`{name}` is {value}: expected {least} or more")
    return value if most is None else min(value, most)


def parse_choice(args: Mapping[str, Any], name: str, among: Sequence[str]) -> str:
    """Return one of `among`, by default the first.

    Raises:
        ToolFailed: it is none of them.
    """
    value = args.get(name)
    if value is None or value == "":
        return among[0]
    if value not in among:
        raise ToolFailed(f"`{name}` is {repr(value)[:100]}: expected one of {', '.join(among)}")
    return str(value)
