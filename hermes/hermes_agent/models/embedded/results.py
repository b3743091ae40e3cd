"""Tool results as the embedded model reads them: what failed is said in plain words, with what the tool takes.

Pure functions. A small model reads `{"error": …}` as it reads any other JSON, and answers as if it had a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from hermes_agent.core.tool_errors import error_object
from hermes_agent.models.embedded.menu import MenuTool, full_line

__all__ = ["RESULT_CHARS", "has_failed", "numbers_without_source", "format_result"]

RESULT_CHARS = 3000
"""A tool result beyond it loses its middle: reading 1000 tokens takes about 20 s."""

_MARK = "[TOOL_ERROR] "
_AFTER = (
    "Nothing else is known. If the error shows how, call again with other arguments, or use a tool that fits better;"
    " else tell the user what failed and why."
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def has_failed(result: str) -> bool:
    """Return whether a result reports that its call failed."""
    return error_object(result) is not None


def format_result(name: str, result: str, tool: MenuTool | None) -> str:
    """Return the text of the message that brings the result of a call.

    Args:
        tool: the tool on the menu; a failed call is followed by its whole description.
    """
    failed = error_object(result)
    if failed is None:
        return f"Result of {name}:\n{_shorten_result(_with_exit_status(result))}"
    error = str(failed.pop("error")).removeprefix(_MARK)
    rest = {key: value for key, value in failed.items() if value not in (None, "", [], {})}
    lines = [f"The call of {name} FAILED: {_shorten_result(error)}"]
    if rest:
        lines.append(_shorten_result(json.dumps(rest, ensure_ascii=False)))
    if tool is not None:
        lines.append(f"What it takes: {full_line(tool).removeprefix('- ')}")
    return "\n".join([*lines, _AFTER])


def numbers_without_source(text: str, sources: Iterable[str]) -> list[str]:
    """Return the numbers of `text` that none of `sources` has, in the same spelling or without its commas."""
    known = {number.replace(",", "") for source in sources for number in _NUMBER.findall(source)}
    return [number for number in _NUMBER.findall(text) if number.replace(",", "") not in known]


def _with_exit_status(result: str) -> str:
    """Say in words that a command ended with another status than 0."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result
    status = value.get("exit_code") if isinstance(value, dict) else None
    return f"{result}\nThe command ended with exit status {status}, not 0." if status else result


def _shorten_result(text: str) -> str:
    if len(text) <= RESULT_CHARS:
        return text
    half = RESULT_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
