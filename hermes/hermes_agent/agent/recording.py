"""What a conversation stores: collected step by step, written in one commit each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.digest import RequestDigest
from hermes_agent.core.messages import Message, Usage
from hermes_agent.sessions import NewSession, RequestNote, Step, TurnNote, UsageNote

if TYPE_CHECKING:
    from hermes_agent.agent.agent import Agent

__all__ = ["Recorder"]


class Recorder:
    """The records of one conversation.

    Args:
        keep: whether what is said is stored; usage always is.
    """

    def __init__(self, agent: Agent, session_id: str, principal: str, digest: RequestDigest, *, keep: bool) -> None:
        self._agent = agent
        self._session_id = session_id
        self._principal = principal
        self._keep = keep
        self._step = Step(principal)
        self._digest = digest

    def session(self, row: NewSession) -> None:
        """The session begins."""
        self._step.session = row

    def message(self, message: Message, usage: Usage | None) -> None:
        """Something was said."""
        self._step.messages.append(message)
        self._step.tokens += usage or Usage()

    def turn(self, turn_id: str) -> TurnNote:
        """Return what the next commit says of a turn, to add to it."""
        if self._step.turn is None:
            self._step.turn = TurnNote(turn_id)
        return self._step.turn

    def usage(self, note: UsageNote) -> None:
        """A model was asked."""
        self._step.usage.append(note)

    def request(
        self, turn_id: str, number: int, head: Sequence[str], tools: Sequence[dict[str, Any]], said: Sequence[Message]
    ) -> None:
        """The model is about to be asked.

        Args:
            head: model and system prompt.
            said: the messages, without what plugins added to them.
        """
        if self._keep:
            shown, definitions = self._agent.tools_digest(tools)
            digest = self._digest.of((*head, shown), said)
            self.turn(turn_id).requests.append(RequestNote(number, digest, shown, definitions))

    async def commit(self) -> None:
        """Store what waits, in one commit.

        Raises:
            UserError: somebody else was first with the id of this new session.
        """
        step, self._step = self._step, Step(self._principal)
        if not self._keep:
            step = Step(usage=step.usage)
        if step.session or step.messages or step.turn or step.usage:
            await self._agent.transcript("write", self._session_id, step)
