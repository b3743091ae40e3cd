"""The scripted model as a server of the OpenAI chat-completions protocol, on the loopback address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import Message, Usage
from hermes_agent.io.loop_thread import LoopThread
from hermes_agent.models.completions import to_response
from hermes_agent.models.request import ModelAnswer
from hermes_agent.testing.model import ModelFailure, Reply, ScriptedModel

__all__ = ["ModelServer", "served"]

LONGEST_BODY = 64 * 1024 * 1024


class ModelServer:
    """Serves one model on a free port of 127.0.0.1; use it on one loop."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen, and return the base URL (`http://127.0.0.1:PORT/v1`)."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, path, body = await _read_request(reader)
            writer.write(self._answer(method, path, body))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the other side went away, or speaks no HTTP: nothing to answer
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
    """Serve `model` while the block runs, for another program; gives the base URL for `model.base_url`."""
    loop = LoopThread("hermes-scripted-model")
    server = ModelServer(model)
    try:
        yield loop.run(server.start())
    finally:
        loop.run(server.stop())
        loop.close()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    """Return method, path and body.

    Raises:
        ValueError: this is no request.
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
    """Count words: a number that grows with the text, and is the same every time."""
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
    """Yield the answer in pieces: the text line by line, each tool call in one."""
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
