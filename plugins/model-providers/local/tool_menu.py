"""Tools and tool results for a small model: few tools, terse descriptions, failures in words.

Tools are given in the form of chat completions, or as their inner object. A small model reads `{"error": …}` like any
other JSON and answers as if it had a result, so a failure is written as a sentence, with the parameters of the tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hermes_agent.core.messages import error_object
from hermes_agent.core.text import shorten
from hermes_agent.core.tool_schemas import GRAMMAR, adapt_schema

from .tool_choice import inner_tool

LIMIT_TOOLS = 20
"""Tools that are described before the conversation; others are described where a question needs them."""
LIMIT_CHARS = 2600
"""Length of the described menu in characters, about 700 tokens: at 50 tokens a second it is read in 14 seconds."""
WHOLE_CHARS = 280
"""Length of a whole description, which a tool gets when its line fits into `LIMIT_CHARS`."""
STRING_MAX = 2000
"""Characters in one string argument: the grammar ends a string there, which stops a model that repeats itself."""
ITEMS_MAX = 20
OPTIONAL_MAX = 3
"""Optional parameters that are offered; more of them tempt a small model to fill them with noise."""
DEPTH_MAX = 4

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(])|\n")


@dataclass(frozen=True, slots=True)
class MenuTool:
    """A tool in the menu of the embedded model."""

    name: str
    description: str
    """Its text in one line, at most `WHOLE_CHARS` characters."""
    parameters: dict[str, Any]
    """A closed object schema: bounded strings and arrays, no keywords beyond the shape."""
    hints: dict[str, str]
    """First sentence about each required parameter that has one."""
    optional: int
    """Optional parameters of the tool, also those that are not offered."""
    schema: dict[str, Any] = field(default_factory=dict)
    """The schema of its parameters as it was given."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Its description and those of its parameters."""
        properties = self.schema.get("properties") or {}
        hints = [str(each.get("description") or "") for each in properties.values() if isinstance(each, dict)]
        return (self.description, *hints)


def first_sentence(text: str, limit: int = 160) -> str:
    """Return the first sentence of `text` in one line, cut to `limit` characters."""
    sentence = " ".join(_SENTENCE.split(text.strip(), maxsplit=1)[0].split())
    return shorten(sentence, limit)


def build_menu(tools: Iterable[dict[str, Any]]) -> tuple[MenuTool, ...]:
    """Return the menu of all tools that have a name."""
    out = []
    for tool in tools:
        inner = inner_tool(tool)
        if not (name := inner.get("name")):
            continue
        given = inner.get("parameters")
        schema = given if isinstance(given, dict) else {}
        shown = shorten_schema(schema)
        hints = {
            key: first_sentence(str(value["description"]), 80)
            for key, value in (schema.get("properties") or {}).items()
            if key in shown["required"] and isinstance(value, dict) and value.get("description")
        }
        optional = len(schema.get("properties") or {}) - len(shown["required"])
        whole = shorten(" ".join(str(inner.get("description") or "").split()), WHOLE_CHARS)
        out.append(MenuTool(str(name), whole, shown, hints, optional, schema))
    return tuple(out)


def describe_tools(tools: Sequence[MenuTool], limit: int = LIMIT_CHARS) -> str:
    """Return one line a tool, with as much detail as fits into `limit` characters.

    Every tool gets the beginning of its first sentence. The whole description and the hints go to the tools with the
    fewest optional parameters first: those are made for one thing, and the model has to fill in all of it. What is
    left gives the others their first sentence.
    """
    lines = [_line(t, hints=False, width=60) for t in tools]
    room = limit - sum(len(line) + 1 for line in lines)
    order = sorted(range(len(tools)), key=lambda i: (tools[i].optional, len(tools[i].description)))
    for longer in (full_line, partial(_line, hints=False, width=160)):
        for i in order:
            added = len(line := longer(tools[i])) - len(lines[i])
            if 0 < added <= room:
                lines[i], room = line, room - added
    return "\n".join(lines)


def full_line(tool: MenuTool) -> str:
    """Return the line of a tool with its whole description and every hint."""
    return _line(tool, hints=True, width=0)


def shorten_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as a closed object: required ones first, at most `OPTIONAL_MAX` others.

    Only the shape stays (`type`, `enum`, `items`, `properties`, `required`, bounds); strings and arrays are bounded.
    """
    whole = adapt_schema(schema, GRAMMAR)
    required = whole.get("required", [])
    optional = [name for name in whole["properties"] if name not in required][:OPTIONAL_MAX]
    return closed_object_schema(
        {name: _shape(whole["properties"][name], 1) for name in [*required, *optional]}, required
    )


def closed_object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _shape(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    """Return the shape of a schema from `adapt_schema`."""
    if depth > DEPTH_MAX:
        return {}
    if branches := schema.get("anyOf"):
        shapes = [_shape(branch, depth + 1) for branch in branches if branch.get("type") != "null"]
        return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    if "enum" in schema:
        return {"enum": schema["enum"]}
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if kind == "string":
        return {"type": "string", "maxLength": min(schema.get("maxLength", STRING_MAX), STRING_MAX)}
    if kind in ("integer", "number"):
        return {"type": kind} | {k: schema[k] for k in ("minimum", "maximum") if k in schema}
    if kind == "array":
        return {"type": "array", "items": _shape(schema["items"], depth + 1), "maxItems": ITEMS_MAX}
    if kind == "object" and schema.get("properties"):
        properties = {name: _shape(value, depth + 1) for name, value in schema["properties"].items()}
        return closed_object_schema(properties, schema.get("required", []))
    return {"type": kind} if kind else {}


def _line(tool: MenuTool, *, hints: bool, width: int) -> str:
    required = tool.parameters["required"]
    parts = []
    for name, shape in tool.parameters["properties"].items():
        kind = "|".join(map(str, shape["enum"])) if "enum" in shape else shape.get("type", "any")
        hint = f" = {tool.hints[name]}" if hints and name in tool.hints else ""
        parts.append(f"{name}{'' if name in required else '?'}: {kind}{hint}")
    about = first_sentence(tool.description, width) if width else tool.description
    return f"- {tool.name}({'; '.join(parts)}): {about}"


RESULT_CHARS = 3000
"""A tool result beyond it loses its middle: reading 1000 tokens takes about 20 s."""

ERROR_MARK = "[TOOL_ERROR] "
"""Before the error of a tool that raised."""
_AFTER = (
    "Nothing else is known. If the error shows how, call again with other arguments, or use a tool that fits better;"
    " else tell the user what failed and why."
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def has_failed(result: str) -> bool:
    """Return whether a result reports that its call failed."""
    return error_object(result) is not None


def format_result(name: str, result: str, tool: MenuTool | None, others: Sequence[str] = ()) -> str:
    """Return the text of the message with the result of a call.

    Args:
        tool: the tool on the menu; a failed call is followed by its whole description.
        others: tools that may do the same after a failed call.
    """
    failed = error_object(result)
    if failed is None:
        return f"Result of {name}:\n{_shorten_result(_with_exit_status(result))}"
    error = str(failed.pop("error")).removeprefix(ERROR_MARK)
    rest = {key: value for key, value in failed.items() if value not in (None, "", [], {})}
    lines = [f"The call of {name} FAILED: {_shorten_result(error)}"]
    if rest:
        lines.append(_shorten_result(json.dumps(rest, ensure_ascii=False)))
    if tool is not None:
        lines.append(f"What it takes: {full_line(tool).removeprefix('- ')}")
    if others:
        lines.append(f"Tools that may do it instead: {', '.join(others)}")
    return "\n".join([*lines, _AFTER])


def numbers_without_source(text: str, sources: Iterable[str]) -> list[str]:
    """Return the numbers of `text` that none of `sources` has, in the same spelling or without its commas."""
    known = {number.replace(",", "") for source in sources for number in _NUMBER.findall(source)}
    return [number for number in _NUMBER.findall(text) if number.replace(",", "") not in known]


def _with_exit_status(result: str) -> str:
    """Return the result of a command with a sentence on its exit status if that is not 0."""
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
