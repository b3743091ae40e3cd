"""Base of the wire protocols: encode requests, decode streams, build answers, read errors.

A protocol is one module that alone knows its vendor's JSON; `models.client` does everything else.

A request is encoded to the same bytes as `json.dumps` over the whole, since a provider's prompt cache compares bytes.
The encoding of a message or of the tools is kept with it, so that a request costs what is new.

A stream has server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html
It is read as bytes, since a piece may end in the middle of a character.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, RequestOptions, ToolDefinitions
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message, ToolCall, begins_with, new_id
from hermes_agent.core.redaction import mask_message
from hermes_agent.core.text import shorten
from hermes_agent.models.errors import ErrorReply
from hermes_agent.models.openai_format import parse_usage
from hermes_agent.models.providers import ModelEndpoint, ModelProvider

RUN_SIZES = (512, 64, 8)
"""Numbers of messages that are kept as one encoded text; runs of the first number are kept as one text together."""
EncodingKey = object
"""Key of an encoding: the record of a provider, with its protocol. Compared by identity."""


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each field name."""
_decode = json.JSONDecoder().decode
"""`json.loads` would guess the encoding of each chunk; a stream has one."""


class JsonBytes(bytes):
    """JSON text that stands for its value."""


class JsonPieces(tuple[bytes, ...]):
    """Pieces of a JSON text that stands for its value."""


def encode_json(value: Any) -> bytes:
    """Return the JSON of a value without blanks, in UTF-8."""
    if isinstance(value, JsonBytes):
        return value
    if isinstance(value, JsonPieces):
        return b"".join(value)
    # "replace": half a surrogate pair, as in undecodable file names, is no character
    return _encode(value).encode("utf-8", "replace")


@functools.lru_cache(maxsize=256)
def _encode_name(name: str) -> bytes:
    """Return a field name with its colon."""
    return encode_json(name) + b":"


def mapping_pieces(body: Mapping[str, Any]) -> list[bytes]:
    """Return the JSON of a mapping in pieces; `JsonBytes` and `JsonPieces` may be values of it."""
    parts: list[bytes] = []
    for name, value in body.items():
        parts += (b",", _encode_name(name))
        if isinstance(value, JsonPieces):
            parts += value
        else:
            parts.append(encode_json(value))
    return [b"{", *parts[1:], b"}"]


def join_list(texts: Iterable[bytes]) -> Any:
    """Return the `JsonPieces` of a list of encoded values; `Any`, since they stand for the list."""
    parts = [b"["]
    for text in texts:
        parts += (text, b",")
    if len(parts) > 1:
        parts.pop()
    return JsonPieces((*parts, b"]"))


def encode_messages(
    messages: Sequence[Message], key: EncodingKey, make: Callable[[Message], Sequence[Mapping[str, Any]]]
) -> list[Sequence[bytes]]:
    """Return the encoded pieces of each message; `make` is called once for each message and key."""
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
    """Return the JSON of messages in order, in few texts: one message each, or a run with commas.

    Args:
        instead: by index, the text of a message that differs in this request.
    """

    def encode(some: Sequence[Message]) -> list[bytes]:
        return [text for (text,) in encode_messages(some, key, lambda message: [make(message)])]

    whole = messages if isinstance(messages, list) else list(messages)
    others = instead or {}
    begin = 1 if whole and whole[0].role == "system" else 0  # it may change, and what follows is still good
    unchanged = min((place for place in others if place >= begin), default=len(whole))
    end = unchanged - (unchanged - begin) % RUN_SIZES[-1]
    prompt = [others.get(0) or text for text in encode(whole[:begin])]
    singles = [others.get(place) or text for place, text in enumerate(encode(whole[end:]), end)]
    return [*prompt, *(text for _, text in _encode_runs(whole, begin, end, key, encode)), *singles]


class EncodedRuns(LazyNamedTuple):
    """The encoding of the beginning of a conversation; it is kept with the last message of it."""

    key: EncodingKey
    messages: list[Message]
    """All of it; a system prompt at its front is no part of the texts."""
    texts: list[tuple[int, bytes]]
    """Runs in order: the number of messages of each (of `RUN_SIZES`, or a multiple), and their text."""


def _encode_runs(
    whole: list[Message], begin: int, end: int, key: EncodingKey, encode: Callable[[Sequence[Message]], list[bytes]]
) -> list[tuple[int, bytes]]:
    """Return the runs of the messages from `begin` to `end`, which are a multiple of the shortest run."""
    shortest, known, kept = RUN_SIZES[-1], begin, EncodedRuns(key, whole[:begin], [])
    for last in range(end - 1, begin, -shortest):
        found: EncodedRuns | None = whole[last].runs
        if found is not None and found.key is key and len(found.messages) == last + 1:
            found.messages[:begin] = whole[:begin]
            if begins_with(whole, found.messages):
                known, kept = last + 1, found
                break
    texts = list(kept.texts)
    if known >= end:
        return texts
    for place in range(known, end, shortest):
        _add_run(texts, shortest, b",".join(encode(whole[place : place + shortest])))
    for place in range(max(begin, known - 1), len(whole)):
        object.__setattr__(whole[place], "runs", None)  # an earlier, longer history is not kept in memory
        if place < end:
            object.__setattr__(whole[place], "last_encoding", None)  # the runs have its text
    kept.messages.extend(whole[known:end])  # no message has `kept` any more, and a copy costs more
    object.__setattr__(whole[end - 1], "runs", EncodedRuns(key, kept.messages, texts))
    return texts


def _add_run(texts: list[tuple[int, bytes]], size: int, text: bytes) -> None:
    """Add a run; the last runs become a longer one as soon as they are as many messages."""
    texts.append((size, text))
    for longer in reversed(RUN_SIZES[:-1]):
        size = texts[-1][0]
        last = texts[-longer // size :]
        if sum(count for count, _ in last if count == size) != longer:
            return
        texts[-len(last) :] = [(longer, b",".join(text for _, text in last))]
    if len(texts) == 2:
        texts[:] = [(sum(count for count, _ in texts), b",".join(text for _, text in texts))]


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


@lazy_dataclass(frozen=True, slots=True)
class ServerEvent:
    """One server-sent event."""

    data: bytes
    """The `data` lines, joined by line feeds."""
    name: bytes = b""
    """The field `event`, or b"" without one."""


class SseDecoder:
    """Decoder of server-sent events; drops `id`, `retry` and comments."""

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
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.removeprefix(b" ")
            elif not line:
                data, name = self._data, self._name
                self._data, self._name = [], b""
                if data:
                    yield ServerEvent(b"\n".join(data), name)

    def finish(self) -> Iterator[ServerEvent]:
        """Yield the last event of a stream that ends without a blank line."""
        yield from self.feed(b"\n\n")


_FENCE = re.compile(r"^```(?:json)?\s*|\s*```$")
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


def repair_json(text: str) -> str:
    """Return `text` as JSON of an object if only its form is wrong, else `text` unchanged.

    A code fence, line breaks in strings, trailing commas, Python literals and open brackets are repaired. A text that
    ends inside a string is not: its rest is unknown.
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
    """Return `text` with its open brackets closed, or "" if it ends inside a string."""
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
    """Return `text` without commas before a closing bracket; strings stay unchanged."""
    return _STRING_OR_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text)


EXCERPT = 80
"""Characters of a malformed chunk that a message quotes."""


class MalformedReply(Exception):
    """A chunk does not follow the protocol; the message quotes it."""


class ErrorReplyReceived(Exception):
    """A chunk is an error object."""

    def __init__(self, reply: ErrorReply) -> None:
        super().__init__(reply.message)
        self.error_reply = reply


class WireProtocol:
    """Base of the wire protocols."""

    name: str
    """Value of a profile's `api_mode`."""
    builder: type[AnswerBuilder]
    """Builder of one answer."""

    def path(self, endpoint: ModelEndpoint) -> str:
        """Return the path of requests below the base URL of the endpoint."""
        raise NotImplementedError

    unsupported_options: frozenset[str] = frozenset()
    """Options of a request that the protocol lacks (`RequestOptions.values`)."""

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return the first option that the protocol lacks (see `ModelClient.unsupported`)."""
        name = next((name for name in options.values() if name in self.unsupported_options), None)
        return None if name is None else (name, f"its protocol ({self.name}) has no such field")

    def headers(self, endpoint: ModelEndpoint) -> dict[str, str]:
        """Return the headers of every request, with the key if there is one."""
        return {"authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}

    def body(self, request: ModelRequest, endpoint: ModelEndpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body, always in the same order: a provider's prompt cache compares bytes.

        Args:
            fields: additional fields of the profile.
        """
        raise NotImplementedError


class AnswerBuilder:
    """Builder of one answer from its chunks; a subclass reads the chunks of its protocol."""

    whole: tuple[str, ...] = ()
    """Keys of a body that is not a stream and is an answer or an error."""

    def __init__(self, provider: ModelProvider, model: str) -> None:
        self.provider = provider
        self.has_begun = False
        """Whether a chunk of the answer has arrived."""
        self.finish_reason = ""
        self.is_done = False
        """Whether the stream has announced its end."""
        self.model = model
        self.text: list[str] = []
        self.reasoning = ""
        """Reasoning that was streamed since `take_reasoning`."""
        self.usage: dict[str, Any] = {}
        """As the provider reports it."""
        self._number = 0

    def event(self, event: ServerEvent) -> str:
        """Add one event; return its text. Raise MalformedReply or ErrorReplyReceived."""
        if event.data == b"[DONE]":
            self.is_done = True
            return ""
        try:
            chunk = _decode(event.data.decode("utf-8", "surrogatepass"))
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            raise malformed_chunk(self._number + 1, event.data)
        if event.name == b"error":
            raise ErrorReplyReceived(self.read_error(chunk))
        return self.add(chunk)

    def add(self, chunk: dict[str, Any]) -> str:
        """Add one chunk or a whole answer; return its text. Raise MalformedReply or ErrorReplyReceived."""
        self._number += 1
        try:
            text = self.chunk(chunk)
        except (TypeError, AttributeError, ValueError, KeyError):
            raise malformed_chunk(self._number, json.dumps(chunk).encode()) from None
        if text:
            self.text.append(text)
        return text

    def take_reasoning(self) -> str:
        """Return the reasoning that was streamed since the last call, or ""."""
        text, self.reasoning = self.reasoning, ""
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
        """Return additional fields that the provider expects to get back with the message."""
        raise NotImplementedError

    def answer(self) -> ModelAnswer:
        """Return the complete answer. Raise MalformedReply if a tool call has no name."""
        calls = _make_tool_calls(self.calls(), self.finish_reason)
        extras = self.extras(calls)
        by_provider = {self.provider.name: extras} if extras else None
        message = Message("assistant", "".join(self.text), calls, extras=by_provider)
        return ModelAnswer(message, self.finish_reason, parse_usage(self.usage), self.model)


def provider_extras(message: Message, provider: str) -> Mapping[str, Any]:
    """Return the fields that `AnswerBuilder.extras` of this provider kept with a message."""
    extras = message.extras.get(provider) if message.extras else None
    return extras if isinstance(extras, dict) else {}


def _make_tool_calls(calls: Iterable[Mapping[str, str]], finish_reason: str) -> tuple[ToolCall, ...]:
    """Return tool calls from their `id`, `name` and `arguments`; missing arguments are `{}`.

    Arguments that are no JSON are repaired if only their form is wrong. Those of an answer that was cut at its limit
    stay unchanged, so that the call is rejected.

    Raises:
        MalformedReply: a call has no name.
    """
    tool_calls = []
    for call in calls:
        if not call["name"]:
            raise MalformedReply("a tool call came without a name")
        arguments = call["arguments"].strip() or "{}"
        if finish_reason != "length":
            arguments = repair_json(arguments)
        tool_calls.append(ToolCall(call["id"] or new_id("call"), call["name"], arguments))
    return tuple(tool_calls)


def parse_error_reply(value: Any, *, status: int | None = None, retry_after_s: float | None = None) -> ErrorReply:
    """Return the error in an error object of any server."""
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
    if isinstance(metadata, dict) and isinstance(
        metadata.get("raw"), str
    ):  # OpenRouter: the text of the provider behind it
        message = f"{message}: {metadata['raw']}"
    code = error.get("code")
    if status is None and isinstance(code, int) and 400 <= code <= 599:
        status = code
    word = code if isinstance(code, str) else error.get("type") or error.get("status") or ""
    wait_s = first_given(retry_after_s, _retry_info(error.get("details")))
    return ErrorReply(message, str(word), status, wait_s, value)


def _retry_info(details: Any) -> float | None:
    """Return the seconds in Google's RetryInfo (`"retryDelay": "37s"`), or None."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        with contextlib.suppress(ValueError):
            if isinstance(delay, str):
                return float(delay.removesuffix("s"))
    return None


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text, or None if it is no JSON."""
    try:
        return json.loads(data)
    except ValueError:
        return None


def first_given(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def malformed_chunk(number: int, data: bytes) -> MalformedReply:
    """Return the error for chunk `number`."""
    text = shorten(data.decode("utf-8", "replace"), EXCERPT + 1)
    return MalformedReply(f"chunk {number} is malformed: {text!r}")
