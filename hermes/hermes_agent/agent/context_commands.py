"""`/compress` and `/context`: how full the model's context is, and making a conversation shorter by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from hermes_agent.agent.agent import Agent
from hermes_agent.agent.conversation import BOUNDARY, Conversation
from hermes_agent.commands import CommandRegistry
from hermes_agent.core.errors import UserError
from hermes_agent.policy import NobodyThere
from hermes_agent.sessions import LOCAL
from hermes_agent.tools import current_scope

__all__ = ["register"]


def register(registry: CommandRegistry, agent: Agent) -> None:
    """Register both."""
    registry.register(
        "compress",
        partial(_run, agent, _compress),
        description="Make the conversation shorter now; what matters most may follow",
        args_hint="[TOPIC]",
        beside=False,
    )
    registry.register("context", partial(_run, agent, _context), description="How full the model's context is")


def _run(agent: Agent, work: Callable[[Conversation, str], Awaitable[str]], raw_args: str) -> str:
    """Do it in the session that the command was typed in; in a worker."""

    async def here() -> str:
        async with _conversation(agent, session_id, platform) as talk:
            return await work(talk, raw_args.strip())

    scope = current_scope.get()
    if scope is None:
        return "There is no conversation here."
    session_id, platform = scope.session_id, scope.platform
    try:
        return agent.bridge.wait_core(here())
    except UserError as error:
        return str(error)


@asynccontextmanager
async def _conversation(agent: Agent, session_id: str, platform: str) -> AsyncIterator[Conversation]:
    """Yield the session's conversation, opened for this when nobody is in it."""
    for talk in agent.open_conversations:
        if talk.session_id == session_id:
            yield talk
            return
    owner = await agent.transcript("principal", session_id) or LOCAL  # whoever typed it is let into the session
    talk = await agent.open(session_id, platform=platform, approver=NobodyThere("in a command"), principal=owner)
    try:
        yield talk
    finally:
        await talk.close(BOUNDARY)


async def _compress(talk: Conversation, focus: str) -> str:
    context = await talk.agent.contexts.of(talk)
    async with talk.between_turns():
        return await context.compress_now(talk, focus)


async def _context(talk: Conversation, arguments: str) -> str:
    context = await talk.agent.contexts.of(talk)
    return await context.told(talk)
