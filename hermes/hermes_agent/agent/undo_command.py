"""`/undo`: forget the last question and its answer, and put back the files that the turn changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hermes_agent.agent.agent import Agent
from hermes_agent.commands import CommandRegistry
from hermes_agent.core.errors import UserError
from hermes_agent.tools import current_scope

__all__ = ["register"]


def register(registry: CommandRegistry, agent: Agent, put_back: Callable[[str], str]) -> None:
    """Register the command.

    Args:
        put_back: puts back what a turn changed, and says what that was; empty for nothing.
    """

    def run(raw_args: str) -> str:
        scope = current_scope.get()
        return (
            "There is no conversation here."
            if scope is None
            else agent.bridge.wait_core(_undo(agent, scope.session_id, put_back))
        )

    registry.register("undo", run, description="Forget the last question, and put back what it changed", beside=False)


async def _undo(agent: Agent, session_id: str, put_back: Callable[[str], str]) -> str:
    talk = next((talk for talk in agent.open_conversations if talk.session_id == session_id), None)
    async with contextlib.nullcontext() if talk is None else talk.between_turns():
        turn = await agent.transcript("last_turn", session_id)
        agent.remember_sent(session_id, {})  # it is kept by the messages' numbers, which change
        said = await agent.transcript("drop_last_turn", session_id)
        if not said:
            return "There is nothing to forget."
        if talk is not None:
            await talk.reread()
        try:
            files = await agent.bridge.run(put_back, turn)
        except (UserError, OSError) as error:  # of a full disk, say: what is forgotten is forgotten
            files = f"The files stay as they are: {error}"
    return f"Forgotten: {said[:100]}" + (f"\n{files}" if files else "")
