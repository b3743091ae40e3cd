"""Slash commands in a session over HTTP: they are answered at once, beside a turn that may run there.

Source: plugin contract §7.3, §14.1 row 14.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from hermes_agent.agent.slash import CommandCall, RunSkill, UnknownCommand
from hermes_agent.core.events import Event, TextDelta, TurnFinished
from hermes_agent.core.messages import Content, Usage, text_content
from hermes_agent.models.request import NO_OPTIONS, RequestOptions
from hermes_agent.policy import Approver
from hermes_agent.tools import CallScope

__all__ = ["CommandConversation", "CommandRouterProtocol", "plain_text"]


class CommandRouterProtocol(Protocol):
    """What a line means; `agent.slash.Slash` has this shape."""

    async def resolve(
        self, line: str, *, session_id: str, platform: str, prefixes: bool = False
    ) -> CommandCall | RunSkill | UnknownCommand | None:
        """Return what is to be done; None for a line that is no command."""
        ...

    def scope(self, session_id: str, platform: str, approver: Approver, *, principal: str = ...) -> CallScope:
        """Return what a command works for."""
        ...

    async def announce(self, called: CommandCall, scope: CallScope) -> None:
        """Tell observers that a command is about to run."""
        ...

    async def run(self, called: CommandCall, scope: CallScope) -> str | None:
        """Run a command and return its answer."""
        ...


def plain_text(content: Content) -> str:
    """Return the text of a message that is nothing but text; empty for one with pictures and the like."""
    if isinstance(content, list) and any(part.get("type") != "text" for part in content):
        return ""
    return text_content(content)


class CommandConversation:
    """A command as a conversation with one turn: what answers a turn answers it, too.

    Args:
        model: what the answer names.
    """

    def __init__(self, slash: CommandRouterProtocol, called: CommandCall, scope: CallScope, model: str) -> None:
        self.session_id = scope.session_id
        self._slash = slash
        self._called = called
        self._scope = scope
        self._model = model

    async def turn(self, content: Content, *, options: RequestOptions = NO_OPTIONS) -> AsyncGenerator[Event, None]:
        """Run the command; its answer is the reply. No model is asked."""
        await self._slash.announce(self._called, self._scope)
        text = await self._slash.run(self._called, self._scope) or ""
        if text:
            yield TextDelta(text)
        yield TurnFinished(text, "answered", Usage(), self._model)

    def interrupt(self) -> None:
        """Tell the tools that the command calls to stop."""
        self._scope.cancelled.set()

    async def close(self, reason: str) -> None:
        """Nothing is to be ended: the session is not the command's."""
