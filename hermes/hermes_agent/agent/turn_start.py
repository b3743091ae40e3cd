"""The start of a turn: hooks, memory, additions of plugins; or where a crash interrupted it.

A tool call that was about to run and has no result may have taken effect. It runs again only if its tool declares that
this does no harm (`may_repeat`); otherwise the model and the user learn that its result is unknown.
Source: plugin contract §3.4, §8.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from hermes_agent.agent.transcript_writer import LOST_RESULT
from hermes_agent.agent.turn_context import Interrupted, TurnContext, TurnState
from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ReasoningPart, TextPart
from hermes_agent.core.errors import UnsupportedOption
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Content, Message, ToolCall, assistant_text, text_content
from hermes_agent.core.redaction import StreamMask
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.memory.provider_session import FenceScrubber, sanitize_context
from hermes_agent.models.fallback import RetryNotice
from hermes_agent.sessions import CallRecord, UnfinishedTurn, UsageTotals
from hermes_agent.skills.skill_commands import instruction_of
from hermes_agent.tools import ToolRegistry, tool_error
from hermes_agent.tools.call_scope import may_repeat

NEVER_RUN = tool_error("not run: the agent was restarted before this call")


@lazy_dataclass(slots=True)
class InterruptedTurn:
    """A turn that a crash interrupted, and where it stood."""

    unfinished: UnfinishedTurn
    content: Content = ""
    """The user message of the turn."""
    text: str = ""
    """The text of the model so far."""
    is_answered: bool = False
    """Whether the last answer called no tool: only the end of the turn is missing."""
    calls: tuple[ToolCall, ...] = ()
    """Calls of the last answer that have no result in the transcript."""
    first_place: int = 0
    """Place of the first of these calls in the turn."""
    known_results: dict[int, str] = field(default_factory=dict)
    """By place: results of calls that do not run again."""
    lost_tools: list[str] = field(default_factory=list)
    """Tools of calls with an unknown result."""
    requests: int = 0
    answers: int = 0
    """Requests that the model answered."""
    usage: UsageTotals = field(default_factory=UsageTotals)

    def notices(self) -> list[str]:
        """Return the notices for the user."""
        return [
            f"The agent was restarted while {name} ran. Whether it took effect is unknown; it is not run again."
            for name in self.lost_tools
        ]

    def closing_messages(self) -> list[Message]:
        """Return the messages that end the turn where it stood, before another user message."""
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


async def load_interrupted_turn(
    call_transcript: Callable[..., Coroutine[Any, Any, Any]], tools: ToolRegistry, left: UnfinishedTurn
) -> InterruptedTurn:
    """Return where an unfinished turn stood. `call_transcript`: calls a method of the transcript."""
    messages: Sequence[Message] = await call_transcript("messages", left.session_id, after=left.before)
    requests, notes = await call_transcript("journal", left.turn_id)
    spent: UsageTotals = await call_transcript("usage", turn_id=left.turn_id)
    cut = InterruptedTurn(left, requests=len(requests), usage=spent)
    answers = [i for i, m in enumerate(messages) if m.role == "assistant"]
    questions = [m for m in messages[: answers[0] if answers else None] if m.role == "user"]
    if questions:
        cut.content = questions[-1].content
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
        if note is None:  # the call did not start
            continue
        if note.status:
            cut.known_results[place] = note.result
        elif not may_repeat(tools, note.name):
            cut.known_results[place] = LOST_RESULT
            cut.lost_tools.append(note.name)
    return cut


async def recall(context: TurnContext, content: Content) -> tuple[str, str]:
    """Return the plugin of the memory provider and its fenced recall for a message; or two empty texts."""
    provider = context.provider
    # a message of parts is sent unchanged
    if provider is None or not isinstance(content, str) or not (query := _user_text(content)).strip():
        return "", ""
    length = context.model.chosen.context_length
    facts = {
        "model": context.model.name,
        "platform": context.session.platform,
        "tool_count": len(context.tools.names()),
    }
    try:
        with context.use_scope():
            return provider.plugin, await context.interrupt.run(
                provider.recall(query, remaining_tokens=length, **facts)
            )
    except Interrupted:  # the turn checks again, after its message is in the transcript
        return "", ""


async def track_recalled(context: TurnContext, plugin: str, text: str) -> None:
    """Track recalled text as untrusted where the memory learned it in a session with untrusted text."""
    taint = context.taint
    if taint is not None and text:
        source = await context.bridge.run(taint.source_of, _memory_of(context, plugin))
        if source:
            taint.add_user_text(context.session.id, mark_untrusted(text, source))


def _memory_of(context: TurnContext, plugin: str) -> str:
    return f"memory {plugin} of {context.session.principal}"


async def remember_turn(context: TurnContext, content: Content, answer: str) -> None:
    """Let the memory learn from a turn that was answered, without waiting for it."""
    provider = context.provider
    if provider is not None and answer:
        if context.taint is not None:
            name = _memory_of(context, provider.plugin)
            await context.bridge.run(context.taint.mark_learned, context.session.id, name)
        with context.use_scope():
            provider.after_turn(_user_text(content), answer, [m.to_dict() for m in context.history.messages])


def without_fences(
    context: TurnContext, stream: AsyncGenerator[ModelDelta | RetryNotice, None]
) -> AsyncGenerator[ModelDelta | RetryNotice, None]:
    """Return an answer without the fences of recalled text that the model repeats."""
    if context.provider is None:
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


def mask_item(mask: StreamMask, item: ModelDelta | RetryNotice) -> Sequence[ModelDelta | RetryNotice]:
    """Return the next item of an answer with known secrets masked in its text.

    The calls of the `ModelAnswer` stay. A secret may span several pieces: what may be the beginning of one waits for
    the next piece.
    """
    if isinstance(item, RetryNotice | ReasoningPart):  # another attempt continues where the text ended
        return (item,)
    if isinstance(item, TextPart):
        text = mask.feed(item.text)
        return (TextPart(text),) if text else ()
    rest = mask.end()
    return (TextPart(rest), item) if rest else (item,)


def _scrub_item(scrubber: FenceScrubber, item: ModelDelta | RetryNotice) -> Iterator[ModelDelta | RetryNotice]:
    if isinstance(item, RetryNotice | ReasoningPart):
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
    """Return the text of the user, without the text of a skill that the user chose."""
    return instruction_of(content) or text_content(content)


logger = logging.getLogger(__name__)


async def start_turn(turn: TurnState, cut: InterruptedTurn | None) -> None:
    """Call the hook of the session, add the user message, and collect the additions of plugins.

    Args:
        cut: where a crash interrupted the turn; its message is stored, the additions are lost.
    """
    context = turn.context
    first = not context.history.messages
    is_continued = bool(turn.options.continuation) and context.session.is_stored
    _track_message(turn)
    if cut is None:
        note = context.history.record.turn_record(turn.id)
        note.is_new, note.model = True, context.model.name
    if turn.session_hook == "on_session_resume":
        count = len(context.history.messages)
        await context.call_hook(turn.session_hook, message_count=count, **turn.hook_keywords())
    elif turn.session_hook:
        await context.call_hook(turn.session_hook, **turn.hook_keywords())
    if cut is None:
        add_injected(turn)
    place = len(context.history.messages) if cut is None and not is_continued else turn.place()
    if place >= 0:  # otherwise a compaction removed the message, and nothing can be added to it
        plugin, known = await recall(context, turn.content)
        await track_recalled(context, plugin, known)
        pieces = [(plugin, known), *await _plugin_context(turn, place, first=first)]
        added = [(name, text) for name, text in pieces if text]
        if added and isinstance(turn.content, str):
            context.history.set_sent_text(
                place, "\n\n".join([turn.content, *(text for _, text in added)]), [name for name, _ in added]
            )
    if cut is None and not is_continued:
        context.history.add(Message("user", turn.content))
    if cut is None:
        for message in new_messages(turn.options.continuation) if is_continued else turn.options.continuation:
            _track_result(turn, message)
            context.history.add(message)


def new_messages(continuation: Sequence[Message]) -> Sequence[Message]:
    """Return the results at the end of a continuation: a stored session has what came before them."""
    calls = [i for i, message in enumerate(continuation) if message.role != "tool"]
    return continuation[calls[-1] + 1 :] if calls else continuation


def check_results(history: Sequence[Message], continuation: Sequence[Message]) -> None:
    """Raise UnsupportedOption if the new results are not those of the calls with which a session ended."""
    waiting = {call.id for call in history[-1].tool_calls} if history else set()
    given = {message.tool_call_id for message in new_messages(continuation)}
    if not given or given != waiting:
        expected = f"the results of {', '.join(sorted(waiting))}" if waiting else "no results"
        found = ", ".join(sorted(given)) or "none"
        raise UnsupportedOption("messages", f"The session waits for {expected}; the request has those of {found}.")


def user_message_of(history: Sequence[Message]) -> Content:
    """Return the last message of the user, to which results of the caller's tools belong."""
    return next((message.content for message in reversed(history) if message.role == "user"), "")


def _track_result(turn: TurnState, message: Message) -> None:
    context = turn.context
    if context.taint is None:
        return
    if message.role == "assistant":
        context.taint.add_quoted_answer(context.session.id, message.text)
    else:
        context.taint.add_user_text(context.session.id, mark_untrusted(message.text, "a result of the caller's tool"))


def add_injected(turn: TurnState) -> None:
    """Add the injected messages of the session that are waiting, as user messages."""
    context = turn.context
    for text in context.injected.take(context.session.id):
        logger.info("injected message added: %d characters", len(text))
        context.history.add(Message("user", text))


def _track_message(turn: TurnState) -> None:
    """Track the user message: as the user's text, as that of a webhook, or for a subagent as its parent's."""
    context = turn.context
    taint = context.taint
    if taint is None:
        return
    if context.session.is_subagent:
        taint.share_with_subagent(context.session.id, context.session.parent)
        return
    if not context.session.is_stored:  # the caller brought its history
        for message in context.history.messages:
            if message.role == "user":
                taint.add_user_text(context.session.id, message.text)
            elif message.role == "assistant":
                taint.add_quoted_answer(context.session.id, message.text)
            elif message.role == "tool":
                taint.add_user_text(
                    context.session.id, mark_untrusted(message.text, "a result in the caller's history")
                )
    source = context.session.principal.replace(":", " ") if context.session.platform == "webhook" else ""
    text = mark_untrusted(turn.user_message, source) if source else turn.user_message
    for reference in () if source else turn.expanded:  # written by what a plugin read, not by the user
        if reference.text.strip():
            text = text.replace(reference.text, mark_untrusted(reference.text, reference.name), 1)
    taint.add_user_text(context.session.id, text)


async def _plugin_context(turn: TurnState, place: int, *, first: bool) -> list[tuple[str, str]]:
    """Return the additions to the user message, each with its plugin."""
    context = turn.context
    if not context.hooks.has("pre_llm_call"):
        return []
    answers = await context.call_hook(
        "pre_llm_call",
        user_message=turn.user_message,
        conversation_history=[m.to_dict() for m in context.history.messages[:place]],
        is_first_turn=first,
        sender_id=context.session.principal.partition(":")[2],
        parent_session_id=context.session.parent,
        **turn.ids(),
        **turn.hook_keywords(),
    )
    return [(a.plugin, await _spill_piece(context, p)) for a in answers if (p := _context_text(a.value))]


async def _spill_piece(context: TurnContext, piece: str) -> str:
    spill = context.spill
    if spill is None or not spill.is_long(piece):
        return piece
    return await context.bridge.run(spill.fit, context.session.id, piece)


def _context_text(value: Any) -> str:
    text = value.get("context") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text.strip() else ""
