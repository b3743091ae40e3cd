"""A turn that a crash cut off: where it stood, and what is known of its calls. The rule: docs/architecture.md.

A call that was about to run and has no result may have taken effect. It is run again only when its tool says that this
does no harm (`tools.parallel.may_repeat`); otherwise the model is told that its end is unknown, and so is the person.

What a memory provider adds to a turn, and learns from it. Source: plugin contract §3.4, §8.3.

The begin of a turn: the session's hooks, what the person said, and what plugins add to it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.transcript_writer import LOST_RESULT
from hermes_agent.agent.turn_context import Interrupt, Interrupted, TurnState
from hermes_agent.core.messages import Content, Message, ToolCall, assistant_text, text_content
from hermes_agent.core.redaction import StreamMask
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.memory.provider_session import FenceScrubber, sanitize_context
from hermes_agent.models.fallback import RetryNotice
from hermes_agent.models.request import ModelAnswer, ModelDelta, TextPart
from hermes_agent.sessions import CallRecord, UnfinishedTurn, UsageTotals
from hermes_agent.skills.skill_commands import instruction_of
from hermes_agent.tools import tool_error
from hermes_agent.tools.call_scope import may_repeat

if TYPE_CHECKING:
    from hermes_agent.agent.agent import Agent
    from hermes_agent.agent.conversation import Conversation


NEVER_RUN = tool_error("not run: the agent was restarted before this call")


@dataclass(slots=True)
class InterruptedTurn:
    """Where a turn was cut off."""

    unfinished: UnfinishedTurn
    content: Content = ""
    """What the person said."""
    text: str = ""
    """What the model said so far."""
    is_answered: bool = False
    """The last answer called no tool: only the end of the turn is missing."""
    calls: tuple[ToolCall, ...] = ()
    """Calls of the last answer that have no result in the transcript."""
    first_place: int = 0
    """Of the first of them in the turn."""
    known_results: dict[int, str] = field(default_factory=dict)
    """By place: results of calls that are not run again."""
    lost_tools: list[str] = field(default_factory=list)
    """Tools of calls whose end is unknown."""
    requests: int = 0
    answers: int = 0
    """Requests that the model answered."""
    usage: UsageTotals = field(default_factory=UsageTotals)

    def notices(self) -> list[str]:
        """Return what the person is told."""
        return [
            f"The agent was restarted while {name} ran. Whether it took effect is unknown; it is not run again."
            for name in self.lost_tools
        ]

    def closing_messages(self) -> list[Message]:
        """Return the messages that end the turn where it was cut off: the person said something else."""
        out = [
            Message(
                "tool",
                self.known_results.get(self.first_place + i, NEVER_RUN),
                tool_call_id=call.id,
                tool_name=call.name,
            )
            for i, call in enumerate(self.calls)
        ]
        return [*out, Message("assistant", "[cut off: the agent was restarted]")] if out else []


async def load_interrupted_turn(agent: Agent, left: UnfinishedTurn) -> InterruptedTurn:
    """Find out where an unfinished turn stood."""
    messages: Sequence[Message] = await agent.call_transcript("messages", left.session_id, after=left.before)
    requests, notes = await agent.call_transcript("journal", left.turn_id)
    spent: UsageTotals = await agent.call_transcript("spent", turn_id=left.turn_id)
    cut = InterruptedTurn(left, requests=len(requests), usage=spent)
    answers = [i for i, m in enumerate(messages) if m.role == "assistant"]
    said = [m for m in messages[: answers[0] if answers else None] if m.role == "user"]
    if said:
        cut.content = said[-1].content
    cut.text, cut.answers = assistant_text(messages), len(answers)
    if not answers:
        return cut
    last, since = messages[answers[-1]], messages[answers[-1] + 1 :]
    done = sum(m.role == "tool" for m in since)
    cut.calls = last.tool_calls[done:]
    cut.is_answered = not last.tool_calls and not since
    cut.first_place = sum(len(messages[i].tool_calls) for i in answers[:-1]) + done
    by_place: dict[int, CallRecord] = {note.place: note for note in notes}
    for place in range(cut.first_place, cut.first_place + len(cut.calls)):
        note = by_place.get(place)
        if note is None:  # it never began
            continue
        if note.status:
            cut.known_results[place] = note.result
        elif not may_repeat(agent.tools, note.name):
            cut.known_results[place] = LOST_RESULT
            cut.lost_tools.append(note.name)
    return cut


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


logger = logging.getLogger(__name__)


async def start_turn(turn: TurnState, cut: InterruptedTurn | None) -> None:
    """Start the session if this is its first turn, note the message, and collect what plugins add to it.

    Args:
        cut: where a crash cut the turn off; its message is there already, what was added to it is gone.
    """
    talk = turn.conversation
    first = not talk.history
    _track_message(turn)
    started = await talk.ensure_started()
    if cut is None:
        note = talk.record.turn_record(turn.id)
        note.is_new, note.model = True, talk.model
    if started:
        await talk.call_hook("on_session_start", **turn.hook_keywords())
    elif await talk.ensure_resumed():
        await talk.call_hook("on_session_resume", message_count=len(talk.history), **turn.hook_keywords())
    if cut is None:
        await add_injected(turn)
    place = len(talk.history) if cut is None else turn.place()  # -1: a compaction took it away, nothing is added
    if place >= 0:
        plugin, known = await recall(talk, turn.content, turn.interrupt)
        await track_recalled(talk, plugin, known)
        pieces = [(plugin, known), *await _plugin_context(turn, place, first=first)]
        added = [(name, text) for name, text in pieces if text]
        if added and isinstance(turn.content, str):
            talk.set_sent_text(
                place, "\n\n".join([turn.content, *(text for _, text in added)]), [name for name, _ in added]
            )
    if cut is None:
        await talk.add(Message("user", turn.content))


async def add_injected(turn: TurnState) -> None:
    """Add what was said into this session meanwhile, as messages of the user."""
    talk = turn.conversation
    for text in talk.agent.injected.take(talk.session_id):
        logger.info("a message of %d characters is taken up", len(text))
        await talk.add(Message("user", text))


def _track_message(turn: TurnState) -> None:
    """Tell whose words come: the person's, a program's that speaks to a webhook, or for a sub-agent its parent's."""
    talk = turn.conversation
    provenance = talk.agent.provenance
    if provenance is None:
        return
    if talk.subagent_policy is not None:
        provenance.share_with_subagent(talk.session_id, talk.parent)
        return
    if not talk.is_stored:  # whoever opened it brought along what was said
        for message in talk.history:
            if message.role == "user":
                provenance.add_user_text(talk.session_id, message.text)
            elif message.role == "assistant":
                provenance.add_quoted_answer(talk.session_id, message.text)
            elif message.role == "tool":
                provenance.add_user_text(
                    talk.session_id, mark_untrusted(message.text, "a result in the caller's history")
                )
    whose = talk.principal.replace(":", " ") if talk.platform == "webhook" else ""
    provenance.add_user_text(talk.session_id, mark_untrusted(turn.user_message, whose) if whose else turn.user_message)


async def _plugin_context(turn: TurnState, place: int, *, first: bool) -> list[tuple[str, str]]:
    """Return what plugins add to the message, each with its plugin."""
    talk = turn.conversation
    if not talk.agent.hooks.has("pre_llm_call"):
        return []
    answers = await talk.call_hook(
        "pre_llm_call",
        user_message=turn.user_message,
        conversation_history=[m.to_dict() for m in talk.history[:place]],
        is_first_turn=first,
        sender_id=talk.principal.partition(":")[2],
        **turn.ids(),
        **turn.hook_keywords(),
    )
    return [(a.plugin, await _spill_piece(talk, p)) for a in answers if (p := _context_text(a.value))]


async def _spill_piece(talk: Conversation, piece: str) -> str:
    spill = talk.agent.spill
    if spill is None or not spill.is_long(piece):
        return piece
    return await talk.agent.bridge.run(spill.fit, talk.session_id, piece)


def _context_text(value: Any) -> str:
    text = value.get("context") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text.strip() else ""
