"""The tools and the turn loop of these tests: what a host does, in twenty lines."""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from hermes_agent.agent.prompt import system_prompt
from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.models.request import ModelAnswer, ModelClient, ModelRequest, TextPart
from hermes_agent.workspace import declared

TEXT = {"type": "string"}


def tool(
    name: str, description: str, required: dict[str, Any], optional: dict[str, Any] | None = None
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


CALCULATE = tool(
    "calculate",
    "Evaluate a mathematical expression and return the result. Supports arithmetic (+, -, *, /, **), functions "
    "(sqrt, sin, cos, log, abs, round, floor, ceil), and constants (pi, e). Use this for any math the user asks about.",
    {"expression": {"type": "string", "description": "Math expression to evaluate (e.g., '2**10', 'sqrt(144)')"}},
)
UNIT_CONVERT = tool(
    "unit_convert",
    "Convert a value between units. Supports length (m, km, mi, ft, in), weight (kg, lb, oz, g), temperature "
    "(C, F, K), data (B, KB, MB, GB, TB), and time (s, min, hr, day).",
    {
        "value": {"type": "number", "description": "The numeric value to convert"},
        "from_unit": {"type": "string", "description": "Source unit (e.g., 'km', 'lb', 'F', 'GB')"},
        "to_unit": {"type": "string", "description": "Target unit (e.g., 'mi', 'kg', 'C', 'MB')"},
    },
)
BUILT_IN = [
    {"type": "function", "function": schema}
    for schema in (declared.READ_FILE, declared.WRITE_FILE, declared.SEARCH_FILES, declared.TERMINAL)
]
SIX = [CALCULATE, UNIT_CONVERT, *BUILT_IN]
SYSTEM = Message("system", system_prompt(platform="cli", cwd=Path("/srv/work"), today=date(2026, 11, 20)))
"""The prompt of a session as the agent writes it."""

OTHERS = [
    tool("send_email", "Send an email to one recipient.", {"to": TEXT, "subject": TEXT, "body": TEXT}),
    tool(
        "create_event",
        "Add an event to the calendar.",
        {"title": TEXT, "date": {"type": "string", "description": "YYYY-MM-DD"}},
        {"time": {"type": "string", "description": "HH:MM"}},
    ),
    tool("http_get", "Fetch a web page and return its text.", {"url": TEXT}),
    tool("translate", "Translate text into another language.", {"text": TEXT, "language": TEXT}),
    tool("play_music", "Play a song, an album or an artist on the speakers.", {"query": TEXT}),
    tool("get_stock_price", "Current price of a share by its ticker symbol.", {"symbol": TEXT}),
    tool("set_timer", "Start a timer.", {"minutes": {"type": "number"}}, {"label": TEXT}),
]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Mod: operator.mod,
}


def value_of(expression: str) -> Any:
    """Evaluate arithmetic; raises ValueError for anything else."""

    def walk(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body=body):
                return walk(body)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right):
                return _BINARY[type(op)](walk(left), walk(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -walk(operand)
            case ast.Name(id="pi" | "e" as name):
                return getattr(math, name)
            case ast.Call(func=ast.Name(id="sqrt" | "pow" | "log" | "abs" as name), args=args):
                found = {"sqrt": math.sqrt, "pow": pow, "log": math.log, "abs": abs}[name]
                return found(*(walk(a) for a in args))
        raise ValueError(ast.dump(node))

    return walk(ast.parse(expression, mode="eval"))


def calculate(arguments: dict[str, Any]) -> str:
    expression = arguments["expression"]
    try:
        return json.dumps({"expression": expression, "result": value_of(expression)})
    except (ValueError, SyntaxError, KeyError, TypeError) as exc:
        return json.dumps({"expression": expression, "error": f"Invalid: {exc}"})


def unit_convert(arguments: dict[str, Any]) -> str:
    value, source, target = arguments["value"], arguments["from_unit"].upper(), arguments["to_unit"].upper()
    if (source, target) == ("F", "C"):
        result = round((value - 32) * 5 / 9, 4)
    else:
        scale = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4, "KM": 1000, "MI": 1609.34}
        result = round(value * scale[source] / scale[target], 6)
    return json.dumps({"input": f"{value} {source}", "result": result, "output": f"{result} {target}"})


@dataclass(frozen=True)
class Turn:
    """What happened between a question and its answer."""

    calls: tuple[ToolCall, ...]
    text: str
    streamed: str
    history: tuple[Message, ...]


async def step(
    client: ModelClient, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
) -> tuple[ModelAnswer, str]:
    pieces = []
    async for delta in client.stream(ModelRequest("", messages, tools)):
        if isinstance(delta, TextPart):
            pieces.append(delta.text)
        else:
            return delta, "".join(pieces)
    raise AssertionError("the stream has no end")


async def turn(
    client: ModelClient,
    question: str,
    tools: Sequence[dict[str, Any]],
    handlers: dict[str, Callable[[dict[str, Any]], str]],
    history: Sequence[Message] = (),
) -> Turn:
    messages = [*(history or [SYSTEM]), Message("user", question)]
    calls: list[ToolCall] = []
    for _ in range(6):
        answer, streamed = await step(client, messages, tools)
        messages.append(answer.message)
        if not answer.message.tool_calls:
            return Turn(tuple(calls), answer.message.text, streamed, tuple(messages))
        for call in answer.message.tool_calls:
            calls.append(call)
            result = handlers[call.name](json.loads(call.arguments))
            messages.append(Message("tool", result, tool_call_id=call.id, tool_name=call.name))
    raise AssertionError(f"no answer after {calls}")
