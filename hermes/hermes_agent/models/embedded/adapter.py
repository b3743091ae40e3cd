"""Chat completions with tools, for a model that cannot write tool calls by itself.

The tools become one JSON schema that the server's grammar enforces: `{"action": "<tool>", "arguments": {…}}` or
`{"action": "final", "text": "…"}`. The conversation is retold in that form after a short system prompt and a few
examples, whose tools are not those of the menu: the model learns the form, not the names. Measured with
Qwen2.5-Coder-1.5B: the right tool for 16 of 16 prompts, against none with the server's native tool calls.

Pure functions; `provider.py` does the talking.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_agent.core.errors import ContextTooLong
from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.models.embedded.menu import LIMIT_TOOLS, MenuTool, choose, closed, describe, menu
from hermes_agent.models.request import ModelRequest

__all__ = ["FINAL_TOKENS", "Prompt", "answered_calls", "canonical", "prompt_for", "union_schema"]

FINAL_TOKENS = 1024
"""Longest reply in tokens where the request sets no limit: about 90 s on two cores."""
CHARS_PER_TOKEN = 3
"""Low for English (about 4) and about right for code: what is thought to fit does fit."""
RESULT_CHARS = 3000
"""A tool result beyond it loses its middle: reading 1000 tokens takes about 20 s."""
OWN_SYSTEM_CHARS = 500
"""Of the system messages the last paragraphs are kept up to this length: directory, date, instructions of a program.
The long part before them, written for a large model, is replaced by the short prompt here."""
STEPS_MAX = 6
"""Calls in one turn after which only an answer is allowed: more steps do not get this model nearer to one."""

_WHO = "You are Hermes, an assistant that runs as a small local model on this Linux machine."
_FORM = """Reply with exactly one JSON object:
{"action": "<tool>", "arguments": {...}} to use one of the tools below, or {"action": "final", "text": "..."} to \
answer the person.
Whatever a tool below can do or find out, do it with the tool: never guess, never only describe it; take the most \
specific tool. You know nothing about this machine, its files and its state until a tool tells you. Copy numbers, \
brackets, names and paths exactly. Greetings, small talk and general knowledge need no tool. After a tool's result, \
answer with final and state the result."""


SAMPLING = ("top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias")
"""Options of a turn that the model's server knows by these names."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent to the model's server."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[MenuTool, ...]
    """The menu; empty when the answer is plain text."""
    answered: frozenset[str]
    """Calls of this turn that have a result (`canonical`): asking for one of them again leads nowhere."""
    only_final: bool
    """The turn has had its steps: the menu is described, but only an answer is allowed."""
    max_tokens: int
    temperature: float
    response_format: dict[str, Any] | None = None
    """The form of a plain answer that the request asks for; the server's grammar enforces it."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What the caller of the turn sets beside."""

    def body(self, *, only_final: bool = False) -> dict[str, Any]:
        """Return the request's JSON for `/v1/chat/completions`, without `stream`."""
        body: dict[str, Any] = {
            "messages": list(self.messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "cache_prompt": True,
            **self.sampling,
        }
        if self.tools:
            schema = union_schema(() if only_final or self.only_final else self.tools)
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        elif self.response_format:
            body["response_format"] = self.response_format
        return body


def prompt_for(request: ModelRequest, context_length: int) -> Prompt:
    """Retell the request for the embedded model, within `context_length` tokens.

    Raises:
        ModelError: `context_too_long`: the last message alone does not fit.
    """
    turn = _this_turn(request.messages)
    last = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
    called = {c.name for m in request.messages for c in m.tool_calls}
    tools = menu(choose(request.tools, last, keep=called, limit=LIMIT_TOOLS))
    max_tokens = min(request.max_tokens or FINAL_TOKENS, context_length // 2)
    # a question of a program, beside any conversation: its system messages are the task itself
    own_chars = OWN_SYSTEM_CHARS if request.session_id or request.tools else context_length * CHARS_PER_TOKEN
    head = [{"role": "system", "content": _system(request.messages, tools, own_chars)}]
    if tools:
        head += _examples(tools)
    room = (context_length - max_tokens) * CHARS_PER_TOKEN - _length(head)
    answered = answered_calls(turn)
    return Prompt(
        messages=(*head, *_fit(_retell(request.messages, plain=not tools), room)),
        tools=tools,
        answered=frozenset(answered),
        only_final=len(answered) >= STEPS_MAX,
        max_tokens=max_tokens,
        temperature=(request.temperature or 0.0) if not tools or request.options.temperature is not None else 0.0,
        response_format=request.extra.get("response_format"),
        sampling={name: request.options.extra[name] for name in SAMPLING if name in request.options.extra},
    )


def union_schema(tools: Iterable[MenuTool]) -> dict[str, Any]:
    """Return the schema of one reply: a call of one of `tools`, or the final text."""
    branches = [
        closed({"action": {"const": tool.name}, "arguments": tool.parameters}, ["action", "arguments"])
        for tool in tools
    ]
    final = {"action": {"const": "final"}, "text": {"type": "string", "minLength": 1}}
    branches.append(closed(final, ["action", "text"]))
    return {"oneOf": branches} if len(branches) > 1 else branches[0]


def answered_calls(turn: Sequence[Message]) -> list[str]:
    """Return every call of `turn` that has a result, in `canonical` form."""
    answered = {m.tool_call_id for m in turn if m.role == "tool"}
    return [canonical(c.name, c.arguments) for m in turn for c in m.tool_calls if c.id in answered]


def canonical(name: str, arguments: str) -> str:
    """Return a call in one spelling, for comparison."""
    try:
        return f"{name} {json.dumps(json.loads(arguments), sort_keys=True)}"
    except ValueError:
        return f"{name} {arguments}"


def _this_turn(messages: Sequence[Message]) -> Sequence[Message]:
    last = max((i for i, m in enumerate(messages) if m.role == "user"), default=0)
    return messages[last:]


def _system(messages: Sequence[Message], tools: Sequence[MenuTool], own_chars: int) -> str:
    own = _last_paragraphs("\n\n".join(m.text for m in messages if m.role == "system"), own_chars)
    if not tools:
        return "\n\n".join([f"{_WHO} Answer briefly and truthfully.", *own])
    return "\n\n".join([f"{_WHO} {_FORM}", *own, f"Tools:\n{describe(tools)}"])


def _last_paragraphs(text: str, limit: int) -> list[str]:
    kept: list[str] = []
    for paragraph in reversed([p.strip() for p in text.split("\n\n") if p.strip()]):
        limit -= len(paragraph)
        if limit < 0:
            break
        kept.insert(0, paragraph)
    return kept


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _reply(value: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": json.dumps(value, ensure_ascii=False)}


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return _reply({"action": name, "arguments": arguments})


def _final(text: str) -> dict[str, Any]:
    return _reply({"action": "final", "text": text})


def _result(name: str, text: str) -> dict[str, Any]:
    return _user(f"Result of {name}:\n{text}")


def _examples(tools: Sequence[MenuTool]) -> list[dict[str, Any]]:
    """Return the examples; the one with a command line bears the name of the menu's tool that takes one."""
    shots = [
        _user("Who are you?"),
        _final("I am Hermes, an assistant that runs on this machine. How can I help?"),
        _user("What's the weather in Oslo?"),
        _call("get_weather", {"city": "Oslo"}),
        _result("get_weather", '{"temp_c": 7.5, "sky": "rain"}'),
        _final("In Oslo it is 7.5 °C and raining."),
        _user("Who wrote Hamlet?"),
        _final("William Shakespeare wrote Hamlet."),
        _user("Plot (x - 3) / (7 + x)"),
        _call("plot", {"formula": "(x - 3) / (7 + x)"}),
        _result("plot", '{"image": "plot-4.png"}'),
        _final("The plot is in plot-4.png."),
        _user("Make a note called ideas saying buy milk"),
        _call("save_note", {"title": "ideas", "text": "buy milk"}),
        _result("save_note", '{"ok": true}'),
        _final("The note ideas now says: buy milk."),
    ]
    shell = next((t for t in tools if "command" in t.parameters["required"]), None)
    if shell is not None:
        shots += [
            _user("Is nginx running?"),
            _call(shell.name, {"command": "systemctl is-active nginx"}),
            _result(shell.name, '{"output": "active", "exit_code": 0}'),
            _final("Yes, nginx is active."),
        ]
    return [*shots, _user("You are great"), _final("Thank you!")]


def _retell(messages: Sequence[Message], *, plain: bool) -> list[list[dict[str, Any]]]:
    """Return one list a turn: what the person said, then calls each followed by its result, then the answer."""
    results = {m.tool_call_id: m for m in messages if m.role == "tool"}
    turns: list[list[dict[str, Any]]] = []
    for message in messages:
        if message.role == "user":
            turns.append([_user(message.text)])
        elif message.role == "assistant":
            if not turns:
                turns.append([])
            turn = turns[-1]
            if message.text.strip() and not message.tool_calls:
                text = message.text
                turn.append({"role": "assistant", "content": text} if plain else _final(text))
            for call in message.tool_calls:
                turn.append(_call(call.name, _arguments(call)))
                if call.id in results:
                    turn.append(_result(call.name, _middle_out(results[call.id].text, RESULT_CHARS)))
    return turns


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments


def _middle_out(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _length(messages: Iterable[dict[str, Any]]) -> int:
    return sum(len(m["content"]) + 4 * CHARS_PER_TOKEN for m in messages)  # 4: the template's marks around each


def _fit(turns: list[list[dict[str, Any]]], room: int) -> list[dict[str, Any]]:
    """Return the newest turns that fit into `room` characters; of the last one its oldest calls may go, too."""
    if not turns:
        return []
    last = turns[-1]
    while len(last) > 3 and _length(last) > room:
        last = [last[0], *last[3:]]  # the oldest call and its result
    if (needed := _length(last)) > room:
        raise ContextTooLong(
            f"The question has {needed} characters; the embedded model takes about {max(room, 0)}.",
            hint="Ask with less text, raise `model.local.context_length`, or configure a larger model.",
        )
    kept = [last]
    used = needed
    for turn in reversed(turns[:-1]):
        used += _length(turn)
        if used > room:
            break
        kept.append(turn)
    return [message for turn in reversed(kept) for message in turn]
