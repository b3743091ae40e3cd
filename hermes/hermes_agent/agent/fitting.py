"""A model step within what the model can read: the conversation is made shorter before, or when that is refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_agent.agent.interrupt import Interrupt
from hermes_agent.core.errors import ContextTooLong
from hermes_agent.core.events import Notice
from hermes_agent.models.request import ModelAnswer

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["fitted"]

T = TypeVar("T")

TRIES = 3
"""Requests of one step that may be too long."""


async def fitted(
    talk: Conversation,
    interrupt: Interrupt,
    tools: Sequence[dict[str, Any]],
    ask: Callable[[], AsyncGenerator[T, None]],
    *,
    first: bool,
) -> AsyncGenerator[T | Notice, None]:
    """Yield what `ask` yields; it is asked again when the conversation was too long and could be made shorter.

    Args:
        first: no request of the turn went before. A caller that brings its own history is then told that it is too
            long: it decides what to leave out.

    Raises:
        ModelError: the model could not answer.
    """
    context = await talk.agent.contexts.of(talk)
    for notice in talk.take_notices():
        yield Notice(notice, "warning")
    if told := await context.fit(talk, tools, interrupt.run):
        yield Notice(told)
    for left in range(TRIES - 1, -1, -1):
        begun = False
        try:
            async with contextlib.aclosing(ask()) as items:
                async for item in items:
                    begun = True
                    if isinstance(item, ModelAnswer):
                        await context.answered(talk, item.usage)
                    yield item
            return
        except ContextTooLong as exc:
            if begun or not left or (first and not talk.is_stored):
                raise
            told = await context.overflowed(talk, tools, exc, interrupt.run)
            if not told:
                raise
        yield Notice(told, "warning")
