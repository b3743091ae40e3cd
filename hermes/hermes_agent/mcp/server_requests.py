"""Requests of an MCP server during a call: to the model (sampling) and to the user (elicitation)."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from hermes_agent.core.errors import UserError
from hermes_agent.mcp.sdk import Json, ServerCallbacks
from hermes_agent.mcp.settings import McpServerSettings
from hermes_agent.policy import Refusal
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import CallScope, use_scope

logger = logging.getLogger(__name__)

MOST_FIELDS = 8
"""Fields of a form that the user may be asked to fill in."""
LONGEST_QUESTION = 1_000
DECLINE = "decline"
STOPS = {"length": "maxTokens", "tool_calls": "toolUse"}


class Sampler(Protocol):
    """Asks the model of the auxiliary task `mcp`; the answer has the form of OpenAI's SDK."""

    async def __call__(
        self,
        messages: list[Json],
        *,
        model: str,
        max_tokens: int,
        timeout_s: float,
        temperature: float | None,
        tools: list[Json] | None,
    ) -> Any:
        """Return the answer, or raise UserError if the model could not answer."""
        ...


class ServerRequests:
    """The requests of one server. They go to the conversation that it works for, if that is only one."""

    def __init__(self, settings: McpServerSettings, bridge: Bridge, sample: Sampler) -> None:
        self._name = settings.name
        self._sampling, self._elicitation = settings.sampling, settings.elicitation
        self._bridge = bridge
        self._sample = sample
        self._scopes: list[CallScope | None] = []
        self._request_times: deque[float] = deque()
        self._rounds = 0
        """Answers with tool calls in a row."""
        self._level = logging.getLevelNamesMapping()[str(self._sampling.get("log_level") or "info").upper()]

    def callbacks(self, changed: Callable[[], None]) -> ServerCallbacks:
        """Return the callbacks for the SDK."""
        return ServerCallbacks(
            changed,
            self._answer_sampling if self._sampling.get("enabled", True) else None,
            self._answer_elicitation if self._elicitation.get("enabled", True) else None,
            sampling_tools=self._most_rounds > 0,
        )

    @contextlib.contextmanager
    def on_behalf_of(self, scope: CallScope | None) -> Iterator[None]:
        """Record that the server works for a conversation during the block."""
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.remove(scope)

    def _scope(self) -> CallScope | None:
        """Return the scope of the conversation that the server works for; None for none or several."""
        scopes = [scope for scope in self._scopes if scope is not None]
        return scopes[-1] if len({scope.session_id for scope in scopes}) == 1 else None

    # -- the model -------------------------------------------------------------------------------------------------

    @property
    def _most_rounds(self) -> int:
        return int(self._sampling.get("max_tool_rounds", 5))

    async def _answer_sampling(self, asked: Json) -> Json:
        """Answer `sampling/createMessage`, or raise ValueError to refuse."""
        if not self._scopes:
            raise ValueError("no call of a tool runs at this server")
        now = time.monotonic()
        while self._request_times and self._request_times[0] < now - 60:
            self._request_times.popleft()
        if len(self._request_times) >= int(self._sampling.get("max_rpm", 10)):
            raise ValueError("too many requests: try again in a minute")
        self._request_times.append(now)
        tools = [_function(tool) for tool in asked.get("tools") or ()] or None
        if tools and self._rounds >= self._most_rounds:
            tools = None  # the model has to end with a text
        messages = [*_system(asked), *(m for message in asked.get("messages") or () for m in _chat_messages(message))]
        try:
            with use_scope(self._scope()):
                answer = await self._sample(
                    messages,
                    model=self._model(asked),
                    max_tokens=min(int(asked.get("maxTokens") or 1), int(self._sampling.get("max_tokens_cap", 4096))),
                    timeout_s=float(self._sampling.get("timeout", 30)),
                    temperature=asked.get("temperature"),
                    tools=tools,
                )
        except UserError as exc:
            logger.warning("MCP server %s: its model request failed: %s", self._name, exc)
            raise ValueError("the model did not answer") from exc
        choice = answer.choices[0]
        stop = STOPS.get(choice.finish_reason, "endTurn")
        logger.log(self._level, "MCP server %s: model request to %s: %s", self._name, answer.model, stop)
        content: Any = {"type": "text", "text": choice.message.content or ""}
        calls = [_tool_use(call) for call in choice.message.tool_calls or ()]
        self._rounds = self._rounds + 1 if calls else 0
        if calls:
            stop, content = "toolUse", [*([content] if content["text"] else []), *calls]
        return {"role": "assistant", "content": content, "model": answer.model or "", "stopReason": stop}

    def _model(self, asked: Json) -> str:
        """Return the configured model, or an allowed one that the server names, or ""."""
        allowed = self._sampling.get("allowed_models") or ()
        if model := self._sampling.get("model"):
            return str(model)
        hints = (asked.get("modelPreferences") or {}).get("hints") or ()
        return next((str(h["name"]) for h in hints if h.get("name") in allowed), "")

    # -- the user --------------------------------------------------------------------------------------------------

    async def _answer_elicitation(self, asked: Json) -> Json:
        """Answer `elicitation/create`."""
        scope = self._scope()
        if scope is None:
            return {"action": "decline"}
        ask = partial(self._ask, scope, str(asked.get("message", ""))[:LONGEST_QUESTION])
        if asked.get("mode") == "url":
            answer = await ask(f"Open {asked.get('url')} in a browser, and answer `done`", ("done", DECLINE))
            return {"action": "accept" if answer == "done" else "decline"}
        properties = (asked.get("requestedSchema") or {}).get("properties") or {}
        if len(properties) > MOST_FIELDS:
            return {"action": "decline"}
        if not properties:
            return {"action": "accept" if await ask("", ("yes", DECLINE)) == "yes" else "decline", "content": {}}
        return await _form(properties, (asked["requestedSchema"].get("required") or ()), ask)

    async def _ask(self, scope: CallScope, message: str, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer of the user, or None if the user declines or does not answer."""
        text = f"The MCP server {self._name} asks (it is given your answer): {message}\n{question}".rstrip()
        if not choices:
            text += f"\n(`{DECLINE}` refuses)"
        limit_s = float(self._elicitation.get("timeout", 300))
        work = scope.approvals.clarify(text, choices, timeout_s=limit_s, turn_id=scope.turn_id)
        answer = await self._bridge.on_core(work)
        return None if isinstance(answer, Refusal) or answer.strip().lower() == DECLINE else answer.strip()


async def _form(properties: Mapping[str, Any], required: Any, ask: Callable[..., Awaitable[str | None]]) -> Json:
    """Ask for each field of a form, once more after an answer that does not fit."""
    content: Json = {}
    for name, field in properties.items():
        about = f"{field.get('title') or name}: {field.get('description') or ''}".rstrip(": ")[:LONGEST_QUESTION]
        choices = ("yes", "no") if field.get("type") == "boolean" else tuple(map(str, field.get("enum") or ()))
        question = about if name in required else f"{about} (`-` leaves it out)"
        for remark in ("", " That does not fit."):
            answer = await ask(question + remark, (*choices, DECLINE) if choices else ())
            if answer is None:
                return {"action": "decline"}
            if answer == "-" and name not in required:
                break
            try:
                content[name] = _value(answer, field, choices)
                break
            except ValueError:
                continue
        else:
            return {"action": "cancel"}
    return {"action": "accept", "content": content}


def _value(answer: str, field: Mapping[str, Any], choices: tuple[str, ...]) -> Any:
    """Return an answer in the type of its field, or raise ValueError."""
    if choices and answer not in choices:
        raise ValueError(answer)
    kind = field.get("type")
    if kind == "boolean":
        return answer == "yes"
    return int(answer) if kind == "integer" else float(answer) if kind == "number" else answer


def _system(asked: Json) -> list[Json]:
    return [{"role": "system", "content": asked["systemPrompt"]}] if asked.get("systemPrompt") else []


def _chat_messages(message: Json) -> Iterator[Json]:
    """Yield the chat messages for a message of the protocol."""
    content = message.get("content") or []
    parts = content if isinstance(content, list) else [content]
    shown = [shown for part in parts if (shown := _part(part)) is not None]
    calls = [part for part in parts if part.get("type") == "tool_use"]
    for part in parts:
        if part.get("type") == "tool_result":
            texts = [str(inner.get("text", "")) for inner in part.get("content") or ()]
            yield {"role": "tool", "tool_call_id": part.get("toolUseId"), "content": "\n".join(texts)}
    if shown or calls:
        more = {"tool_calls": [_openai_call(part) for part in calls]} if calls else {}
        text = shown[0]["text"] if len(shown) == 1 and shown[0]["type"] == "text" else shown
        yield {"role": message.get("role", "user"), "content": text or None, **more}


def _part(part: Json) -> Json | None:
    if part.get("type") == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    if part.get("type") == "image":
        return {"type": "image_url", "image_url": {"url": f"data:{part.get('mimeType')};base64,{part.get('data')}"}}
    return None


def _openai_call(part: Json) -> Json:
    function = {"name": part.get("name"), "arguments": json.dumps(part.get("input") or {})}
    return {"id": part.get("id"), "type": "function", "function": function}


def _tool_use(call: Any) -> Json:
    try:
        given = json.loads(call.function.arguments or "{}")
    except ValueError as exc:
        raise ValueError("the model called a tool with arguments that are no JSON") from exc
    return {"type": "tool_use", "id": call.id, "name": call.function.name, "input": given}


def _function(tool: Json) -> Json:
    names = {"name": tool["name"], "description": tool.get("description") or "", "parameters": tool.get("inputSchema")}
    return {"type": "function", "function": names}
