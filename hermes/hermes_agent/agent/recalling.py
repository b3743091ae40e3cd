"""What a memory provider adds to a turn, and learns from it. Source: plugin contract §3.4, §8.3."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_agent.agent.interrupt import Interrupt, Interrupted
from hermes_agent.core.foreign import mark_untrusted
from hermes_agent.core.messages import Content, text_content
from hermes_agent.core.stream_mask import StreamMask
from hermes_agent.memory.fence import FenceScrubber, sanitize_context
from hermes_agent.models.attempts import RetryNotice
from hermes_agent.models.request import ModelAnswer, ModelDelta, TextPart
from hermes_agent.skills.slash import instruction_of

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["track_recalled", "remember_turn", "mask_stream", "recall", "without_fences"]


async def recall(talk: Conversation, content: Content, interrupt: Interrupt) -> tuple[str, str]:
    """Return what is known about a message, fenced, and before it whose plugin says so; empty when nothing is."""
    provider = talk.agent.memory.provider_of(talk.session_id) if talk.agent.memory is not None else None
    query = _user_text(content)
    if provider is None or not query.strip() or not isinstance(content, str):  # a message of parts is sent as it is
        return "", ""
    length = talk.chosen.context_length
    facts = {"model": talk.model, "platform": talk.platform, "tool_count": len(talk.agent.tools.names())}
    try:
        with talk.use_context():
            return provider.plugin, await interrupt.run(provider.recall(query, remaining_tokens=length, **facts))
    except Interrupted:  # the turn finds out by itself, with its message in the transcript
        return "", ""


async def track_recalled(talk: Conversation, plugin: str, text: str) -> None:
    """Note whose words were recalled: strangers', where the memory learned from a session that heard them."""
    provenance = talk.agent.provenance
    if provenance is not None and text:
        source = await talk.agent.bridge.run(provenance.source_of, _memory_of(talk, plugin))
        if source:
            provenance.add_user_text(talk.session_id, mark_untrusted(text, source))


def _memory_of(talk: Conversation, plugin: str) -> str:
    return f"memory {plugin} of {talk.principal}"


async def remember_turn(talk: Conversation, content: Content, answer: str) -> None:
    """Let the memory learn from a turn that was answered; it does not wait for it."""
    provider = talk.agent.memory.provider_of(talk.session_id) if talk.agent.memory is not None else None
    if provider is not None and answer:
        if talk.agent.provenance is not None:
            name = _memory_of(talk, provider.plugin)
            await talk.agent.bridge.run(talk.agent.provenance.mark_learned, talk.session_id, name)
        with talk.use_context():
            provider.after_turn(_user_text(content), answer, [m.to_dict() for m in talk.history])


def without_fences(
    talk: Conversation, stream: AsyncGenerator[ModelDelta | RetryNotice, None]
) -> AsyncGenerator[ModelDelta | RetryNotice, None]:
    """Return an answer without the fences that the model repeats."""
    if talk.agent.memory is None or talk.agent.memory.provider_of(talk.session_id) is None:
        return stream
    return _without_fences_stream(stream)


async def _without_fences_stream(
    stream: AsyncGenerator[ModelDelta | RetryNotice, None],
) -> AsyncGenerator[ModelDelta | RetryNotice, None]:
    scrubber = FenceScrubber()
    async with contextlib.aclosing(stream):
        async for item in stream:
            for part in _scrub_item(scrubber, item):
                yield part


async def mask_stream(
    stream: AsyncGenerator[ModelDelta | RetryNotice, None],
) -> AsyncGenerator[ModelDelta | RetryNotice, None]:
    """Return an answer whose pieces are without known secrets; the whole message stays, for its calls to run.

    A secret may be spread over several pieces: what may be the beginning of one waits for the next piece.
    """
    mask = StreamMask()
    async with contextlib.aclosing(stream):
        async for item in stream:
            if not isinstance(item, RetryNotice):  # another attempt goes on where the text ended
                text = mask.feed(item.text) if isinstance(item, TextPart) else mask.end()
                if text:
                    yield TextPart(text)
            if not isinstance(item, TextPart):
                yield item


def _scrub_item(scrubber: FenceScrubber, item: ModelDelta | RetryNotice) -> Iterator[ModelDelta | RetryNotice]:
    if isinstance(item, RetryNotice):
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


def _user_text(content: Content) -> str:
    """Return what the person said: without the text of a skill that they chose."""
    return instruction_of(content) or text_content(content)
