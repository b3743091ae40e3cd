"""The embedded model as a provider: a `ModelClient` whose answers come from a child process of this machine."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import ContextTooLong, ModelError
from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import Message, ToolCall, Usage
from hermes_agent.models.embedded.adapter import Prompt, canonical, prompt_for
from hermes_agent.models.embedded.answer import Call, FinalText, at_its_limit, calls_in, read_reply
from hermes_agent.models.embedded.server import EmbeddedServer, ServerSettings
from hermes_agent.models.request import ModelAnswer, ModelDelta, ModelRequest, TextPart

if TYPE_CHECKING:
    import httpx

__all__ = ["PROVIDER", "EmbeddedClient"]

logger = logging.getLogger(__name__)

PROVIDER = "local"
"""Value of `model.provider` that selects it; also what is used when nothing else is configured."""
TRIES = 3
"""Requests for one step: the first, and again after a reply that is cut or that repeats an answered call."""
READ_TIMEOUT_S = 600.0
"""Longest silence of the model: reading a full context of 8192 tokens takes up to 5 minutes on one core."""


@dataclass(slots=True)
class _Heard:
    """One reply as far as it has come."""

    text: str = ""
    finish_reason: str = ""
    usage: Usage = field(default_factory=Usage)


class EmbeddedClient:
    """Answers from local weights; the process starts with the first request.

    Args:
        settings: which weights, and how they are loaded.
        server: the process to use; None makes one from `settings`.
    """

    provider = PROVIDER
    base_url = url = ""
    api_mode = "chat_completions"

    def __init__(self, settings: ServerSettings, *, server: EmbeddedServer | None = None) -> None:
        self._settings = settings
        self._server = server or EmbeddedServer(settings)
        self._http: httpx.AsyncClient | None = None

    def warm_up(self) -> None:
        """Import the HTTP library (see `ModelClient.warm_up`)."""
        importlib.import_module("httpx")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Ask the model; see `ModelClient.stream`. A call comes whole, an answer's text as it is written.

        Raises:
            ModelError: `unreachable` (it does not start), `context_too_long`, or `cut_off` (the process died, or the
                reply had no usable form twice).
        """
        prompt = prompt_for(request, self._settings.context_length)
        usage = Usage()
        body = prompt.body()
        for _ in range(TRIES):
            heard, final = _Heard(), FinalText()
            async with aclosing(self._reply(body, heard)) as chunks:
                async for chunk in chunks:
                    if piece := (final.feed(chunk) if prompt.tools else chunk):
                        yield TextPart(piece)
            usage += heard.usage
            if text := (final.text if prompt.tools else heard.text):
                yield self._answer(text, (), heard.finish_reason, usage)
                return
            call = _call_in(heard, prompt)
            if call is None:
                # at temperature 0 the same request gives the same reply
                body |= {"temperature": 0.4, "repeat_penalty": 1.15}
            elif canonical(call.name, json.dumps(call.arguments)) in prompt.answered:
                body |= prompt.body(only_final=True)
            else:
                yield self._answer("", (_tool_call(call),), "tool_calls", usage)
                return
            logger.info("embedded model asked again: reply was %s", "unusable" if call is None else "a call again")
        raise ModelError(
            "cut_off",
            f"The embedded model gave no usable answer ({len(heard.text)} characters, {heard.finish_reason}).",
            hint="Say it in other words, or configure a larger model.",
        )

    async def aclose(self) -> None:
        """Close the connections and stop the process."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None
        await self._server.aclose()

    def _answer(self, text: str, calls: tuple[ToolCall, ...], reason: str, usage: Usage) -> ModelAnswer:
        return ModelAnswer(Message("assistant", text, calls), reason, usage, self._settings.alias)

    async def _reply(self, body: dict[str, Any], heard: _Heard) -> AsyncGenerator[str, None]:
        """Yield the pieces of one reply and note its end in `heard`."""
        import httpx  # 0.2 s of CPU: only a process that asks a model pays it

        endpoint = await self._server.endpoint()
        if self._http is None:
            self._http = httpx.AsyncClient(
                timeout=httpx.Timeout(READ_TIMEOUT_S, connect=10.0),
                # llama.cpp's server may close a connection that was used just when the next request is sent
                limits=httpx.Limits(max_keepalive_connections=0),
                trust_env=False,  # a proxy of the environment has no business between us and our child
            )
        sent = self._http.stream(
            "POST",
            f"{endpoint.base_url}/v1/chat/completions",
            json={**body, "stream": True, "stream_options": {"include_usage": True}},
            headers={"Authorization": f"Bearer {endpoint.api_key}"},
        )
        try:
            async with sent as response:
                if response.status_code != 200:
                    raise _refused(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    if piece := _take(line, heard):
                        yield piece
        except (httpx.TransportError, httpx.StreamError) as exc:
            raise await self._lost(exc) from exc
        if not heard.finish_reason:
            raise await self._lost(None)

    async def _lost(self, error: Exception | None) -> ModelError:
        how = await self._server.died()
        if how is None:
            return ModelError(
                "cut_off",
                f"The embedded model broke off in the middle of an answer ({error or 'without an end'}).",
                hint="Ask again.",
            )
        lines = self._server.last_lines()
        return ModelError(
            "cut_off",
            f"The embedded model's process {how} in the middle of an answer.",
            hint="It is started again with the next question." + (f" Its last lines:\n{lines}" if lines else ""),
        )


def _take(line: str, heard: _Heard) -> str:
    """Read one line of the event stream into `heard`; return the piece of text that it brought."""
    if not line.startswith("data: ") or line == "data: [DONE]":
        return ""
    event = json.loads(line[6:])
    if error := event.get("error"):
        raise _refused(int(error.get("code") or 500), json.dumps({"error": error}).encode())
    if usage := event.get("usage"):
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        heard.usage = Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), cached)
    for choice in event.get("choices") or ():
        heard.finish_reason = choice.get("finish_reason") or heard.finish_reason
        piece = str((choice.get("delta") or {}).get("content") or "")
        heard.text += piece
        return piece
    return ""


def _call_in(heard: _Heard, prompt: Prompt) -> Call | None:
    """Return the call of a whole reply; None for one that is cut, or that is no call of the menu."""
    if heard.finish_reason == "length":
        return None
    reply = read_reply(heard.text)
    names = {t.name for t in prompt.tools}
    if reply is None:
        found = calls_in(heard.text, names)
        reply = Call(found[0].name, found[0].arguments) if found else None
    if isinstance(reply, Call) and reply.name in names and not at_its_limit(reply.arguments):
        return reply
    return None


def _tool_call(call: Call) -> ToolCall:
    return ToolCall(new_id("call"), call.name, json.dumps(call.arguments, ensure_ascii=False))


def _refused(status: int, content: bytes) -> ModelError:
    try:
        error = json.loads(content)["error"]
        said, kind = str(error.get("message") or ""), str(error.get("type") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        said, kind = content.decode(errors="replace")[:300], ""
    if "exceed" in kind or "context" in said:
        return ContextTooLong(
            f"The conversation is too long for the embedded model: {said}",
            hint="Start anew with /new, or raise `model.local.context_length`.",
            status=status,
        )
    return ModelError("refused", f"The embedded model's server answered {status}: {said}", status=status)
