"""A request's JSON as bytes. They are those of `json.dumps` over the whole: a provider's prompt cache compares them.

What a message or the tools were encoded as is kept beside them, so that a request costs what is new.

What a wire protocol brings, and what all of them share: how a stream is folded into an answer and what can be wrong.

A protocol is one module that alone knows its vendor's JSON; `models.client` does everything else. A stream is of
server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html
Bytes stay bytes: a piece may end in the middle of a character, and the reader parses each event once.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, RequestOptions, ToolDefinitions
from hermes_agent.core.messages import Message, ToolCall, new_id
from hermes_agent.core.redaction import mask_message
from hermes_agent.core.text import shorten
from hermes_agent.models.errors import ErrorReply
from hermes_agent.models.openai_format import parse_usage
from hermes_agent.models.providers import ModelEndpoint, ModelProvider

MESSAGES_PER_RUN = 64
"""Messages that are kept as one text once there are so many."""
EncodingKey = object
"""Who it is encoded for: a provider's record, which says the wire too. Compared by identity."""


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each name of a field."""


class JsonBytes(bytes):
    """JSON that stands for the value that it is the text of."""


def encode_json(value: Any) -> bytes:
    """Return a value's JSON, short, in UTF-8."""
    if isinstance(value, JsonBytes):
        return value
    # "replace": half a surrogate pair, as undecodable file names have, is no character
    return _encode(value).encode("utf-8", "replace")


def join_mapping(body: Mapping[str, Any]) -> bytes:
    """Return the JSON of a mapping, some of whose values may be `JsonBytes`."""
    parts: list[bytes] = []
    for name, value in body.items():
        parts += (b",", encode_json(name), b":", encode_json(value))
    return b"".join([b"{", *parts[1:], b"}"])  # at once: a long conversation's text is copied as seldom as can be


def join_list(texts: Iterable[bytes]) -> Any:
    """Return the `JsonBytes` of a list of encoded values; `Any`, since it stands for the list."""
    parts: list[bytes] = []
    for text in texts:
        parts += (b",", text)
    return JsonBytes(b"".join([b"[", *parts[1:], b"]"]))


def encode_messages(
    messages: Sequence[Message], key: EncodingKey, make: Callable[[Message], Sequence[Mapping[str, Any]]]
) -> list[Sequence[bytes]]:
    """Return each message's pieces, encoded.

    Args:
        make: returns the pieces of a message; called once for a message that stays and a key.
    """
    return [
        kept[1] if (kept := m.last_encoding) is not None and kept[0] is key else _encode_message(m, key, make)
        for m in messages
    ]


def encode_message_runs(
    messages: Sequence[Message],
    key: EncodingKey,
    make: Callable[[Message], Mapping[str, Any]],
    instead: Mapping[int, bytes] | None = None,
) -> list[bytes]:
    """Return messages' JSON in order, each text one message or a run of them with commas: few for a long conversation.

    Args:
        instead: by place: the text of a message that is sent otherwise this time.
    """
    out: list[bytes] = []
    others = instead or {}
    for begin in range(0, len(messages), MESSAGES_PER_RUN):
        some = messages[begin : begin + MESSAGES_PER_RUN]
        here = [place for place in others if begin <= place < begin + MESSAGES_PER_RUN]
        if len(some) == MESSAGES_PER_RUN and not here:
            out.append(_encode_run(some, key, make))
            continue
        texts = [text for (text,) in encode_messages(some, key, lambda message: [make(message)])]
        for place in here:
            texts[place - begin] = others[place]
        out += texts
    return out


def _encode_run(some: Sequence[Message], key: EncodingKey, make: Callable[[Message], Mapping[str, Any]]) -> bytes:
    last = some[-1]
    if last.run is not None and last.run[0] is key and last.run[1] == some:  # the same objects: quick
        return last.run[2]
    text = b",".join([text for (text,) in encode_messages(some, key, lambda message: [make(message)])])
    for message in some:  # the run has their texts
        object.__setattr__(message, "last_encoding", None)
        object.__setattr__(message, "run", None)
    object.__setattr__(last, "run", (key, some, text))
    return text


def encode_tools(
    tools: Sequence[Mapping[str, Any]], key: EncodingKey, make: Callable[[Sequence[Mapping[str, Any]]], Any] = list
) -> Any:
    """Return the `JsonBytes` of the tools; `make` returns them in the form of the protocol."""
    if not isinstance(tools, ToolDefinitions):
        return JsonBytes(encode_json(make(tools)))
    if tools.encoded is None or tools.encoded[0] is not key:
        tools.encoded = (key, JsonBytes(encode_json(make(tools))))
    return tools.encoded[1]


def _encode_message(
    message: Message, key: EncodingKey, make: Callable[[Message], Sequence[Mapping[str, Any]]]
) -> Sequence[bytes]:
    made = tuple(map(encode_json, make(mask_message(message))))
    object.__setattr__(message, "last_encoding", (key, made))  # no part of its value
    return made


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    data: bytes
    """The `data` lines, joined by line feeds."""
    name: bytes = b""
    """What the `event` field said; empty when it was not there."""


class SseDecoder:
    """Takes a stream piece by piece and gives its events. `id`, `retry` and comments are dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """Yield the events that `piece` completes."""
        text = self._rest + piece
        # a carriage return at the end may be the first half of a line break
        held = b"\r" if text.endswith(b"\r") else b""
        text = text[: len(text) - len(held)]
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        for line in lines:
            if (event := self._line(line)) is not None:
                yield event

    def finish(self) -> Iterator[ServerEvent]:
        """Yield what an end without a blank line leaves; some servers end so after `data: [DONE]`."""
        yield from self.feed(b"\n\n")

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._data, self._name = [], b""
        return ServerEvent(b"\n".join(data), name) if data else None


_FENCE = re.compile(r"^```(?:json)?\s*|\s*```$")
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


def repair_json(text: str) -> str:
    """Return `text` as JSON of an object where only its form is wrong, else `text` as it is.

    A code fence, line breaks inside strings, trailing commas, Python's literals and brackets that are left open are put
    right. A text that ends inside a string is left alone: nobody knows what the rest was.
    """
    if _is_object(text):
        return text
    bare = _FENCE.sub("", text.strip())
    closed = _with_closed_brackets(bare)
    for candidate in (bare, _without_commas(bare), *((closed,) if closed else ())):
        try:
            value = json.loads(candidate, strict=False)
        except ValueError:
            continue
        if isinstance(value, str):  # encoded twice
            return value if _is_object(value) else text
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else text
    try:
        value = ast.literal_eval(bare)
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else text
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _with_closed_brackets(text: str) -> str:
    """Return `text` with the brackets closed that are open at its end; empty when it ends inside a string."""
    ends: list[str] = []
    inside = escaped = False
    for char in text:
        if inside:
            inside, escaped = escaped or char != '"', char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in _CLOSES:
            ends.append(_CLOSES[char])
        elif ends and char == ends[-1]:
            ends.pop()
    if inside or not ends:
        return ""
    return _without_commas(text.rstrip().rstrip(",") + "".join(reversed(ends)))


def _without_commas(text: str) -> str:
    """Return `text` without the commas before a closing bracket; strings stay as they are."""
    return _STRING_OR_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text)


EXCERPT = 80
"""Characters of a malformed chunk that the message shows."""


class MalformedReply(Exception):
    """A chunk is not what the protocol has; the message quotes it."""


class ErrorReplyReceived(Exception):
    """A chunk is an error object."""

    def __init__(self, complaint: ErrorReply) -> None:
        super().__init__(complaint.message)
        self.error_reply = complaint


class WireProtocol:
    """One protocol."""

    name: str
    """Value of a profile's `api_mode`."""
    builder: type[AnswerBuilder]
    """Puts one answer together."""

    def path(self, endpoint: ModelEndpoint) -> str:
        """Return where requests go, below the address of the endpoint."""
        raise NotImplementedError

    unsupported_options: frozenset[str] = frozenset()
    """Options of a request that the protocol has no word for (`RequestOptions.values`)."""

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """As `ModelClient.unsupported`, as far as the protocol decides it."""
        name = next((name for name in options.values() if name in self.unsupported_options), None)
        return None if name is None else (name, f"its protocol ({self.name}) has no such field")

    def headers(self, endpoint: ModelEndpoint) -> dict[str, str]:
        """Return the headers that every request bears, the key included where there is one."""
        return {"authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}

    def body(self, request: ModelRequest, endpoint: ModelEndpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON. Its order is always the same: a provider's prompt cache compares bytes.

        Args:
            fields: what the profile adds.
        """
        raise NotImplementedError


class AnswerBuilder:
    """Puts the chunks of one answer together; a protocol says what is in a chunk."""

    whole: tuple[str, ...] = ()
    """Keys by which a body that is no stream is known to be an answer, or an error."""

    def __init__(self, provider: ModelProvider, model: str) -> None:
        self.provider = provider
        self.has_begun = False
        """A chunk of the answer has come."""
        self.finish_reason = ""
        self.is_done = False
        """The stream has said that nothing more comes."""
        self.model = model
        self.text: list[str] = []
        self.usage: dict[str, Any] = {}
        """As the provider has it."""
        self._number = 0

    def event(self, event: ServerEvent) -> str:
        """Add one event; return the text that it brings. Raises Malformed, Complained."""
        if event.data == b"[DONE]":
            self.is_done = True
            return ""
        chunk = parse_json(event.data)
        if not isinstance(chunk, dict):
            raise malformed_chunk(self._number + 1, event.data)
        if event.name == b"error":
            raise ErrorReplyReceived(self.read_error(chunk))
        return self.add(chunk)

    def add(self, chunk: dict[str, Any]) -> str:
        """Add one chunk, or a whole answer; return the text that it brings. Raises Malformed, Complained."""
        self._number += 1
        try:
            text = self.chunk(chunk)
        except (TypeError, AttributeError, ValueError, KeyError):
            raise malformed_chunk(self._number, json.dumps(chunk).encode()) from None
        if text:
            self.text.append(text)
        return text

    def chunk(self, chunk: dict[str, Any]) -> str:
        """Add a chunk and return its text. An error other than `ErrorReplyReceived` means a malformed chunk."""
        raise NotImplementedError

    def read_error(self, value: Any) -> ErrorReply:
        """Read an error object of a stream."""
        return parse_error_reply(value)

    def calls(self) -> Iterable[Mapping[str, str]]:
        """Return `id`, `name` and `arguments` of each tool call."""
        raise NotImplementedError

    def extras(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        """Return what the provider wants back with the message, beside what the message has."""
        raise NotImplementedError

    def answer(self) -> ModelAnswer:
        """Return the whole. Raises Malformed: a tool call has no name."""
        calls = _make_tool_calls(self.calls(), self.finish_reason)
        extras = self.extras(calls)
        told = {self.provider.name: extras} if extras else None
        message = Message("assistant", "".join(self.text), calls, extras=told)
        return ModelAnswer(message, self.finish_reason, parse_usage(self.usage), self.model)


def provider_extras(message: Message, provider: str) -> Mapping[str, Any]:
    """Return what `AnswerBuilder.extras` of this provider kept with a message."""
    extras = message.extras.get(provider) if message.extras else None
    return extras if isinstance(extras, dict) else {}


def _make_tool_calls(calls: Iterable[Mapping[str, str]], finish_reason: str) -> tuple[ToolCall, ...]:
    """Return tool calls from their `id`, `name` and `arguments`; one without arguments has `{}`.

    Arguments that are no JSON are mended where only their form is wrong; those of an answer that was cut off at its
    limit stay as they are, and whoever runs the call refuses them.

    Raises:
        MalformedReply: a call has no name.
    """
    made = []
    for call in calls:
        if not call["name"]:
            raise MalformedReply("a tool call came without a name")
        arguments = call["arguments"].strip() or "{}"
        if finish_reason != "length":
            arguments = repair_json(arguments)
        made.append(ToolCall(call["id"] or new_id("call"), call["name"], arguments))
    return tuple(made)


def parse_error_reply(value: Any, *, status: int | None = None, retry_after_s: float | None = None) -> ErrorReply:
    """Read an error object in any of the shapes that servers give it."""
    if isinstance(value, list):  # Gemini
        value = value[0] if value else None
    if not isinstance(value, dict):
        return ErrorReply(value if isinstance(value, str) else "", status=status, retry_after_s=retry_after_s)
    error = value.get("error") or value
    if not isinstance(error, dict):
        error = {**value, "message": error}
    message = error.get("message") or error.get("detail") or ""
    if not isinstance(message, str):
        message = json.dumps(message)
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):  # OpenRouter: the words of the one behind
        message = f"{message}: {metadata['raw']}"
    code = error.get("code")
    if status is None and isinstance(code, int) and 400 <= code <= 599:
        status = code
    word = code if isinstance(code, str) else error.get("type") or error.get("status") or ""
    return ErrorReply(message, str(word), status, first_given(retry_after_s, _retry_info(error.get("details"))))


def _retry_info(details: Any) -> float | None:
    """Seconds out of Google's `RetryInfo` (`"retryDelay": "37s"`)."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        with contextlib.suppress(ValueError):
            if isinstance(delay, str):
                return float(delay.removesuffix("s"))
    return None


def parse_json(data: bytes | str) -> Any:
    """Parse; None for what is no JSON (UnicodeDecodeError is a ValueError, too)."""
    try:
        return json.loads(data)
    except ValueError:
        return None


def first_given(*values: Any) -> Any:
    """Return the first that is not None."""
    return next((value for value in values if value is not None), None)


def malformed_chunk(number: int, data: bytes) -> MalformedReply:
    """Return the error for chunk `number`."""
    text = shorten(data.decode("utf-8", "replace"), EXCERPT + 1)
    return MalformedReply(f"chunk {number} is malformed: {text!r}")
