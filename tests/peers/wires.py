"""A model server that speaks the three wire protocols and keeps what it was sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from aiohttp import web

from peers.threaded import Threaded

__all__ = ["Reply", "WireModel"]

_ANTHROPIC = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_RESPONSES = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Reply(NamedTuple):
    """One answer. `finish`: in the words of chat completions; `status`: of a refusal, whose words are `text`."""

    text: str = "It is done."
    finish: str = "stop"
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    status: int = 200


class WireModel(Threaded):
    """Gives the replies in their order, the last one again and again. `requests`: path, headers and body of each."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._replies = replies or (Reply(),)

    @property
    def url(self) -> str:
        return f"http://{self.address}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/responses", self._responses)

    async def _next(self, request: web.Request) -> Reply:
        self.requests.append((request.path, dict(request.headers), await request.read()))
        return self._replies[min(len(self.requests), len(self._replies)) - 1]

    async def _chat(self, request: web.Request) -> web.Response:
        reply = await self._next(request)
        if reply.status != 200:
            return web.json_response({"error": {"message": reply.text}}, status=reply.status)
        calls = [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for at, (name, given) in enumerate(reply.calls)
        ]
        message = {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return web.json_response({"model": "m-1", "choices": [choice], "usage": usage})

    async def _messages(self, request: web.Request) -> web.Response:
        reply = await self._next(request)
        if reply.status != 200:
            error = {"type": "invalid_request_error", "message": reply.text}
            return web.json_response({"type": "error", "error": error}, status=reply.status)
        content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
        content += [
            {"type": "tool_use", "id": f"c{at}", "name": name, "input": given}
            for at, (name, given) in enumerate(reply.calls)
        ]
        value = {"type": "message", "model": "m-1", "content": content, "stop_reason": _ANTHROPIC[reply.finish]}
        return web.json_response({**value, "usage": {"input_tokens": 7, "output_tokens": 3}})

    async def _responses(self, request: web.Request) -> web.Response:
        reply = await self._next(request)
        if reply.status != 200:
            return web.json_response({"error": {"message": reply.text}}, status=reply.status)
        text = [{"type": "output_text", "text": reply.text}]
        output: list[dict[str, Any]] = [{"type": "message", "content": text}] if reply.text else []
        output += [
            {"type": "function_call", "call_id": f"c{at}", "name": name, "arguments": json.dumps(given)}
            for at, (name, given) in enumerate(reply.calls)
        ]
        why = _RESPONSES.get(reply.finish)
        value = {"model": "m-1", "output": output, "incomplete_details": {"reason": why} if why else None}
        return web.json_response({**value, "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}})
