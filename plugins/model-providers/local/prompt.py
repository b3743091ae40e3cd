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
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.errors import ContextTooLong
from hermes_agent.core.messages import Message, ToolCall, error_object

from .answer_check import CallResult, find_unfounded, find_unfounded_claims, find_unfounded_deeds, plain_result
from .gguf import SystemPlace
from .prompt_examples import call_reply, final_reply, make_examples, user_text, with_menu
from .question_steps import split_steps
from .tool_choice import MENU_MAX, SMALL_OFFER, find_named_tool, is_arithmetic, other_ways, rank_tools, tool_name
from .tool_menu import (
    ERROR_MARK,
    LIMIT_TOOLS,
    MenuTool,
    build_menu,
    closed_object_schema,
    describe_tools,
    format_result,
    full_line,
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
PLACE_PARAMETERS = FILE_PARAMETERS | {"code", "dir", "directory", "folder", "root"}
"""Names of parameters by which a tool can look for files, or into a directory."""
MAX_BLIND_CALLS = 2
"""Calls in one turn after which an answer is allowed, although none had the file that the user names."""
STEPS_MAX = 6
"""Calls in one turn after which only an answer is allowed: more calls do not help this model."""
PLAN_MAX = 3
"""Successful calls in one turn after which only an answer is allowed."""

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
    """The menu; it may be empty."""
    is_plain: bool
    """The request offers no tools: the answer is plain text, without the JSON of the grammar."""
    answered_calls: frozenset[str]
    """Calls of this turn with a result, in the form of `canonical_call`; a repeated call is rejected."""
    allows_only_text: bool
    """The turn has reached `STEPS_MAX`: the menu is described, but only an answer is allowed."""
    allows_only_call: bool
    """The user names a file, and no call of this turn used it: an answer would be invented."""
    is_after_failure: bool
    """The last call failed: the answer must admit it, with numbers of the conversation alone."""
    sources: tuple[str, ...]
    """Texts of the conversation, which paths of a call and an answer after a call are checked against."""
    results: tuple[CallResult, ...]
    """Results of this turn, which claims of absence are checked against after a failed call."""
    plain_answer: str
    """What the last result says, for a turn of which no answer passes the check; "" without a result."""
    max_tokens: int
    temperature: float
    response_format: dict[str, Any] | None = None
    """The requested format of a plain answer; the grammar of the server enforces it."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Sampling options that the caller of the turn sets."""

    def find_objection(self, text: str) -> str:
        """Return why the final text cannot be true, or ""."""
        if self.is_after_failure:
            unfounded = numbers_without_source(text, self.sources)
        else:
            unfounded = find_unfounded(text, self.sources) if self.plain_answer else []
        unfounded += find_unfounded_claims(text, self.results)
        unfounded += find_unfounded_deeds(text, self.results)
        return ", ".join(dict.fromkeys(unfounded))

    def fallback(self, text: str) -> str:
        """Return what is shown instead of a final text that cannot be true, or "" if there is no result."""
        if self.plain_answer and find_unfounded_deeds(text, self.results):
            return f"I could not do that: no tool did it. {self.plain_answer}"
        return self.plain_answer

    def correct(self, text: str, objection: str) -> dict[str, Any]:
        """Return the request's JSON that asks for another answer than `text`."""
        only = "which tool failed, and its error" if self.is_after_failure else "what the result says"
        asked = user_text(
            f"Your answer has {objection}, which neither the question nor a result has."
            f" Answer again: state only {only}."
        )
        body = self.body(only_final=True, without_digits=self.is_after_failure)
        return body | {"messages": [*self.messages, final_reply(text), asked]}

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
        if not self.is_plain:
            tools = () if only_final or self.allows_only_text else self.tools
            pattern = _failure_admission_pattern(without_digits=without_digits) if self.is_after_failure else ""
            schema = union_schema(tools, None if tools and self.allows_only_call else pattern)
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        elif self.response_format:
            body["response_format"] = self.response_format
        return body


def build_prompt(
    request: ModelRequest,
    context_length: int,
    mask_message: Callable[[Message], Message],
    place: SystemPlace = "anywhere",
) -> ToolPrompt:
    """Return the request in the form of the embedded model, within `context_length` tokens.

    Args:
        mask_message: masks secrets, before a text is shortened in the middle of one.
        place: where the template of the model takes system messages.

    Raises:
        ContextTooLong: the last message alone does not fit.
    """
    request = replace(request, messages=[mask_message(message) for message in request.messages])
    turn = _this_turn(request.messages)
    last = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
    offer = _Offer(request.tools)
    menu = offer.menu(request.messages)
    max_tokens = min(request.max_tokens or FINAL_TOKENS, context_length // 2)
    # a question of a program outside of any conversation: its system messages are the task
    own_chars = OWN_SYSTEM_CHARS if request.session_id or request.tools else context_length * CHARS_PER_TOKEN
    head = _head(request.messages, offer, own_chars)
    room = (context_length - max_tokens) * CHARS_PER_TOKEN - _length(head)
    answered, successes = calls_with_results(turn), _successes(turn)
    return ToolPrompt(
        messages=_place_system([*head, *_fit_turns(_retell(request.messages, offer), room)], place),
        tools=menu,
        is_plain=not offer.tools,
        answered_calls=frozenset(answered),
        allows_only_text=successes >= PLAN_MAX or len(answered) >= STEPS_MAX,
        allows_only_call=(not answered and bool(find_named_tool(offer.tools, last)))
        or (len(answered) < MAX_BLIND_CALLS and _takes_files(menu) and _names_unread_file(last, turn)),
        is_after_failure=bool(menu) and _ends_in_failure(turn),
        sources=_texts(request.messages, head) if offer.tools else (),
        results=_call_results(turn, offer.by_name) if offer.tools else (),
        plain_answer=_plain_answer(turn) if offer.tools else "",
        max_tokens=max_tokens,
        temperature=(request.temperature or 0.0) if not offer.tools or request.options.temperature is not None else 0.0,
        response_format=request.extra.get("response_format"),
        sampling={name: request.options.extra[name] for name in SAMPLING if name in request.options.extra},
    )


class _Offer:
    """The tools of a request: all that are described before the conversation, and the menu of each question.

    A question's menu follows from the question and the turn before alone, so that the conversation is retold with the
    same words in every request, and the server need not read it again.
    """

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self.tools = [tool for tool in tools if tool_name(tool)]
        self.by_name = {tool.name: tool for tool in build_menu(self.tools)}
        self.described = list(self.by_name.values())[:LIMIT_TOOLS]
        self._shown = {tool.name for tool in self.described}
        self.has_menus = len(self.tools) > SMALL_OFFER

    def ranked(self, question: str, recent: Iterable[str]) -> list[MenuTool]:
        """Return the menu of a question."""
        names_file, before = _NAMES_FILE.search(question) is not None, frozenset(recent)
        steps = [question] if is_arithmetic(question) else split_steps(question, PLAN_MAX)
        words = [_NAMES_FILE.sub(" ", step) for step in steps]  # the name of a file is no word about tools
        ranked = [rank_tools(self.tools, step, names_file=names_file, recent=before) for step in words]
        first_of_each = [tool for row in zip_longest(*ranked) for tool in row if tool is not None]
        names = list(dict.fromkeys(map(tool_name, first_of_each)))
        return [self.by_name[name] for name in (names if len(self.tools) <= SMALL_OFFER else names[:MENU_MAX])]

    def menu(self, messages: Sequence[Message]) -> tuple[MenuTool, ...]:
        """Return the menu of the last question, with what this turn has called already."""
        last = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
        question = messages[last].text if last >= 0 else ""
        ranked = self.ranked(question, _called_names(_this_turn(messages[: max(last, 0)])))
        turn = messages[last + 1 :]
        names = {call.id: call.name for m in turn for call in m.tool_calls}
        failed = [names.get(m.tool_call_id or "", "") for m in turn if m.role == "tool" and has_failed(m.text)]
        more = [*_called_names(turn), *(other for name in failed for other in self.others(name, question))]
        chosen = {tool.name: tool for tool in ranked}
        chosen |= {name: self.by_name[name] for name in more if name in self.by_name and name not in chosen}
        return tuple(chosen.values())

    def user_message(self, question: str, recent: Iterable[str]) -> dict[str, Any]:
        """Return the message of a question, with its menu unless all tools are on it."""
        ranked = self.ranked(question, recent)
        if not self.has_menus:
            return user_text(question)
        lines = [with_menu(question, [tool.name for tool in ranked] or ["none"])]
        lines += [full_line(tool) for tool in ranked if tool.name not in self._shown]
        return user_text("\n".join(lines))

    def others(self, failed: str, question: str) -> list[str]:
        """Return the tools that may do what the failed one could not; none if the question names the failed one."""
        if find_named_tool(self.tools, question) == failed:
            return []
        return other_ways(self.tools, failed, question, names_file=_NAMES_FILE.search(question) is not None)


def _called_names(messages: Sequence[Message]) -> list[str]:
    return list(dict.fromkeys(call.name for m in messages for call in m.tool_calls))


def _successes(turn: Sequence[Message]) -> int:
    return sum(m.role == "tool" and not has_failed(m.text) for m in turn)


def _plain_answer(turn: Sequence[Message]) -> str:
    """Return the last result in words, or ""."""
    names = {call.id: call.name for m in turn for call in m.tool_calls}
    last = next((m for m in reversed(turn) if m.role == "tool"), None)
    if last is None:
        return ""
    name = names.get(last.tool_call_id or "", "the tool")
    if (failed := error_object(last.text)) is not None:
        return f"I could not do this: {name} failed: {str(failed['error']).removeprefix(ERROR_MARK)[:300]}"
    return plain_result(name, last.text)


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


def _texts(messages: Sequence[Message], head: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return what an answer may be founded on: questions, results, arguments of calls, and the session's facts."""
    facts = [str(m["content"]) for m in head[1:] if m["role"] == "system"]
    calls = [call.arguments for m in messages for call in m.tool_calls]
    return (*facts, *calls, *(m.text for m in messages if m.role in ("user", "tool")))


def _call_results(turn: Sequence[Message], by_name: Mapping[str, MenuTool]) -> tuple[CallResult, ...]:
    calls = {call.id: call for m in turn for call in m.tool_calls}
    found = []
    for message in turn:
        if message.role == "tool" and (call := calls.get(message.tool_call_id or "")) is not None:
            tool = by_name.get(call.name)
            looks = tool is not None and bool(PLACE_PARAMETERS & (tool.schema.get("properties") or {}).keys())
            about = call.name if tool is None else f"{call.name} {tool.description}"
            found.append(CallResult(message.text, call.arguments, looks, about))
    return tuple(found)


def _takes_files(tools: Sequence[MenuTool]) -> bool:
    return any(FILE_PARAMETERS & tool.parameters["properties"].keys() for tool in tools)


def _names_unread_file(question: str, turn: Sequence[Message]) -> bool:
    """Return whether the question names a file that no call of the turn has in its arguments."""
    named = _NAMES_FILE.search(question)
    return named is not None and not any(Path(named[0]).name in c.arguments for m in turn for c in m.tool_calls)


def _ends_in_failure(turn: Sequence[Message]) -> bool:
    last = list(takewhile(lambda m: m.role == "tool", reversed(turn)))
    return bool(last) and all(has_failed(m.text) for m in last)


def _head(messages: Sequence[Message], offer: _Offer, own_chars: int) -> list[dict[str, Any]]:
    """Return the messages before the conversation.

    What differs between sessions (directory, date, instructions) follows the tools and the examples, so that the server
    does not read those again for the next session.
    """
    own = _last_paragraphs("\n\n".join(m.text for m in messages if m.role == "system"), own_chars)
    tools = offer.described
    if not tools:
        return [_system([f"{_ROLE} Answer briefly and truthfully.", *own])]
    head = [
        _system([f"{_ROLE} {_FORM}", f"Tools:\n{describe_tools(tools)}"]),
        *make_examples(tools, has_menus=offer.has_menus),
    ]
    return [*head, _system(own)] if own else head


def _system(paragraphs: Iterable[str]) -> dict[str, Any]:
    return {"role": "system", "content": "\n\n".join(paragraphs)}


def _place_system(messages: list[dict[str, Any]], place: SystemPlace) -> tuple[dict[str, Any], ...]:
    """Return the messages with their system text where the template takes it."""
    if place == "anywhere":
        return tuple(messages)
    text = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    rest = [m for m in messages if m["role"] != "system"]
    if place == "first" or not rest:
        return _system([text]), *rest
    return user_text(f"{text}\n\n{rest[0]['content']}"), *rest[1:]


def _last_paragraphs(text: str, limit: int) -> list[str]:
    kept: list[str] = []
    for paragraph in reversed([p.strip() for p in text.split("\n\n") if p.strip()]):
        limit -= len(paragraph)
        if limit < 0:
            break
        kept.insert(0, paragraph)
    return kept


def _retell(messages: Sequence[Message], offer: _Offer) -> list[list[dict[str, Any]]]:
    """Return a list for each turn: the user message, the calls with their results, the answer."""
    results = {m.tool_call_id: m for m in messages if m.role == "tool"}
    turns: list[list[dict[str, Any]]] = []
    question, recent, called, steps = "", [], list[str](), list[str]()
    for message in messages:
        if message.role == "user":
            question, recent, called = message.text, called, []
            steps = split_steps(question, PLAN_MAX) if offer.tools and not is_arithmetic(question) else []
            turns.append([offer.user_message(question, recent) if offer.tools else user_text(question)])
        elif message.role == "assistant":
            if not turns:
                turns.append([])
            turn = turns[-1]
            if message.text.strip() and not message.tool_calls:
                text = message.text
                turn.append(final_reply(text) if offer.tools else {"role": "assistant", "content": text})
            for call in message.tool_calls:
                called.append(call.name)
                turn.append(call_reply(call.name, _arguments(call)))
                if call.id in results:
                    text = results[call.id].text
                    others = offer.others(call.name, question) if has_failed(text) else ()
                    shown = format_result(call.name, text, offer.by_name.get(call.name), others)
                    if len(steps) > 1 and not has_failed(text):
                        steps = steps[1:]
                        shown += f"\nNext: {steps[0]}"
                    turn.append(user_text(shown))
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
