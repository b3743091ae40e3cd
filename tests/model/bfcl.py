"""The Berkeley function-calling tasks: their data out of the wheel `bfcl-eval`, and a checker of our own.

Only the data files of the wheel are read; nothing of it is installed or imported. A task with several calls is asked
step by step, because the embedded model makes one call after the other: each call is answered with "done". A turn of a
multi-turn task starts from the reference's calls of the turns before it, and is right if it makes the reference's
calls in their order. The published leaderboard runs the calls instead, so its multi-turn figures are not comparable.
"""

from __future__ import annotations

import ast
import json
import random
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from toolbox import step

from hermes_agent.contracts.model_client import ModelClient
from hermes_agent.core.messages import Message, ToolCall, new_id

CATEGORIES = {
    "simple": "simple_python",
    "multiple": "multiple",
    "parallel": "parallel",
    "irrelevance": "irrelevance",
    "multi-turn": "multi_turn_base",
}
SAMPLE = {"multi-turn": 20}
"""Tasks of a category that are drawn, if not `USUAL_SAMPLE`."""
USUAL_SAMPLE = 100
SEED = 20261126
STEPS = 8
"""Calls of one turn after which the turn is judged."""

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "String": "string"}
_PUNCTUATION = re.compile(r"[ ,./\-_*^]")
_CLASS_FILES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class BfclTask:
    """One task of a category."""

    category: str
    id: str
    turns: tuple[tuple[Message, ...], ...]
    tools: tuple[dict[str, Any], ...]
    truth: tuple[Any, ...]
    """Per turn: calls with the allowed values of each argument; for a multi-turn task, calls with their arguments."""

    async def find_fault(self, client: ModelClient) -> tuple[str, list[Call]]:
        """Ask the task; return why it is wrong, or "", and the calls of the last turn that was asked."""
        history: list[Message] = []
        calls: list[Call] = []
        for number, turn in enumerate(self.turns):
            history += turn
            many = self.category in ("parallel", "multi-turn")
            calls = await ask_turn(client, history, self.tools, STEPS if many else 1)
            if fault := self._fault(calls, number):
                return (f"turn {number + 1}: " if len(self.turns) > 1 else "") + fault, calls
            if self.category == "multi-turn":
                history += [m for call in self.truth[number] for m in _called(call)]
                history.append(Message("assistant", "Done."))
        return "", calls

    def _fault(self, calls: list[Call], turn: int) -> str:
        if self.category == "irrelevance":
            return f"a call for nothing: {calls[0][0]}" if calls else ""
        if self.category == "multi-turn":
            return find_missing_step(calls, self.truth[turn])
        return find_wrong_call(calls, self.truth, self.tools)


async def ask_turn(
    client: ModelClient, history: Sequence[Message], tools: Sequence[dict[str, Any]], steps: int
) -> list[Call]:
    """Return the calls of one turn, at most `steps`; each is answered with "done"."""
    messages = list(history)
    calls: list[Call] = []
    while len(calls) < steps:
        answer, _ = await step(client, messages, tools)
        if not answer.message.tool_calls:
            break
        for call in answer.message.tool_calls:
            made = (call.name, json.loads(call.arguments))
            calls.append(made)
            messages += _called(made)
    return calls


def _called(call: Call) -> tuple[Message, Message]:
    made = ToolCall(new_id("call"), call[0], json.dumps(call[1]))
    return Message("assistant", "", (made,)), Message("tool", '{"result": "done"}', tool_call_id=made.id)


def find_wrong_call(calls: list[Call], truth: Sequence[Any], tools: Sequence[dict[str, Any]]) -> str:
    """Return why `calls` are not the calls of `truth` in any order, or ""."""
    if len(calls) != len(truth):
        return f"{len(calls)} calls, not {len(truth)}"
    left = list(calls)
    for expected in truth:
        [(name, allowed)] = expected.items()
        required = _required(name, tools)
        found = next((c for c in left if c[0] == name and _fits(c[1], allowed, required)), None)
        if found is None:
            return f"no call {name} with {json.dumps(allowed)[:160]}"
        left.remove(found)
    return ""


def find_missing_step(calls: list[Call], truth: Sequence[Call]) -> str:
    """Return the first call of `truth` that `calls` do not have in this order, or ""."""
    at = 0
    for name, arguments in truth:
        while at < len(calls) and not (calls[at][0] == name and _same(calls[at][1], arguments)):
            at += 1
        if at == len(calls):
            return f"no call {name} with {json.dumps(arguments)[:160]}"
        at += 1
    return ""


def _required(name: str, tools: Sequence[dict[str, Any]]) -> set[str]:
    return next(
        (set(t["function"]["parameters"].get("required", ())) for t in tools if t["function"]["name"] == name), set()
    )


def _fits(arguments: dict[str, Any], allowed: dict[str, list[Any]], required: set[str]) -> bool:
    if required - arguments.keys() or arguments.keys() - allowed.keys():
        return False
    if any(not any(_same(value, each) for each in allowed[name]) for name, value in arguments.items()):
        return False
    return all(name in arguments or "" in values for name, values in allowed.items())


def _same(given: Any, expected: Any) -> bool:
    """Return whether two values are equal; text without case, spaces and punctuation, as the data expect it."""
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    if isinstance(given, str) and isinstance(expected, str):
        return _plain(given) == _plain(expected)
    if isinstance(given, list | tuple) and isinstance(expected, list | tuple):
        return len(given) == len(expected) and all(map(_same, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() <= expected.keys() and all(_same_or_one_of(given.get(k), v) for k, v in expected.items())
    return bool(given == expected)


def _same_or_one_of(given: Any, expected: Any) -> bool:
    """Return whether a value of an object is allowed; the data list what is allowed, and "" for an absent one."""
    if not isinstance(expected, list):
        return _same(given, expected)
    return (given is None and "" in expected) or any(_same(given, e) for e in expected) or _same(given, expected)


def _plain(text: str) -> str:
    return _PUNCTUATION.sub("", text).lower().replace("'", '"')


def read_tasks(wheel: Path, seed: int = SEED) -> list[BfclTask]:
    """Return the drawn tasks, one of each category after the other."""
    with zipfile.ZipFile(wheel) as archive:
        drawn = []
        for category, name in CATEGORIES.items():
            tasks = list(_lines(archive, f"BFCL_v4_{name}.json"))
            truths = {}
            if category != "irrelevance":
                found = _lines(archive, f"possible_answer/BFCL_v4_{name}.json")
                truths = {each["id"]: each["ground_truth"] for each in found}
            sample = random.Random(f"{seed} {category}").sample(tasks, SAMPLE.get(category, USUAL_SAMPLE))
            drawn.append([_task(archive, category, task, truths.get(task["id"], [])) for task in sample])
    return [task for row in zip_longest(*drawn) for task in row if task is not None]


def _lines(archive: zipfile.ZipFile, name: str) -> Iterator[Any]:
    for line in archive.read(f"bfcl_eval/data/{name}").decode().splitlines():
        if line.strip():
            yield json.loads(line)


def _task(archive: zipfile.ZipFile, category: str, task: dict[str, Any], truth: list[Any]) -> BfclTask:
    functions = task.get("function")
    if functions is None:
        files = [_CLASS_FILES[name] for name in task["involved_classes"]]
        functions = [each for name in files for each in _lines(archive, f"multi_turn_func_doc/{name}.json")]
        truth = [[_read_call(call, functions) for call in turn] for turn in truth]
    tools = tuple({"type": "function", "function": _function(each)} for each in functions)
    turns = tuple(tuple(Message(m["role"], m["content"]) for m in turn) for turn in task["question"])
    return BfclTask(category, task["id"], turns, tools, tuple(truth))


def _function(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": given["name"],
        "description": given["description"].rpartition("Tool description: ")[2],
        "parameters": _schema(given["parameters"]),
    }


def _schema(given: Any) -> Any:
    """Return a schema of the data as JSON Schema."""
    if not isinstance(given, dict):
        return given
    out = {key: value for key, value in given.items() if key not in ("optional", "default")}
    if (kind := out.get("type")) == "any":
        del out["type"]
    elif isinstance(kind, str):
        out["type"] = _TYPES.get(kind, kind)
    if isinstance(properties := out.get("properties"), dict):
        out["properties"] = {name: _schema(value) for name, value in properties.items()}
    if "items" in out:
        out["items"] = _schema(out["items"])
    return out


def _read_call(text: str, functions: list[dict[str, Any]]) -> Call:
    """Return the call that a line of Python such as `cd(folder='x')` makes; its text is parsed, never run."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    name = node.func.id
    names = next(list(f["parameters"]["properties"]) for f in functions if f["name"] == name)
    given = dict(zip(names, (ast.literal_eval(arg) for arg in node.args), strict=False))
    return name, given | {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
