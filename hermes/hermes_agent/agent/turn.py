"""One turn: model steps and tool steps until the model is done, a limit is reached, or an interrupt."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.context_engines import ContextEngines
from hermes_agent.agent.model_step import ModelStep
from hermes_agent.agent.settings import WARN, find_unpriced, price_refusal
from hermes_agent.agent.tool_step import ToolStep
from hermes_agent.agent.transcript_writer import repaired
from hermes_agent.agent.turn_context import Interrupted, TurnContext, TurnState, TurnStopped, verify_nudge
from hermes_agent.agent.turn_start import (
    InterruptedTurn,
    add_injected,
    mask_item,
    remember_turn,
    start_turn,
    without_fences,
)
from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, ReasoningPart, TextPart, ToolDefinitions
from hermes_agent.core.errors import ContextTooLong, UserError
from hermes_agent.core.log_context import log_context
from hermes_agent.core.messages import (
    Message,
    Notice,
    ReasoningDelta,
    StopSentence,
    TextDelta,
    TurnEvent,
    TurnFinished,
)
from hermes_agent.core.redaction import StreamMask, redactor
from hermes_agent.models.fallback import RetryNotice
from hermes_agent.models.model_catalog import cost_usd
from hermes_agent.sessions import TURN, UsageRecord

if TYPE_CHECKING:
    from hermes_agent.agent.compaction import SessionCompaction

logger = logging.getLogger(__name__)

TOO_LONG_TRIES = 3
"""Requests of one step that the provider may refuse as too long."""

CUT_ANSWER = "[cut off: the limit of tokens for an answer was reached]"
"""Text in the transcript of an answer that had only calls, which were cut."""
BUDGET_SPENT = (
    "You have used all tool calls of this turn. Answer now, without tools: say what you found and what is left to do."
)


async def run_turn(
    turn: TurnState, engines: ContextEngines, cut: InterruptedTurn | None
) -> AsyncGenerator[TurnEvent, None]:
    """Run one turn of a conversation and yield its events; each step is stored.

    Args:
        engines: shorten the history when it does not fit the context window.
        cut: where a crash interrupted the turn; None starts it.

    Raises:
        ModelError: the model could not answer. The steps until then stay in the transcript.
    """
    context = turn.context
    completed, state, failure = False, "cancelled", ""
    with log_context(session=context.session.id, turn=turn.id):
        try:
            await start_turn(turn, cut)
            try:
                async with contextlib.aclosing(_steps(turn, engines, cut)) as steps:
                    async for event in steps:
                        yield event
            except Interrupted:
                turn.end = "interrupted"
                await _close_interrupted(turn)
            except TurnStopped as stopped:
                turn.end = "stopped"
                yield await _close_stopped(turn, str(stopped))
                await _finish_turn(turn)
            else:
                await _finish_turn(turn)
            completed, state = turn.end != "interrupted", turn.end
            context.history.record.turn_record(turn.id).end = state
            await context.history.commit()
            await _track_answer(turn)
            ids = {"turn_id": turn.id, "api_call_count": turn.requests, "interrupted": turn.end == "interrupted"}
            await engines.complete_turn(context.session.id, turn.usage, **ids)
            model = turn.model or context.model.name
            ended = (turn.finish_reason, turn.caller_calls)
            yield TurnFinished(turn.text, turn.end, turn.usage, model, turn.id, *ended)
        except UserError as error:
            state, failure = "failed", f": {error.message}"
            raise
        finally:
            if not completed and state != "interrupted":
                context.history.record.turn_record(turn.id).end = state
                await context.history.commit()
            logger.log(
                logging.WARNING if failure else logging.INFO,
                "turn ended: %s, %d tool call(s), %d tokens%s",
                turn.end if completed or turn.end == "interrupted" else state,
                turn.calls,
                turn.usage.total_tokens,
                failure,
            )
            await context.call_hook(
                "on_session_end",
                completed=completed,
                interrupted=turn.end == "interrupted",
                failed=bool(failure),
                turn_exit_reason=turn.end if completed or turn.end == "interrupted" else state,
                **turn.ids(),
                **turn.hook_keywords(),
            )


async def _track_answer(turn: TurnState) -> None:
    """Track an answer that the caller stores, not the agent: what untrusted text it may contain."""
    context = turn.context
    taint = context.taint
    if taint is not None and not context.session.is_stored:
        answers = [m.text for m in context.history.messages[turn.place() + 1 :] if m.role == "assistant" and m.text]
        texts = [turn.text, *answers, "".join(answers), "\n\n".join(answers)]
        await context.bridge.run(taint.save_answer, context.session.id, texts)


async def _steps(
    turn: TurnState, engines: ContextEngines, cut: InterruptedTurn | None
) -> AsyncGenerator[TurnEvent, None]:
    """Run steps until the model is done; an interrupted turn starts with the calls that are left."""
    context = turn.context
    if context.discovered is not None:
        await context.discovered()
    is_without = turn.options.tool_choice == "none"
    tools = ToolDefinitions() if is_without else turn.options.with_tools(await context.load_definitions())
    valid = [t["function"]["name"] for t in tools] + [*tools.searchable]
    if cut is not None:
        async with contextlib.aclosing(ToolStep(turn, cut.calls, valid, cut.first_place).events()) as events:
            async for event in events:
                yield event
    if cut is None or not cut.is_answered or context.injected.has_pending(context.session.id):
        async with contextlib.aclosing(_loop(turn, engines, tools, valid)) as events:
            async for event in events:
                yield event


async def _loop(
    turn: TurnState, engines: ContextEngines, tools: list[dict[str, Any]], valid: list[str]
) -> AsyncGenerator[TurnEvent, None]:
    context = turn.context
    settings = context.settings
    while turn.budget.take():
        add_injected(turn)
        answer: ModelAnswer | None = None
        async with contextlib.aclosing(_fitted_step(turn, engines, tools)) as deltas:
            async for item in deltas:
                if isinstance(item, ModelAnswer):
                    answer = item
                else:
                    yield item
        assert answer is not None
        if turn.caller_calls:
            return
        if not answer.message.tool_calls:
            if nudge := await _nudge(turn, answer.message.text):
                context.history.add(Message("user", nudge))
                continue
            if context.injected.has_pending(context.session.id):
                continue
            return
        _post_interim(turn, answer.message.text)
        calls, place = answer.message.tool_calls, turn.places
        turn.places += len(calls)
        async with contextlib.aclosing(ToolStep(turn, calls, valid, place).events()) as events:
            async for event in events:
                yield event
        if 0 < settings.max_turn_tokens <= turn.usage.total_tokens:
            reached = f"The limit of {settings.max_turn_tokens} tokens for a turn is reached"
            break
    else:
        reached = f"The limit of {context.max_turns} steps is reached"
    turn.end = "budget"
    yield Notice(f"{reached}; asking for a last answer.", "warning")
    add_injected(turn)
    async with contextlib.aclosing(_fitted_step(turn, engines, (), reminder=BUDGET_SPENT)) as deltas:
        async for item in deltas:
            if not isinstance(item, ModelAnswer):
                yield item


def _post_interim(turn: TurnState, text: str) -> None:
    """Report a text that the user sees before the final answer; it was streamed as it came."""
    context = turn.context
    if not text.strip() or not context.hooks.has("on_interim_message"):
        return
    context.hooks.post(
        "on_interim_message",
        text=redactor.mask_known(text),
        already_streamed=True,
        iteration=turn.requests,
        surface=context.session.platform,
        provider=context.model.provider,
        **turn.ids(),
        **turn.hook_keywords(),
    )


async def _nudge(turn: TurnState, final_response: str) -> str:
    """Return the text with which `pre_verify` continues the turn, or ""."""
    context = turn.context
    if not turn.changed_files or turn.nudges >= context.settings.max_verify_nudges:
        return ""
    answers = await context.call_hook(
        "pre_verify",
        coding=True,
        attempt=turn.nudges,
        final_response=final_response,
        changed_paths=list(turn.changed_files),
        **turn.hook_keywords(),
    )
    nudge = verify_nudge(answers)
    turn.nudges += bool(nudge)
    return nudge


async def _fitted_step(
    turn: TurnState, engines: ContextEngines, tools: Any, reminder: str = ""
) -> AsyncGenerator[TextDelta | ReasoningDelta | ModelAnswer | Notice, None]:
    """Send a model request; compact the history before it, or after an overflow of the context window.

    A caller that brings its own history gets the error of a first request that is too long: it decides what to omit.

    Raises:
        ModelError: the model could not answer.
    """
    context = turn.context
    first = not turn.requests
    compaction = await engines.for_session(context)
    notices = context.notices[:]
    context.notices.clear()
    for notice in notices:
        yield Notice(notice, "warning")
    if sentence := await compaction.fit(context, tools, turn.place):
        yield Notice(sentence)
    for left in range(TOO_LONG_TRIES - 1, -1, -1):
        begun = False
        try:
            async with contextlib.aclosing(_model_step(turn, tools, compaction, reminder)) as items:
                async for item in items:
                    begun = True
                    if isinstance(item, ModelAnswer):
                        await compaction.record_usage(context, tools, item.usage)
                    yield item
            return
        except ContextTooLong as exc:
            if begun or not left or (first and not context.session.is_stored):
                raise
            sentence = await compaction.shorten_after_overflow(context, tools, exc)
            if not sentence:
                raise
        yield Notice(sentence, "warning")


async def _messages_to_send(
    context: TurnContext, compaction: SessionCompaction, reminder: str
) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return the messages of the next request as the history has them, and as they are sent."""
    own = context.history.accepted()
    sent = context.history.messages_to_send() if context.history.sent_texts else own
    if (chosen := await compaction.select(context, sent)) is not sent:
        sent = repaired(chosen)
    if reminder:
        own, sent = (repaired([*each, Message("user", reminder)]) for each in (own, sent))
    return own, sent


async def _model_step(
    turn: TurnState, tools: Any, compaction: SessionCompaction, reminder: str = ""
) -> AsyncGenerator[TextDelta | ReasoningDelta | ModelAnswer | Notice, None]:
    """Send one model request; its answer is in the history when it is yielded."""
    context = turn.context
    turn.context.interrupt.check()
    own, sent = await _messages_to_send(context, compaction, reminder)
    turn.requests += 1
    context.model.calls += 1
    await context.history.commit()
    sentence, warnings = await _reached_cap(context)
    if sentence:
        raise TurnStopped(sentence)
    for warning in warnings:
        yield Notice(warning, "warning")
    if notice := _uncounted_notice(context):
        yield Notice(notice, "warning")
    request = _new_request(turn, tools, sent)
    head = (context.model.name, context.history.system_prompt)
    unchanged = request.messages if sent is own else ()
    context.history.record.add_request(turn.id, turn.requests, head, tools, own, unchanged)
    began = time.monotonic()
    step = ModelStep(context, turn.user_message, turn.requests)
    mask, text = StreamMask(), ""
    separator = "\n\n" if turn.text else ""
    try:
        async with contextlib.aclosing(without_fences(context, step.ask(request))) as deltas:
            async for delta in deltas:
                for item in mask_item(mask, delta):
                    if isinstance(item, TextPart):
                        yield TextDelta(separator + item.text)
                        separator = ""
                        text += item.text
                    elif isinstance(item, ModelAnswer):
                        turn.request_id = step.id
                        yield _keep_answer(turn, item, reminder, time.monotonic() - began)
                        return
                    elif event := _shown(item, context.streams_output):
                        yield event
    except Interrupted:
        if text:
            context.history.add(Message("assistant", text + "\n\n[interrupted by the user]"))
            turn.add_text(text)
        raise


def _new_request(turn: TurnState, tools: Any, sent: Sequence[Message]) -> ModelRequest:
    """Return the request with these messages, and with what the caller of the turn sets."""
    context = turn.context
    model, hooks = context.model.chosen, context.hooks
    request = ModelRequest(
        model.name,
        context.history.add_prompt(sent),
        tools,
        model.max_tokens,
        session_id=context.session.id,
        extra={"reasoning_effort": model.reasoning_effort} if model.reasoning_effort else {},
        shows_reasoning=context.streams_output or (hooks.streams_reasoning and hooks.has("on_stream_delta")),
    )
    return turn.options.apply_to(request, first=not turn.answers) if turn.options.values() else request


def _shown(item: ReasoningPart | RetryNotice, shows_reasoning: bool) -> ReasoningDelta | Notice | None:
    """Return the event that shows reasoning, a retry or a wait, or None for nothing."""
    if isinstance(item, ReasoningPart):
        return ReasoningDelta(item.text) if shows_reasoning else None
    return Notice(item.why, item.level) if item.why else None


async def _reached_cap(context: TurnContext) -> tuple[str, list[str]]:
    """Return the sentence that ends the turn at a usage cap, or ""; and notices of caps nearly reached."""
    caps, model = context.caps(), context.model
    warnings = []
    for cap in caps:
        spent = await context.call_transcript("usage", **cap.usage_filter)
        if sentence := cap.sentence(spent):
            return sentence, []
        key = (cap.name, *cap.usage_filter.values())
        if key not in model.warned_caps and (warning := cap.warning(spent)):
            model.warned_caps.add(key)
            warnings.append(warning)
    return price_refusal(context.settings.limits, caps, model.chosen.client, model.name), warnings


def _uncounted_notice(context: TurnContext) -> str:
    """Return a notice, once for a model, that the caps in dollars do not count its requests; or ""."""
    limits, model = context.settings.limits, context.model
    if limits.unknown_price != WARN or model.uncounted == (model.provider, model.name):
        return ""
    why = find_unpriced(limits, context.caps(), model.chosen.client, model.name)
    if not why:
        return ""
    model.uncounted = (model.provider, model.name)
    logger.warning("%s: its calls are not counted", why)
    return f"{why[:1].upper()}{why[1:]}: its calls are not counted."


def _keep_answer(turn: TurnState, answer: ModelAnswer, reminder: str, seconds: float) -> ModelAnswer:
    """Add an answer to the turn and to the history; return it with the calls that run."""
    turn.usage += answer.usage
    turn.model = answer.model
    turn.record_answer(answer)
    kept = _kept_answer(turn, answer, reminder)
    turn.context.history.record.add_usage(_usage(turn, kept, seconds))
    turn.context.history.add(kept.message, kept.usage)
    turn.add_text(redactor.mask_known(answer.message.text))
    return kept


def _kept_answer(turn: TurnState, answer: ModelAnswer, reminder: str) -> ModelAnswer:
    """Return the answer with the calls that run, here or at the caller."""
    cut = _is_cut(turn, answer)
    if reminder or cut:
        # the calls of the last answer do not run: they are dropped, with their provider's signatures
        words = answer.message.content
        return replace(answer, message=Message("assistant", words or (CUT_ANSWER if cut else "")))
    return turn.keep_caller_calls(answer) if turn.options.tools else answer


def _is_cut(turn: TurnState, answer: ModelAnswer) -> bool:
    """Return whether the caller's limit cut an answer with tool calls; they may be incomplete."""
    capped = turn.options.max_tokens is not None and answer.finish_reason == "length"
    return capped and bool(answer.message.tool_calls)


def _usage(turn: TurnState, answer: ModelAnswer, seconds: float) -> UsageRecord:
    context = turn.context
    return UsageRecord(
        answer.usage,
        answer.provider or context.model.provider,
        answer.model,
        cause="delegation" if context.session.is_subagent else TURN,
        session_id=context.session.account,
        turn_id=turn.id,
        source=context.session.platform,
        principal=context.session.principal,
        cost_usd=cost_usd(answer, context.model.provider),
        seconds=seconds,
    )


async def _close_interrupted(turn: TurnState) -> None:
    """End the transcript with an assistant message, so that the next request alternates."""
    context = turn.context
    if context.history.messages and context.history.messages[-1].role != "assistant":
        context.history.add(Message("assistant", "[interrupted by the user]"))


async def _close_stopped(turn: TurnState, sentence: str) -> StopSentence:
    """End the turn with a sentence of the agent."""
    delta = StopSentence(("\n\n" if turn.text else "") + sentence)
    turn.add_text(sentence)
    turn.context.history.add(Message("assistant", sentence))
    return delta


def _replace_answer(turn: TurnState, text: str) -> None:
    """Make `text` the text of the turn: what is shown is what is stored.

    Texts before tool calls are stored with those calls. The last message gets the rest.
    """
    messages = turn.context.history.messages
    last = messages[-1].text if messages else ""
    before = turn.text.removesuffix(last)
    turn.text = text
    turn.context.history.replace_answer(text.removeprefix(before) if before and text.startswith(before) else text)


async def _finish_turn(turn: TurnState) -> None:
    context = turn.context
    keywords = {"turn_id": turn.id, **turn.hook_keywords()}
    for answer in await context.call_hook("transform_llm_output", response_text=turn.text, **keywords):
        if isinstance(answer.value, str) and answer.value:
            _replace_answer(turn, redactor.mask_known(answer.value))
            break
    await remember_turn(context, turn.content, turn.text)
    session, titles = context.session, context.titles
    is_listed = session.is_stored and not session.parent
    has_texts = bool(turn.user_message and turn.text)
    if titles is not None and is_listed and has_texts and titles.is_due(context.history.messages):
        with context.use_scope():
            titles.start(session.id, turn.user_message, turn.text, context.call_transcript)
    if turn.text and context.hooks.has("post_llm_call"):
        await context.call_hook(
            "post_llm_call",
            user_message=turn.user_message,
            assistant_response=turn.text,
            conversation_history=[m.to_dict() for m in context.history.messages],
            **turn.ids(),
            **turn.hook_keywords(),
        )
