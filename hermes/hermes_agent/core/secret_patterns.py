"""Check of the patterns that plugins add to the masking of secrets. Source: contract of 0.23 §6.7.

A pattern runs over every text that is shown or stored, so it must find its place quickly and may not take
exponential time: it begins with literal characters and has no nested unbounded repetition.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger(__name__)

LEADING_LITERALS = 2
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def compile_secret_pattern(text: object, owner: str) -> re.Pattern[str] | None:
    """Return the compiled pattern, or None, with a warning, if it cannot be used.

    Args:
        owner: who adds the pattern, for the log.
    """
    problem = ""
    if not isinstance(text, str):
        problem = f"it is {type(text).__name__}: expected text"
    else:
        try:
            compiled = re.compile(text)
            problem = _find_problem(text)
        except (re.error, RecursionError, OverflowError) as exc:
            problem = f"it does not compile: {exc}"
    if problem:
        logger.warning("redaction pattern %r of %s is skipped: %s", text, owner, problem)
        return None
    return compiled


def _find_problem(text: str) -> str:
    from re import _parser as parser  # type: ignore[attr-defined]  # few plugins add patterns

    if _has_top_level_alternation(text):
        return "it has an alternation at its top level"
    items = list(parser.parse(text))
    if len(items) < LEADING_LITERALS or any(str(op) != "LITERAL" for op, _ in items[:LEADING_LITERALS]):
        return f"it does not begin with {LEADING_LITERALS} literal characters"
    if _has_nested_repeat(items, inside=False):
        return "it nests unbounded repetitions"
    return ""


def _has_top_level_alternation(text: str) -> bool:
    depth, in_set, escaped = 0, False, False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif in_set:
            in_set = character != "]"
        elif character == "[":
            in_set = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            return True
    return False


def _has_nested_repeat(items: Iterable[tuple[Any, Any]], *, inside: bool) -> bool:
    for operation, argument in items:
        unbounded = str(operation) in _REPEATS and int(argument[1]) > 10_000
        if unbounded and inside:
            return True
        if any(_has_nested_repeat(part, inside=inside or unbounded) for part in _parts(argument)):
            return True
    return False


def _parts(argument: Any) -> Iterable[Any]:
    """Yield the sequences of operations in an operation's argument."""
    if hasattr(argument, "data"):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _parts(each)
