"""What the server needs of the agent, as protocols: `agent.Agent` and `agent.Conversation` have these shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from hermes_agent.core.events import Event
from hermes_agent.core.messages import Content, Message
from hermes_agent.models.request import RequestOptions
from hermes_agent.policy import Approver

__all__ = ["AgentProtocol", "ConversationProtocol", "NoPlugins", "PluginStatusProtocol"]


class ConversationProtocol(Protocol):
    """A session in use; one turn at a time."""

    session_id: str

    def turn(self, content: Content, *, options: RequestOptions = ...) -> AsyncIterator[Event]:
        """Say `content` and yield what happens.

        Args:
            options: what the caller sets for the model requests of this turn.

        Raises:
            UserError: the turn could not be finished; a `ModelError` says why the model did not answer.
        """
        ...

    def interrupt(self) -> None:
        """Stop the running turn at the next safe point; without one nothing happens."""
        ...

    async def close(self, reason: str) -> None:
        """End the conversation."""
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
        """Open the stored session of that id, or a new one.

        Args:
            history: the caller's transcript, in place of the stored one.
            keep: whether what is said is stored.
            principal: who speaks.

        Raises:
            UserError: no model can be had, or the state cannot be read.
            NotYours: the session is somebody else's.
        """
        ...

    async def load_if_allowed(self, session_id: str, principal: str) -> object:
        """Return when the session is the principal's, or there is none of that id.

        Raises:
            NotYours: it is somebody else's.
        """
        ...


class PluginStatusProtocol(Protocol):
    """What programs may ask about plugins, and have done to them."""

    def report(self) -> list[dict[str, Any]]:
        """Return each plugin as JSON types."""
        ...

    def metrics(self) -> str:
        """Return lines for `/metrics`."""
        ...

    async def reload(self, name: str | None) -> list[dict[str, str]]:
        """Reload one plugin, or all; return `key`, `outcome` and `reason` of each.

        Raises:
            UserError: nobody has the name, or the config cannot be read.
        """
        ...


class NoPlugins:
    """For a server over an agent that has none."""

    def report(self) -> list[dict[str, Any]]:
        """Return nothing."""
        return []

    def metrics(self) -> str:
        """Return nothing."""
        return ""

    async def reload(self, name: str | None) -> list[dict[str, str]]:
        """Return nothing."""
        return []
