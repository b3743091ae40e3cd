"""Protocols of the agent for the server, slash commands over HTTP, and idempotent requests.

`Agent` and `Conversation` of the package `agent` implement the protocols. A slash command in a session is
answered at once, in parallel to a running turn. With an `Idempotency-Key`, a repeated request is the same turn, also
after a crash. Source: plugin contract §7.3, §14.1 row 14.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hermes_agent.agent.command_router import CommandCall, RunSkill, UnknownCommand
from hermes_agent.contracts.command import Where
from hermes_agent.contracts.model_client import NO_OPTIONS, RequestOptions
from hermes_agent.core.messages import (
    Content,
    FinishReason,
    Message,
    TurnEvent,
    TurnFinished,
    TurnSink,
    Usage,
    assistant_text,
    fold,
    text_content,
)
from hermes_agent.delivery import ClaimedMessage, InboundMessage
from hermes_agent.policy import Approver
from hermes_agent.server.http_types import HttpError
from hermes_agent.sessions import API_SERVER
from hermes_agent.tools import CallScope


class ConversationProtocol(Protocol):
    """A session in memory; one turn at a time."""

    session_id: str

    def turn(self, content: Content, *, options: RequestOptions = ...) -> AsyncGenerator[TurnEvent, None]:
        """Run a turn for a message of the user and yield its events.

        Args:
            options: options of the client for the model requests of this turn.

        Raises:
            UserError: the turn failed; a `ModelError` is a failure of the model request.
        """
        ...

    def interrupt(self) -> None:
        """Interrupt the running turn at its next safe point, if there is one."""
        ...

    async def close(self, reason: str) -> None:
        """Close the conversation."""
        ...


class AgentProtocol(Protocol):
    """Opens conversations."""

    async def open(
        self,
        session_id: str | None = None,
        *,
        platform: str,
        approver: Approver,
        history: Sequence[Message] | None = None,
        instructions: str = "",
        model: str | None = None,
        cwd: Path | None = None,
        keep: bool = True,
        principal: str = ...,
    ) -> ConversationProtocol:
        """Open the stored session with that id, or a new session.

        Args:
            history: transcript of the client, which replaces the stored one.
            keep: whether messages are stored.
            principal: principal of the session.

        Raises:
            UserError: no model is available, or the state cannot be read.
            AccessDenied: the session belongs to another principal.
        """
        ...

    async def load_if_allowed(self, session_id: str, principal: str) -> object:
        """Return if the session belongs to the principal, or does not exist.

        Raises:
            AccessDenied: it belongs to another principal.
        """
        ...


class PluginStatusProtocol(Protocol):
    """Plugin operations over HTTP."""

    def report(self) -> list[dict[str, Any]]:
        """Return each plugin as JSON types."""
        ...

    def metrics(self) -> str:
        """Return lines for `/metrics`."""
        ...

    async def reload(self, name: str | None) -> list[dict[str, str]]:
        """Reload one plugin or all; return `key`, `outcome` and `reason` of each.

        Raises:
            UserError: there is no plugin of that name, or the config cannot be read.
        """
        ...


class NoPlugins:
    """Plugin operations of an agent without plugins."""

    def report(self) -> list[dict[str, Any]]:
        """Return no plugins."""
        return []

    def metrics(self) -> str:
        """Return no lines."""
        return ""

    async def reload(self, name: str | None) -> list[dict[str, str]]:
        """Return no results."""
        return []


class CommandRouterProtocol(Protocol):
    """Resolves and runs command lines; `agent.command_router.CommandRouter` implements it."""

    async def resolve(
        self, line: str, *, where: Where, session_id: str, platform: str, prefixes: bool = False
    ) -> CommandCall | RunSkill | UnknownCommand | None:
        """Return the meaning of a line; None if it is no command."""
        ...

    def scope(self, session_id: str, platform: str, approver: Approver, *, principal: str = ...) -> CallScope:
        """Return the call scope of a command."""
        ...

    async def announce(self, called: CommandCall, scope: CallScope) -> None:
        """Notify observers that a command is about to run."""
        ...

    async def run(self, called: CommandCall, scope: CallScope) -> str | None:
        """Run a command and return its answer."""
        ...


def plain_text(content: Content) -> str:
    """Return the text of a message; "" if it has other parts, such as images."""
    if isinstance(content, list) and any(part.get("type") != "text" for part in content):
        return ""
    return text_content(content)


class AnswerSource(Protocol):
    """What answers one request in a session: a turn, a turn that happens once, or a command."""

    session_id: str

    async def answer(self, content: Content, sink: TurnSink, *, options: RequestOptions = ...) -> TurnFinished:
        """Answer a message; give the events of the turn to `sink`.

        Raises:
            UserError: the turn failed; a `ModelError` is a failure of the model request.
        """
        ...

    def interrupt(self) -> None:
        """Stop the work at its next safe point."""
        ...

    async def close(self, reason: str) -> None:
        """End the conversation."""
        ...


class TurnAnswer:
    """Answers with a turn of a conversation."""

    def __init__(self, conversation: ConversationProtocol) -> None:
        self.session_id = conversation.session_id
        self.interrupt = conversation.interrupt
        self.close = conversation.close
        self._conversation = conversation

    async def answer(self, content: Content, sink: TurnSink, *, options: RequestOptions = NO_OPTIONS) -> TurnFinished:
        """Run the turn."""
        end = await fold(self._conversation.turn(content, options=options), sink)
        assert end is not None
        return end


class CommandAnswer:
    """Answers with the output of a command; no model request is made.

    Args:
        model: name of the model that the answer states.
    """

    def __init__(self, slash: CommandRouterProtocol, called: CommandCall, scope: CallScope, model: str) -> None:
        self.session_id = scope.session_id
        self._slash = slash
        self._called = called
        self._scope = scope
        self._model = model

    async def answer(self, content: Content, sink: TurnSink, *, options: RequestOptions = NO_OPTIONS) -> TurnFinished:
        """Run the command; its output is the reply."""
        await self._slash.announce(self._called, self._scope)
        text = await self._slash.run(self._called, self._scope) or ""
        if text:
            sink.text(text)
        return TurnFinished(text, "answered", Usage(), self._model)

    def interrupt(self) -> None:
        """Stop the tools that the command calls."""
        self._scope.cancelled.set()

    async def close(self, reason: str) -> None:
        """Do nothing: a command opens no conversation."""


AGENT_MODEL = "hermes-agent"
"""Model name of every agent."""
KEY_HEADER = b"idempotency-key"
LONGEST_KEY = 200
BUSY_RETRY_S = 1.0


class ResumableConversation(Protocol):
    """The used part of `Conversation`."""

    session_id: str

    def turn_once(
        self, content: Content, *, since: int, options: RequestOptions = ...
    ) -> AsyncGenerator[TurnEvent, None]:
        """Run the turn for `content`, or resume it."""
        ...

    def interrupt(self) -> None:
        """Interrupt the running turn."""
        ...

    async def close(self, reason: str) -> None:
        """Close the conversation."""
        ...


class IdempotencyInbox(Protocol):
    """The used part of `delivery.DeliveryService`."""

    async def begin(self, message: InboundMessage, /) -> ClaimedMessage | Mapping[str, Any] | None:
        """Store a message and claim it."""
        ...


class IdempotentRequests:
    """Creates conversations with an idempotent turn.

    Args:
        transcript: calls a method of the transcript (`Agent.call_transcript`).
    """

    def __init__(self, inbox: IdempotencyInbox, transcript: Callable[..., Awaitable[Any]]) -> None:
        self._inbox = inbox
        self._transcript = transcript

    def source(self, conversation: ResumableConversation, key: str) -> _IdempotentAnswer:
        """Return what answers the request with this key in a conversation.

        Raises:
            HttpError: 400, the key is too long.
        """
        if len(key) > LONGEST_KEY:
            raise HttpError(400, f"the Idempotency-Key is longer than {LONGEST_KEY} characters", code="invalid_request")
        return _IdempotentAnswer(conversation, key, self._inbox, self._transcript)


class _IdempotentAnswer:
    """Answers with a turn that happens once; a repeated request gets the stored answer."""

    def __init__(
        self,
        conversation: ResumableConversation,
        key: str,
        inbox: IdempotencyInbox,
        transcript: Callable[..., Awaitable[Any]],
    ) -> None:
        self.session_id = conversation.session_id
        self.interrupt = conversation.interrupt
        self.close = conversation.close
        self._conversation = conversation
        self._key = key
        self._inbox = inbox
        self._transcript = transcript

    async def answer(self, content: Content, sink: TurnSink, *, options: RequestOptions = NO_OPTIONS) -> TurnFinished:
        claimed = await self._inbox.begin(InboundMessage(API_SERVER, self.session_id, self._key, "", API_SERVER))
        if claimed is None:
            raise HttpError(
                409,
                "a request with this Idempotency-Key is running",
                code="in_progress",
                retry_after_s=BUSY_RETRY_S,
            )
        if not isinstance(claimed, ClaimedMessage):
            finish: FinishReason = claimed.get("finish_reason") or "stop"
            messages = await self._messages_since(claimed)
            calls = messages[-1].tool_calls if finish == "tool_calls" and messages else ()
            return TurnFinished(assistant_text(messages), "answered", Usage(), "", finish_reason=finish, calls=calls)
        is_done = False
        try:
            if "before" not in claimed.notes:
                await claimed.save_notes(before=await self._transcript("last_id", self.session_id))
            since = int(claimed.notes["before"])
            end = await fold(self._conversation.turn_once(content, since=since, options=options), sink)
            assert end is not None
            if end.reason != "interrupted":
                upto = await self._transcript("last_id", self.session_id)
                await claimed.save_notes(upto=upto, finish_reason=end.reply_finish_reason)
                await claimed.done()
                is_done = True
            return end
        finally:
            if not is_done:
                await claimed.release()

    async def _messages_since(self, notes: Mapping[str, Any]) -> Sequence[Message]:
        upto = int(notes.get("upto", 1 << 62))
        found: Sequence[Message] = await self._transcript(
            "messages", self.session_id, after=int(notes.get("before", 0)), upto=upto
        )
        return found
