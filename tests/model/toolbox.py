"""One step of the model without the agent, further tools, and arithmetic."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from hermes_agent.agent.system_prompt import compose_system_prompt
from hermes_agent.contracts.model_client import ModelAnswer, ModelClient, ModelRequest, TextPart
from hermes_agent.core.messages import Message

TEXT = {"type": "string"}


def tool(
    name: str, description: str, required: dict[str, Any], optional: dict[str, Any] | None = None
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SYSTEM = Message("system", compose_system_prompt(platform="cli", cwd=Path("/srv/work"), today=date(2026, 11, 20)))
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
