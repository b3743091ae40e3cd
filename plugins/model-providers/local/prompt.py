"""Prompts of the embedded model: tools for a model that cannot write tool calls by itself.

The tools become one JSON schema that the grammar of the server enforces: `{"action": "<tool>", "arguments": {…}}` or
`{"action": "final", "text": "…"}`. The conversation follows in that form, after a short system prompt and a few
examples. The tools of the examples are not those of the menu, so that the model learns the form and not the names. With
the native tool calls of the server Qwen2.5-Coder-1.5B makes none.

The grammar also prevents invented answers: after a failed call an answer begins with what could not be done, and a
question that names a file begins with a call. The measurements are in `docs/operator/models-embedded.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.errors import ContextTooLong
from hermes_agent.core.messages import Message, ToolCall

from .tool_menu import (
    LIMIT_TOOLS,
    MenuTool,
    build_menu,
    choose_tools,
    closed_object_schema,
    describe_tools,
    format_result,
    has_failed,
    numbers_without_source,
)

FINAL_TOKENS = 1024
"""Longest reply in tokens if the request sets no limit: about 90 s on two cores."""
CHARS_PER_TOKEN = 3
"""Low for English (about 4) and about right for code, so that an estimate is not too small."""
OWN_SYSTEM_CHARS = 500
"""Characters of the last paragraphs of the system messages that are kept: directory, date, instructions of a program.

A short prompt replaces the long part before them, which is written for a large model.
"""
FILE_PARAMETERS = frozenset({"path", "file", "filename", "file_path", "command"})
"""Names of parameters by which a tool can look at a file."""
MAX_BLIND_CALLS = 2
"""Calls in one turn after which an answer is allowed, although none had the file that the user names."""
STEPS_MAX = 6
"""Calls in one turn after which only an answer is allowed: more calls do not help this model."""

_EXTENSIONS = """
    adoc avi bak bash bat bmp bz2 cc cfg conf cpp crt cs css csv db diff doc docx epub flac gif gz hpp htm html ico ini
    ipynb iso java jpeg jpg js json jsonl jsx kt lock log lua md mjs mkv mov mp3 mp4 nix odp ods odt ogg patch pdf pem
    php pl png ppt pptx ps1 py pyi rar rb rs rst rtf scss service sh sql sqlite svg tar tex tgz tiff toml ts tsv tsx txt
    wav webm webp xls xlsx xml xz yaml yml zip zst
""".split()  # noqa: SIM905 - five lines instead of ninety
_ROOTS = "(?:bin|boot|dev|etc|home|media|mnt|nix|opt|proc|root|run|srv|sys|tmp|usr|var)"
_NAMES_FILE = re.compile(
    rf"(?<![\w/:.@-])(?:(?:~/|\.{{1,2}}/|/(?={_ROOTS}\b|[\w.-]+/))(?=[\w./-]*[A-Za-z_])[\w./-]*\w"
    r"|(?!(?:[A-Z]\w*|d3|next|node|nuxt|react|three|vue)\.js\b|console\.log\b)"
    rf"[\w./-]*\w\.(?:[ch]|(?i:{'|'.join(_EXTENSIONS)}))(?![\w@/]|\.\w))"
)
"""A path, or a name with a usual extension (`report.txt`): `example.org`, `Node.js` and `/help` are none."""

_TRANSLATE = MenuTool(
    "translate",
    "Translate a text.",
    closed_object_schema({"text": {"type": "string"}, "language": {"type": "string"}}, ["text", "language"]),
    {"language": "Target language (e.g. 'de', 'fr')"},
    0,
)
"""A tool of the examples."""

_ROLE = "You are Hermes, an assistant that runs as a small local model on this Linux machine."
_FORM = """Reply with exactly one JSON object:
{"action": "<tool>", "arguments": {...}} to use one of the tools below, or {"action": "final", "text": "..."} to \
answer the person.
Whatever a tool below can do or find out, do it with the tool: never guess, never only describe it. You know nothing \
about this machine, its files and its state until a tool tells you. Copy numbers, brackets, names and paths exactly. \
Greetings, small talk and general knowledge need no tool. After a tool's result, answer with final and state the \
result."""


SAMPLING = ("top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias")
"""Options of a turn that the server takes under these names."""


@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """The request to the server of the model, and the rules for its reply."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[MenuTool, ...]
    """The menu; empty if the answer is plain text."""
    answered_calls: frozenset[str]
    """Calls of this turn with a result, in the form of `canonical_call`; a repeated call is rejected."""
    allows_only_text: bool
    """The turn has reached `STEPS_MAX`: the menu is described, but only an answer is allowed."""
    allows_only_call: bool
    """The user names a file, and no call of this turn used it: an answer would be invented."""
    sources: tuple[str, ...] | None
    """Texts of the conversation if the last call failed, else None.

    The answer must admit the failure and take its numbers from these texts.
    """
    max_tokens: int
    temperature: float
    response_format: dict[str, Any] | None = None
    """The requested format of a plain answer; the grammar of the server enforces it."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Sampling options that the caller of the turn sets."""

    @property
    def is_after_failure(self) -> bool:
        """Whether the last call failed."""
        return self.sources is not None

    def find_objection(self, text: str) -> str:
        """Return why the final text cannot be true, or ""."""
        invented = numbers_without_source(text, self.sources) if self.sources is not None else []
        return f"an answer with {', '.join(invented)}, which no result has" if invented else ""

    def body(self, *, only_final: bool = False, without_digits: bool = False) -> dict[str, Any]:
        """Return the request's JSON for `/v1/chat/completions`, without `stream`.

        Args:
            only_final: allow no call.
            without_digits: allow no digit in the answer that follows a failed call.
        """
        body: dict[str, Any] = {
            "messages": list(self.messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "cache_prompt": True,
            **self.sampling,
        }
        if self.tools:
            tools = () if only_final or self.allows_only_text else self.tools
            pattern = _failure_admission_pattern(without_digits=without_digits) if self.is_after_failure else ""
            schema = union_schema(tools, None if tools and self.allows_only_call else pattern)
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        elif self.response_format:
            body["response_format"] = self.response_format
        return body


def build_prompt(request: ModelRequest, context_length: int, mask_message: Callable[[Message], Message]) -> ToolPrompt:
    """Return the request in the form of the embedded model, within `context_length` tokens.

    Args:
        mask_message: masks secrets, before a text is shortened in the middle of one.

    Raises:
        ContextTooLong: the last message alone does not fit.
    """
    request = replace(request, messages=[mask_message(message) for message in request.messages])
    turn = _this_turn(request.messages)
    last = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
    called = {c.name for m in request.messages for c in m.tool_calls}
    tools = build_menu(choose_tools(request.tools, last, keep=called, limit=LIMIT_TOOLS))
    max_tokens = min(request.max_tokens or FINAL_TOKENS, context_length // 2)
    # a question of a program outside of any conversation: its system messages are the task
    own_chars = OWN_SYSTEM_CHARS if request.session_id or request.tools else context_length * CHARS_PER_TOKEN
    head = _head(request.messages, tools, own_chars)
    room = (context_length - max_tokens) * CHARS_PER_TOKEN - _length(head)
    answered = calls_with_results(turn)
    return ToolPrompt(
        messages=(*head, *_fit_turns(_retell(request.messages, tools), room)),
        tools=tools,
        answered_calls=frozenset(answered),
        allows_only_text=len(answered) >= STEPS_MAX,
        allows_only_call=len(answered) < MAX_BLIND_CALLS and _takes_files(tools) and _names_unread_file(last, turn),
        sources=_texts(request.messages) if tools and _ends_in_failure(turn) else None,
        max_tokens=max_tokens,
        temperature=(request.temperature or 0.0) if not tools or request.options.temperature is not None else 0.0,
        response_format=request.extra.get("response_format"),
        sampling={name: request.options.extra[name] for name in SAMPLING if name in request.options.extra},
    )


def union_schema(tools: Iterable[MenuTool], final_pattern: str | None = "") -> dict[str, Any]:
    """Return the schema of one reply: a call of one of `tools`, or the final text.

    Args:
        final_pattern: regular expression of the final text; "" allows any text, None allows no final text.
    """
    branches = [
        closed_object_schema({"action": {"const": tool.name}, "arguments": tool.parameters}, ["action", "arguments"])
        for tool in tools
    ]
    if final_pattern is not None:
        text = {"type": "string"} | ({"pattern": final_pattern} if final_pattern else {"minLength": 1})
        branches.append(closed_object_schema({"action": {"const": "final"}, "text": text}, ["action", "text"]))
    return {"oneOf": branches} if len(branches) > 1 else branches[0]


def _failure_admission_pattern(*, without_digits: bool) -> str:
    """Return the pattern of an answer after a failed call: it begins with what could not be done.

    Without the pattern this model states a result that no tool gave.
    """
    letters = r'[^"\\\n0-9]' if without_digits else r'[^"\\\n]'
    return f"^I could not {letters}+$"


def calls_with_results(turn: Sequence[Message]) -> list[str]:
    """Return every call of `turn` with a result, in the form of `canonical_call`."""
    answered = {m.tool_call_id for m in turn if m.role == "tool"}
    return [canonical_call(c.name, c.arguments) for m in turn for c in m.tool_calls if c.id in answered]


def canonical_call(name: str, arguments: str) -> str:
    """Return a call in one form, for comparisons."""
    try:
        return f"{name} {json.dumps(json.loads(arguments), sort_keys=True)}"
    except ValueError:
        return f"{name} {arguments}"


def _this_turn(messages: Sequence[Message]) -> Sequence[Message]:
    last = max((i for i, m in enumerate(messages) if m.role == "user"), default=0)
    return messages[last:]


def _texts(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(m.text for m in messages if m.role in ("user", "tool"))


def _takes_files(tools: Sequence[MenuTool]) -> bool:
    return any(FILE_PARAMETERS & tool.parameters["properties"].keys() for tool in tools)


def _names_unread_file(question: str, turn: Sequence[Message]) -> bool:
    """Return whether the question names a file that no call of the turn has in its arguments."""
    named = _NAMES_FILE.search(question)
    return named is not None and not any(Path(named[0]).name in c.arguments for m in turn for c in m.tool_calls)


def _ends_in_failure(turn: Sequence[Message]) -> bool:
    last = list(takewhile(lambda m: m.role == "tool", reversed(turn)))
    return bool(last) and all(has_failed(m.text) for m in last)


def _head(messages: Sequence[Message], tools: Sequence[MenuTool], own_chars: int) -> list[dict[str, Any]]:
    """Return the messages before the conversation.

    What differs between sessions (directory, date, instructions) follows the tools, so that the server does not read
    the tools again for the next session.
    """
    own = _last_paragraphs("\n\n".join(m.text for m in messages if m.role == "system"), own_chars)
    if not tools:
        return [_system([f"{_ROLE} Answer briefly and truthfully.", *own])]
    return [_system([f"{_ROLE} {_FORM}", f"Tools:\n{describe_tools(tools)}", *own]), *_examples(tools)]


def _system(paragraphs: Iterable[str]) -> dict[str, Any]:
    return {"role": "system", "content": "\n\n".join(paragraphs)}


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


def _result(name: str, text: str, tool: MenuTool | None = None) -> dict[str, Any]:
    return _user(format_result(name, text, tool))


def _examples(tools: Sequence[MenuTool]) -> list[dict[str, Any]]:
    """Return the examples; the example with a command uses the tool of the menu that takes one."""
    shots = [
        _user("Who are you?"),
        _final("I am Hermes, an assistant that runs on this machine. How can I help?"),
        _user("What's the weather in Oslo?"),
        _call("get_weather", {"city": "Oslo"}),
        _result("get_weather", '{"temp_c": 7.5, "sky": "rain"}'),
        _final("In Oslo it is 7.5 °C and raining."),
        _user("Who wrote Hamlet?"),
        _final("William Shakespeare wrote Hamlet."),
        _user("What's (9 - 3) / (7 + 1) minus 4?"),
        _call("evaluate", {"formula": "(9 - 3) / (7 + 1) - 4"}),
        _result("evaluate", '{"value": -3.25}'),
        _final("It is -3.25."),
        _user("How do you say cat in German?"),
        _call("translate", {"text": "cat", "language": "german"}),
        _result("translate", '{"error": "german is no language"}', _TRANSLATE),
        _call("translate", {"text": "cat", "language": "de"}),
        _result("translate", '{"translation": "Katze"}'),
        _final("Cat is Katze in German."),
        _user("How many pages does thesis.pdf have?"),
        _call("count_pages", {"file": "thesis.pdf"}),
        _result("count_pages", '{"error": "thesis.pdf: no such file"}'),
        _final("I could not count the pages: there is no file thesis.pdf."),
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


def _retell(messages: Sequence[Message], tools: Sequence[MenuTool]) -> list[list[dict[str, Any]]]:
    """Return a list for each turn: the user message, the calls with their results, the answer."""
    offered = {tool.name: tool for tool in tools}
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
                turn.append(_final(text) if tools else {"role": "assistant", "content": text})
            for call in message.tool_calls:
                turn.append(_call(call.name, _arguments(call)))
                if call.id in results:
                    turn.append(_user(format_result(call.name, results[call.id].text, offered.get(call.name))))
    return turns


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments


def _length(messages: Iterable[dict[str, Any]]) -> int:
    return sum(
        len(m["content"]) + 4 * CHARS_PER_TOKEN for m in messages
    )  # 4: marks of the template around each message


def _fit_turns(turns: list[list[dict[str, Any]]], room: int) -> list[dict[str, Any]]:
    """Return the newest turns that fit into `room` characters; the last turn may lose its oldest calls."""
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
