"""What a memory provider adds to a turn, and learns from it. Source: plugin contract §3.4, §8.3."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_agent.agent.interrupt import Interrupt, Interrupted
from hermes_agent.core.foreign import fenced
from hermes_agent.core.messages import Content, text_of
from hermes_agent.core.stream_mask import StreamMask
from hermes_agent.memory.fence import FenceScrubber, sanitize_context
from hermes_agent.models.attempts import Again
from hermes_agent.models.request import ModelAnswer, ModelDelta, TextPart
from hermes_agent.skills.slash import instruction_of

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["hear_recalled", "learn", "masked", "recalled", "scrubbed"]


async def recalled(talk: Conversation, content: Content, interrupt: Interrupt) -> tuple[str, str]:
    """Return what is known about a message, fenced, and before it whose plugin says so; empty when nothing is."""
    provider = talk.agent.memory.of(talk.session_id) if talk.agent.memory is not None else None
    query = _said(content)
    if provider is None or not query.strip() or not isinstance(content, str):  # a message of parts is sent as it is
        return "", ""
    length = talk.chosen.context_length
    facts = {"model": talk.model, "platform": talk.platform, "tool_count": len(talk.agent.tools.names())}
    try:
        with talk.acting():
            return provider.plugin, await interrupt.run(provider.recall(query, remaining_tokens=length, **facts))
    except Interrupted:  # the turn finds out by itself, with its message in the transcript
        return "", ""


async def hear_recalled(talk: Conversation, plugin: str, text: str) -> None:
    """Note whose words were recalled: strangers', where the memory learned from a session that heard them."""
    provenance = talk.agent.provenance
    if provenance is not None and text:
        source = await talk.agent.bridge.run(provenance.whose, _memory_of(talk, plugin))
        if source:
            provenance.said(talk.session_id, fenced(text, source))


def _memory_of(talk: Conversation, plugin: str) -> str:
    return f"memory {plugin} of {talk.principal}"


async def learn(talk: Conversation, content: Content, answer: str) -> None:
    """Let the memory learn from a turn that was answered; it does not wait for it."""
    provider = talk.agent.memory.of(talk.session_id) if talk.agent.memory is not None else None
    if provider is not None and answer:
        if talk.agent.provenance is not None:
            name = _memory_of(talk, provider.plugin)
            await talk.agent.bridge.run(talk.agent.provenance.taught, talk.session_id, name)
        with talk.acting():
            provider.after_turn(_said(content), answer, [m.to_dict() for m in talk.history])


def scrubbed(
    talk: Conversation, stream: AsyncGenerator[ModelDelta | Again, None]
) -> AsyncGenerator[ModelDelta | Again, None]:
    """Return an answer without the fences that the model repeats."""
    if talk.agent.memory is None or talk.agent.memory.of(talk.session_id) is None:
        return stream
    return _scrubbed(stream)


async def _scrubbed(stream: AsyncGenerator[ModelDelta | Again, None]) -> AsyncGenerator[ModelDelta | Again, None]:
    scrubber = FenceScrubber()
    async with contextlib.aclosing(stream):
        async for item in stream:
            for part in _without_fences(scrubber, item):
                yield part


async def masked(stream: AsyncGenerator[ModelDelta | Again, None]) -> AsyncGenerator[ModelDelta | Again, None]:
    """Return an answer whose pieces are without known secrets; the whole message stays, for its calls to run.

    A secret may be spread over several pieces: what may be the beginning of one waits for the next piece.
    """
    mask = StreamMask()
    async with contextlib.aclosing(stream):
        async for item in stream:
            if not isinstance(item, Again):  # another attempt goes on where the text ended
                text = mask.feed(item.text) if isinstance(item, TextPart) else mask.end()
                if text:
                    yield TextPart(text)
            if not isinstance(item, TextPart):
                yield item


def _without_fences(scrubber: FenceScrubber, item: ModelDelta | Again) -> Iterator[ModelDelta | Again]:
    if isinstance(item, Again):
        yield item
    elif isinstance(item, ModelAnswer):
        if rest := scrubber.end():
            yield TextPart(rest)
        message = item.message
        if isinstance(message.content, str) and "<" in message.content:
            item = replace(item, message=replace(message, content=sanitize_context(message.content)))
        yield item
    elif text := scrubber.feed(item.text):
        yield TextPart(text)


def _said(content: Content) -> str:
    """Return what the person said: without the text of a skill that they chose."""
    return instruction_of(content) or text_of(content)
