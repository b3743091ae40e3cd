"""`ScriptedModel`: a model with scripted answers that records its requests; and its server.

The server speaks the OpenAI chat-completions protocol on a loopback address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Message, ToolCall, Usage, new_id
from hermes_agent.models.openai_format import to_response
from hermes_agent.runtime.loops import LoopThread

__all__ = ["ModelFailure", "ModelServer", "Reply", "ScriptedAnswer", "ScriptedModel", "call", "make_reply", "served"]


@lazy_dataclass(frozen=True, slots=True)
class ModelFailure:
    """An error that the server returns in place of an answer."""

    message: str
    status: int = 500
    """HTTP status: 401 for a wrong key, 429 for too many requests, 5xx for a server error."""
    retry_after_s: float | None = None
    """Value of the header `Retry-After`, in seconds."""


@lazy_dataclass(frozen=True, slots=True)
class Reply:
    """An assistant message: text and tool calls."""

    text: str
    calls: tuple[ToolCall, ...] = ()


Plain = str | Mapping[str, Any] | ToolCall | Sequence[ToolCall] | Reply | ModelFailure
ScriptedAnswer = Plain | Callable[[dict[str, Any]], Plain]
"""Text; a mapping, sent as JSON text; one or more tool calls; a `Reply` with both; a failure; or a function that takes
the request body and returns one of these."""


def call(tool: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> ToolCall:
    """Return a tool call for a script: `call("roll", sides=6)` or `call("roll", {"sides": 6})`."""
    return ToolCall(new_id("call"), tool, json.dumps({**(arguments or {}), **more}))


def make_reply(answer: ScriptedAnswer, request: dict[str, Any]) -> Reply | ModelFailure:
    """Return the message or failure that a scripted answer stands for.

    Raises:
        TypeError: `answer` has an unsupported type.
    """
    if callable(answer):
        answer = answer(request)
    if isinstance(answer, (ModelFailure, Reply)):
        return answer
    if isinstance(answer, str):
        return Reply(answer)
    if isinstance(answer, ToolCall):
        return Reply("", (answer,))
    if isinstance(answer, Mapping):
        return Reply(json.dumps(answer))
    calls = tuple(item for item in answer if isinstance(item, ToolCall)) if isinstance(answer, Sequence) else ()
    if calls and len(calls) == len(answer):
        return Reply("", calls)
    raise TypeError(f"a scripted model cannot answer {answer!r}: expected text, a mapping, call(…) or ModelFailure(…)")


USED_UP_STATUS = 400
"""HTTP status if the script has no answer: one after which callers do not retry."""


class ScriptedModel:
    """A model that answers request N with answer N. It is thread-safe.

    Requests may come from any caller: a turn, `ctx.llm`, another program.

    Args:
        answers: texts, mappings, `call(…)`, lists of calls, `ModelFailure` objects, or functions of the request body.
        name: name of the model in requests and answers.
        usage: fields of `usage` in each answer (`cost`, …), added to or replacing the word counts.
    """

    def __init__(
        self, *answers: ScriptedAnswer, name: str = "scripted-model", usage: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.usage = dict(usage or {})
        self.requests: list[dict[str, Any]] = []
        """Body of each request so far: `messages`, `tools`, `response_format`, …"""
        self._answers = list(answers)
        self._lock = threading.Lock()

    def say(self, *answers: ScriptedAnswer) -> None:
        """Append answers to the script."""
        with self._lock:
            self._answers.extend(answers)

    @property
    def unused(self) -> int:
        """Return the number of answers that are left."""
        return len(self._answers)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the last request.

        Raises:
            LookupError: there was no request.
        """
        found: list[dict[str, Any]] = self._last["messages"]
        return found

    @property
    def tools(self) -> list[str]:
        """Return the names of the tools in the last request.

        Raises:
            LookupError: there was no request.
        """
        return [tool["function"]["name"] for tool in self._last.get("tools") or ()]

    @property
    def _last(self) -> dict[str, Any]:
        if not self.requests:
            raise LookupError("the scripted model was not asked")
        return self.requests[-1]

    def answer(self, request: dict[str, Any]) -> Reply | ModelFailure:
        """Record a request and return the next answer, or a failure if the script is used up."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            if not self._answers:
                last = str((request.get("messages") or [{}])[-1].get("content"))[:200]
                text = f"the scripted model has no answer for request {number}, with the last message: {last}"
                return ModelFailure(text, USED_UP_STATUS)
            answer = self._answers.pop(0)
        try:
            return make_reply(answer, request)
        except Exception as exc:  # noqa: BLE001 - a function of the test; the failure reports it
            return ModelFailure(f"answer {number} of the scripted model failed: {exc!r}", USED_UP_STATUS)


LONGEST_BODY = 64 * 1024 * 1024


class ModelServer:
    """Server of one model on a free port of 127.0.0.1; use it on a single event loop."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Start to listen, and return the base URL (`http://127.0.0.1:PORT/v1`)."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, path, body = await _read_request(reader)
            writer.write(self._answer(method, path, body))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the client closed the connection or does not speak HTTP: no answer possible
        finally:
            writer.close()

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        if method == "GET" and path.endswith("/models"):
            return _response(200, {"object": "list", "data": [{"id": self._model.name, "object": "model"}]})
        if method != "POST" or not path.endswith("/chat/completions"):
            return _response(404, _error(f"the scripted model does not serve {method} {path}"))
        request = json.loads(body)
        reply = self._model.answer(request)
        if isinstance(reply, ModelFailure):
            wait = "" if reply.retry_after_s is None else f"Retry-After: {reply.retry_after_s:g}\r\n"
            return _response(reply.status, _error(reply.message), wait)
        model = str(request.get("model") or self._model.name)
        usage = {**_usage(reply, request), **self._model.usage}
        if request.get("stream"):
            events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(reply, model, usage))
            return _head(200, "text/event-stream") + f"{events}data: [DONE]\n\n".encode()
        return _response(200, _completion(reply, model, usage))


@contextlib.contextmanager
def served(model: ScriptedModel) -> Iterator[str]:
    """Serve `model` to other programs during the block; yield the base URL for `model.base_url`."""
    loop = LoopThread("hermes-scripted-model")
    server = ModelServer(model)
    try:
        yield loop.run(server.start())
    finally:
        loop.run(server.stop())
        loop.close()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    """Return method, path and body of an HTTP request.

    Raises:
        ValueError: the request is malformed or too large.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length") or 0)
    if length > LONGEST_BODY:
        raise ValueError(f"a body of {length} bytes")
    return method, path.partition("?")[0], await reader.readexactly(length)


def _head(status: int, content_type: str, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} Scripted\r\nContent-Type: {content_type}\r\n{more}Connection: close\r\n\r\n".encode()


def _response(status: int, value: dict[str, Any], more: str = "") -> bytes:
    body = json.dumps(value).encode()
    return _head(status, "application/json", f"{more}Content-Length: {len(body)}\r\n") + body


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "scripted"}}


def _usage(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    """Return token counts: numbers of words, which are reproducible."""
    asked = sum(len(str(m.get("content") or "").split()) for m in request.get("messages") or ())
    said = len(reply.text.split()) + sum(len(c.arguments.split()) + 1 for c in reply.calls)
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"index": i, "id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for i, c in enumerate(reply.calls)
    ]


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _completion(reply: Reply, model: str, usage: dict[str, Any]) -> dict[str, Any]:
    message = Message("assistant", reply.text, reply.calls)
    return {**to_response(ModelAnswer(message, _finish(reply), Usage(), model)), "usage": usage}


def _chunks(reply: Reply, model: str, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a streamed answer: one for each line of text and for each tool call."""
    same = {"id": new_id("chatcmpl"), "object": "chat.completion.chunk", "created": int(time.time()), "model": model}

    def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**same, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield piece({"role": "assistant", "content": ""})
    for line in reply.text.splitlines(keepends=True):
        yield piece({"content": line})
    for made in _calls(reply):
        yield piece({"tool_calls": [made]})
    yield piece({}, _finish(reply))
    yield {**same, "choices": [], "usage": usage}
