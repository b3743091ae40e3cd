"""The chat-completions wire, streaming: the one file that knows its JSON.

https://platform.openai.com/docs/api-reference/chat, and where providers differ from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Protocol

from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import Message, ToolCall, Usage
from hermes_agent.models import failures
from hermes_agent.models.endpoint import Endpoint
from hermes_agent.models.event_stream import EventDecoder, ServerEvent
from hermes_agent.models.failures import Complaint
from hermes_agent.models.request import ModelAnswer, ModelDelta, ModelRequest, TextPart
from hermes_agent.models.request_body import Prepared, has_code, prepare
from hermes_agent.models.transport import Broken, Deadlines, Reply, Transport, load_sdk

__all__ = ["ChatCompletions", "RunHooks"]

LONGEST_WHOLE_BODY = 8 * 1024 * 1024
"""Bytes of a body that is not a stream."""
DRAIN_S = 0.25
"""How long the end of a connection is waited for after the end of the stream."""
HOOKS_LIMIT_S = 10.0
"""Longest wait for the hooks of a profile."""
EXCERPT = 80
"""Characters of a malformed chunk that the message shows."""


class RunHooks(Protocol):
    """Runs a function in a worker thread (`Bridge.run`)."""

    async def __call__(self, fn: Callable[..., Prepared], *args: Any, deadline_s: float | None = None) -> Prepared: ...


class _Malformed(Exception):
    """A chunk is not what the protocol has; the message quotes it."""


class _Complained(Exception):
    """A chunk is an error object."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(complaint.message)
        self.complaint = complaint


class ChatCompletions:
    """A provider that speaks chat completions.

    Args:
        endpoint: where, and with which key.
        deadlines: how long to wait.
        run_hooks: runs the hooks of a plugin's profile off the loop; None runs them on it.
    """

    def __init__(
        self, endpoint: Endpoint, deadlines: Deadlines | None = None, run_hooks: RunHooks | None = None
    ) -> None:
        self.provider = endpoint.provider.name
        self.base_url = endpoint.base_url
        self._endpoint = endpoint
        self._run_hooks = run_hooks
        self._transport = Transport(endpoint, deadlines or Deadlines())
        self._first = ""
        """The first model that the server listed; empty before it was asked."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Ask, and yield the answer as it comes (see `ModelClient.stream`)."""
        self._check_key(request.model)
        if not request.model:
            request = dataclasses.replace(request, model=await self._first_model())
        fold = _Fold(request.model)
        prepared = await self._prepared(request)
        try:
            async with (
                self._transport.post(prepared.body, prepared.headers) as reply,
                contextlib.aclosing(self._texts(request.model, reply, fold)) as texts,
            ):
                async for text in texts:
                    yield TextPart(text)
        except Broken as exc:
            if not fold.begun:
                raise failures.unreachable(self._endpoint, request.model, str(exc)) from exc
            if not fold.finish_reason:
                raise failures.cut_off(self._endpoint, request.model, str(exc)) from exc
            # it had said that it was finished: what is lost is at most the usage
        except _Malformed as exc:
            # not `from exc`: its text is not yet free of secrets
            raise failures.cut_off(self._endpoint, request.model, str(exc)) from None
        except _Complained as exc:
            raise failures.from_complaint(self._endpoint, request.model, exc.complaint, streaming=fold.begun) from None
        yield self._answer(request.model, fold)

    def warm_up(self) -> None:
        """Import the SDK (see `ModelClient.warm_up`)."""
        load_sdk()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _prepared(self, request: ModelRequest) -> Prepared:
        if self._run_hooks is None or not has_code(self._endpoint.provider.profile):
            return prepare(request, self._endpoint)
        try:
            return await self._run_hooks(prepare, request, self._endpoint, deadline_s=HOOKS_LIMIT_S)
        except TimeoutError:
            why = f"was not asked: its profile needed more than {HOOKS_LIMIT_S:g} seconds for the request"
            raise failures.refused(self._endpoint, request.model, why) from None

    def _check_key(self, model: str) -> None:
        key = self._endpoint.key
        if not key and self._endpoint.provider.needs_key:
            raise failures.no_key(self._endpoint, model)
        # the HTTP library would quote the whole header in its error
        wrong = next((at for at, char in enumerate(key, 1) if not "!" <= char <= "~"), None)
        if wrong is not None:
            raise failures.not_a_key(self._endpoint, model, f"its character {wrong} of {len(key)} cannot be in a key")

    async def _first_model(self) -> str:
        """Return the first model that the server lists; a server of one's own serves what it has loaded."""
        if self._first:
            return self._first
        wanted = "(the first of its list)"
        try:
            async with self._transport.models() as reply:
                value = _json(await _read(reply))
        except Broken as exc:
            raise failures.unreachable(self._endpoint, wanted, str(exc)) from exc
        if reply.status >= 400:
            said = _complaint(value, status=reply.status, retry_after_s=reply.retry_after_s)
            raise failures.from_complaint(self._endpoint, wanted, said)
        entries = value.get("data") if isinstance(value, dict) else value
        ids = [e.get("id") for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        if not ids or not isinstance(ids[0], str):
            hint = "Name one with `hermes config set model.default NAME`."
            raise failures.refused(self._endpoint, wanted, "lists no model", hint=hint)
        self._first = ids[0]
        return self._first

    async def _texts(self, model: str, reply: Reply, fold: _Fold) -> AsyncGenerator[str, None]:
        """Yield the pieces of text of an answer, folding everything into `fold`."""
        if reply.status >= 400 or reply.content_type in ("application/json", "text/html"):
            if text := fold.add(_whole_answer(self._endpoint, model, reply, await _read(reply))):
                yield text
            return
        decoder = EventDecoder()
        async for piece in reply.pieces:
            for event in decoder.feed(piece):
                if text := fold.event(event):
                    yield text
            if fold.done:
                await _drain(reply)
                return
        for event in decoder.finish():
            if text := fold.event(event):
                yield text

    def _answer(self, model: str, fold: _Fold) -> ModelAnswer:
        """The whole answer, if it is one."""
        if not fold.finish_reason:
            why = "the stream ended without a finish reason" if fold.begun else "the stream ended before a word"
            raise failures.cut_off(self._endpoint, model, why)
        try:
            answer = fold.answer()
        except _Malformed as exc:
            raise failures.cut_off(self._endpoint, model, str(exc)) from None
        if answer.message.content or answer.message.tool_calls:
            return answer
        if fold.finish_reason == "length":
            raise failures.cut_off(self._endpoint, model, "the limit of tokens was spent before the first word")
        if fold.finish_reason == "content_filter":
            why = "withheld the answer: its content filter objects to it"
            raise failures.refused(self._endpoint, model, why, hint="Ask in other words.")
        why = f"answered with nothing, and gave {self._endpoint.quote(fold.finish_reason, EXCERPT)!r} as the reason"
        raise failures.empty(self._endpoint, model, why)


class _Fold:
    """Puts the chunks of one answer together."""

    def __init__(self, model: str) -> None:
        self.begun = False
        """A chunk of the answer has come."""
        self.finish_reason = ""
        self.done = False
        """The stream has said that nothing more comes."""
        self._model = model
        self._text: list[str] = []
        self._calls = _CallFold()
        self._usage: dict[str, Any] = {}
        self._count = 0

    def event(self, event: ServerEvent) -> str:
        """Add one event; return the text that it brings.

        Raises:
            _Malformed, _Complained
        """
        if event.data == b"[DONE]":
            self.done = True
            return ""
        chunk = _json(event.data)
        if not isinstance(chunk, dict):
            raise _malformed(self._count + 1, event.data)
        if event.name == b"error":
            raise _Complained(_complaint(chunk))
        return self.add(chunk)

    def add(self, chunk: dict[str, Any]) -> str:
        """Add one chunk, or a whole completion; return the text that it brings.

        Raises:
            _Malformed, _Complained
        """
        self._count += 1
        try:
            return self._add(chunk)
        except (TypeError, AttributeError, ValueError):
            raise _malformed(self._count, json.dumps(chunk).encode()) from None

    def _add(self, chunk: dict[str, Any]) -> str:
        if chunk.get("error") or chunk.get("object") == "error":
            raise _Complained(_complaint(chunk))
        self.begun = True
        self._model = str(chunk.get("model") or self._model)
        # Groq has it one level down; some repeat it, growing, in each chunk
        if usage := chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage"):
            self._usage = dict(usage)
        choice = next((c for c in chunk.get("choices") or () if not c.get("index")), None)
        if choice is None:
            return ""
        if choice.get("error"):
            raise _Complained(_complaint(choice))
        self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
        delta = choice.get("delta") or choice.get("message") or {}
        self._calls.add(delta.get("tool_calls") or ())
        text = _text(delta.get("content")) + _text(delta.get("refusal"))
        if text:
            self._text.append(text)
        return text

    def answer(self) -> ModelAnswer:
        """Return the whole.

        Raises:
            _Malformed: a tool call has no name.
        """
        message = Message("assistant", "".join(self._text), self._calls.calls())
        return ModelAnswer(message, self.finish_reason, _usage(self._usage), self._model)


class _CallFold:
    """Puts tool calls together from their pieces.

    A piece belongs to the call of its `index`. Where a provider leaves that out, or gives every call the same
    one, a new id begins a new call, and so does a name after a call whose arguments are whole.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, str]] = []
        self._at: dict[int, dict[str, str]] = {}

    def add(self, pieces: Iterable[dict[str, Any]]) -> None:
        """Add the pieces of one chunk."""
        for piece in pieces:
            function = piece.get("function") or {}
            name, given_id = str(function.get("name") or ""), str(piece.get("id") or "")
            index = piece.get("index")
            call = self._at.get(index) if isinstance(index, int) else (self._calls[-1] if self._calls else None)
            if call is None or _begins_another(call, given_id, name, by_index=isinstance(index, int)):
                call = {"id": given_id, "name": "", "arguments": ""}
                self._calls.append(call)
                if isinstance(index, int):
                    self._at[index] = call
            call["id"] = call["id"] or given_id
            if name != call["name"] and not call["arguments"]:
                call["name"] += name
            arguments = function.get("arguments")
            call["arguments"] += arguments if isinstance(arguments, str) else _as_json(arguments)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls in the order in which they began; one without arguments has `{}`."""
        for call in self._calls:
            if not call["name"]:
                raise _Malformed("a tool call came without a name")
        return tuple(
            ToolCall(call["id"] or new_id("call"), call["name"], call["arguments"].strip() or "{}")
            for call in self._calls
        )


def _begins_another(call: dict[str, str], given_id: str, name: str, *, by_index: bool) -> bool:
    if given_id and call["id"]:
        return given_id != call["id"] and bool(name)
    return not by_index and bool(name) and _is_json(call["arguments"])


def _whole_answer(endpoint: Endpoint, model: str, reply: Reply, data: bytes) -> dict[str, Any]:
    """Read a body that is no stream: an error, or a completion from a server that does not stream.

    Raises:
        ModelError, _Malformed, _Complained
    """
    value = _json(data)
    if isinstance(value, dict) and reply.status < 400 and ("choices" in value or "error" in value):
        return value
    said = _complaint(value, status=reply.status, retry_after_s=reply.retry_after_s)
    if reply.status >= 400:
        # a path that does not exist is often answered with a page
        raise failures.from_complaint(endpoint, model, said)
    if reply.content_type == "text/html" or value is not None:
        what = "a web page" if value is None else "JSON that is no completion"
        raise failures.not_an_api(endpoint, model, said, what)
    raise _malformed(1, data)


async def _read(reply: Reply) -> bytes:
    data = bytearray()
    async for piece in reply.pieces:
        data += piece
        if len(data) > LONGEST_WHOLE_BODY:
            raise _Malformed(f"a body that is no stream has more than {LONGEST_WHOLE_BODY} bytes")
    return bytes(data)


async def _drain(reply: Reply) -> None:
    """Read what is left of a stream that is over, so that its connection can be used again."""
    with contextlib.suppress(TimeoutError, Broken):
        async with asyncio.timeout(DRAIN_S):
            async for _ in reply.pieces:
                continue


def _complaint(value: Any, *, status: int | None = None, retry_after_s: float | None = None) -> Complaint:
    """Read an error object in any of the shapes that servers give it."""
    if isinstance(value, list):  # Gemini
        value = value[0] if value else None
    if not isinstance(value, dict):
        return Complaint(value if isinstance(value, str) else "", status=status, retry_after_s=retry_after_s)
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
    return Complaint(message, str(word), status, _first(retry_after_s, _retry_info(error.get("details"))))


def _retry_info(details: Any) -> float | None:
    """Seconds out of Google's `RetryInfo` (`"retryDelay": "37s"`)."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        with contextlib.suppress(ValueError):
            if isinstance(delay, str):
                return float(delay.removesuffix("s"))
    return None


def _usage(value: dict[str, Any]) -> Usage:
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        input_tokens=_count(value.get("prompt_tokens")),
        output_tokens=_count(value.get("completion_tokens")),
        cached_tokens=_count(_first(cached, value.get("prompt_cache_hit_tokens"))),  # the second is DeepSeek's
        details=value,
    )


def _text(content: Any) -> str:
    """The text of a delta's content: a string, or parts of which those that are text count."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError(f"content is {type(content).__name__}")
    return content or ""


def _as_json(arguments: Any) -> str:
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def _json(data: bytes) -> Any:
    """Parse; None for what is no JSON (UnicodeDecodeError is a ValueError, too)."""
    try:
        return json.loads(data)
    except ValueError:
        return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _malformed(number: int, data: bytes) -> _Malformed:
    text = data.decode("utf-8", "replace")
    if len(text) > EXCERPT:
        text = text[:EXCERPT] + "…"
    return _Malformed(f"chunk {number} is malformed: {text!r}")
