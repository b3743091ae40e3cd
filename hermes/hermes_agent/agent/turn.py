"""One turn: model step, tool step, until the model is done, the budget is spent, or somebody stops it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from hermes_agent.agent.model_step import ModelStep
from hermes_agent.agent.settings import reached_cap, uncounted_notice
from hermes_agent.agent.tool_step import ToolStep
from hermes_agent.agent.transcript_writer import repaired
from hermes_agent.agent.turn_context import Interrupted, TurnState, TurnStopped, verify_nudge
from hermes_agent.agent.turn_start import (
    InterruptedTurn,
    add_injected,
    mask_stream,
    remember_turn,
    start_turn,
    without_fences,
)
from hermes_agent.core.errors import ContextTooLong, UserError
from hermes_agent.core.log_context import log_context
from hermes_agent.core.messages import Event, Message, Notice, StopSentence, TextDelta, TurnFinished, text_content
from hermes_agent.core.redaction import redactor
from hermes_agent.models.fallback import RetryNotice
from hermes_agent.models.model_catalog import cost_usd
from hermes_agent.models.request import ModelAnswer, ModelRequest, TextPart, ToolDefinitions
from hermes_agent.sessions import TURN, UsageRecord

logger = logging.getLogger(__name__)

TOO_LONG_TRIES = 3
"""Requests of one step that may be too long."""

CUT_ANSWER = "[cut off: the limit of tokens for an answer was reached]"
"""Stands in the transcript where an answer had nothing but calls that were cut."""
BUDGET_SPENT = (
    "You have used all tool calls of this turn. Answer now, without tools: say what you found and what is left to do."
)


async def run_turn(turn: TurnState, cut: InterruptedTurn | None) -> AsyncGenerator[Event, None]:
    """Run one turn of a conversation and yield its events; the transcript is kept as it goes.

    Args:
        cut: where a crash cut it off; None: it begins.

    Raises:
        ModelError: the model could not answer. What was said and done until then stays in the transcript.
    """
    talk = turn.conversation
    completed, state, failure = False, "cancelled", ""
    with log_context(session=talk.session_id, turn=turn.id):
        try:
            await start_turn(turn, cut)
            try:
                async with contextlib.aclosing(_steps(turn, cut)) as steps:
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
            talk.record.turn_record(turn.id).end = state
            await talk.commit()
            await _track_answer(turn)
            model = turn.model or talk.model
            yield TurnFinished(turn.text, turn.end, turn.usage, model, turn.id, turn.finish_reason)
        except UserError as error:
            state, failure = "failed", f": {error.message}"
            raise
        finally:
            if not completed and state != "interrupted":
                talk.record.turn_record(turn.id).end = state
                await talk.commit()
            logger.log(
                logging.WARNING if failure else logging.INFO,
                "turn ended: %s, %d tool call(s), %d tokens%s",
                turn.end if completed or turn.end == "interrupted" else state,
                turn.calls,
                turn.usage.total_tokens,
                failure,
            )
            await talk.call_hook(
                "on_session_end",
                completed=completed,
                interrupted=turn.end == "interrupted",
                **turn.ids(),
                **turn.hook_keywords(),
            )


async def _track_answer(turn: TurnState) -> None:
    """Note what was heard before an answer that the caller keeps, not the agent."""
    talk = turn.conversation
    provenance = talk.agent.provenance
    if provenance is not None and not talk.is_stored:
        said = [m.text for m in talk.history[turn.place() + 1 :] if m.role == "assistant" and m.text]
        texts = [turn.text, *said, "".join(said), "\n\n".join(said)]
        await talk.agent.bridge.run(provenance.save_answer, talk.session_id, texts)


async def _steps(turn: TurnState, cut: InterruptedTurn | None) -> AsyncGenerator[Event, None]:
    """Ask the model and run its calls until it is done; a turn that was cut off begins with the calls that are left."""
    talk = turn.conversation
    if talk.agent.discovered is not None:
        await talk.agent.discovered()
    tools = ToolDefinitions() if turn.options.tool_choice == "none" else await talk.tools()
    valid = [*(t["function"]["name"] for t in tools), *tools.searchable]
    if cut is not None:
        async with contextlib.aclosing(ToolStep(turn, cut.calls, valid, cut.first_place).events()) as events:
            async for event in events:
                yield event
    if cut is None or not cut.is_answered or talk.agent.injected.has_pending(talk.session_id):
        async with contextlib.aclosing(_loop(turn, tools, valid)) as events:
            async for event in events:
                yield event


async def _loop(turn: TurnState, tools: list[dict[str, Any]], valid: list[str]) -> AsyncGenerator[Event, None]:
    talk = turn.conversation
    settings = talk.agent.settings
    while turn.budget.take():
        await add_injected(turn)
        answer: ModelAnswer | None = None
        async with contextlib.aclosing(_fitted_step(turn, tools)) as deltas:
            async for item in deltas:
                if isinstance(item, ModelAnswer):
                    answer = item
                else:
                    yield item
        assert answer is not None
        if not answer.message.tool_calls:
            if nudge := await _nudge(turn, answer.message.text):
                await talk.add(Message("user", nudge))
                continue
            if talk.agent.injected.has_pending(talk.session_id):
                continue
            return
        calls, place = answer.message.tool_calls, turn.places
        turn.places += len(calls)
        async with contextlib.aclosing(ToolStep(turn, calls, valid, place).events()) as events:
            async for event in events:
                yield event
        if 0 < settings.max_turn_tokens <= turn.usage.total_tokens:
            reached = f"The limit of {settings.max_turn_tokens} tokens for a turn is reached"
            break
    else:
        reached = f"The limit of {talk.max_turns} steps is reached"
    turn.end = "budget"
    yield Notice(f"{reached}; asking for a last answer.", "warning")
    await add_injected(turn)
    async with contextlib.aclosing(_fitted_step(turn, (), reminder=BUDGET_SPENT)) as deltas:
        async for item in deltas:
            if not isinstance(item, ModelAnswer):
                yield item


async def _nudge(turn: TurnState, final_response: str) -> str:
    """Return what `pre_verify` wants the model to be told before the turn ends; empty when it may end."""
    talk = turn.conversation
    if not turn.changed_files or turn.nudges >= talk.agent.settings.max_verify_nudges:
        return ""
    answers = await talk.call_hook(
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
    turn: TurnState, tools: Any, reminder: str = ""
) -> AsyncGenerator[TextDelta | ModelAnswer | Notice, None]:
    """Ask the model within what it can read: the conversation is made shorter before, or when that is refused.

    A caller that brings its own history is told when its first request is too long: it decides what to leave out.

    Raises:
        ModelError: the model could not answer.
    """
    talk = turn.conversation
    first = not turn.requests
    context = await talk.agent.context_engines.for_session(talk)
    for notice in talk.take_notices():
        yield Notice(notice, "warning")
    if told := await context.fit(talk, tools, turn.interrupt.run, turn.place):
        yield Notice(told)
    for left in range(TOO_LONG_TRIES - 1, -1, -1):
        begun = False
        try:
            async with contextlib.aclosing(_model_step(turn, tools, reminder)) as items:
                async for item in items:
                    begun = True
                    if isinstance(item, ModelAnswer):
                        await context.record_usage(talk, tools, item.usage)
                    yield item
            return
        except ContextTooLong as exc:
            if begun or not left or (first and not talk.is_stored):
                raise
            told = await context.shorten_after_overflow(talk, tools, exc, turn.interrupt.run)
            if not told:
                raise
        yield Notice(told, "warning")


async def _model_step(
    turn: TurnState, tools: Any, reminder: str = ""
) -> AsyncGenerator[TextDelta | ModelAnswer | Notice, None]:
    """Ask the model once; the answer is in the transcript when it is yielded."""
    talk = turn.conversation
    turn.interrupt.check()
    said, sent = talk.history_messages(), talk.messages_to_send()
    if reminder:
        said, sent = (repaired([*each, Message("user", reminder)]) for each in (said, sent))
    turn.requests += 1
    talk.model_calls += 1
    await talk.commit()
    if sentence := await reached_cap(talk, turn.id):
        raise TurnStopped(sentence)
    if notice := uncounted_notice(talk, turn.id):
        yield Notice(notice, "warning")
    talk.record.add_request(turn.id, turn.requests, (talk.model, talk.system_prompt), tools, said)
    extra = {"reasoning_effort": effort} if (effort := talk.chosen.reasoning_effort) else {}
    messages = [talk.system_message(), *sent]
    request = ModelRequest(talk.model, messages, tools, talk.chosen.max_tokens, session_id=talk.session_id, extra=extra)
    if turn.options.values():
        request = turn.options.apply_to(request, first=not turn.answers)
    began = time.monotonic()
    step = ModelStep(talk, turn.interrupt, turn.id, turn.user_message, turn.requests, turn.options)
    text = ""
    separator = "\n\n" if turn.text else ""
    try:
        async with contextlib.aclosing(mask_stream(without_fences(talk, step.ask(request)))) as deltas:
            async for item in deltas:
                if isinstance(item, TextPart):
                    yield TextDelta(separator + item.text)
                    separator = ""
                    text += item.text
                elif isinstance(item, RetryNotice):
                    if item.why:
                        yield Notice(item.why, "warning")
                else:
                    turn.request_id = step.id
                    turn.usage += item.usage
                    turn.model = item.model
                    turn.record_answer(item)
                    words, cut = item.message.content, _is_cut(turn, item)
                    if reminder or cut:
                        # calls of the last answer, which are not run, go; with them what the provider signed them with
                        item = replace(item, message=Message("assistant", words or (CUT_ANSWER if cut else "")))
                    talk.record.add_usage(_usage(turn, item, time.monotonic() - began))
                    await talk.add(item.message, item.usage)
                    turn.add_text(redactor.mask_known(text_content(words)))
                    yield item
                    return
    except Interrupted:
        if text:
            await talk.add(Message("assistant", text + "\n\n[interrupted by the user]"))
            turn.add_text(text)
        raise


def _is_cut(turn: TurnState, answer: ModelAnswer) -> bool:
    """Say whether the caller's limit cut an answer in the middle of its calls: none of them is known to be whole."""
    capped = turn.options.max_tokens is not None and answer.finish_reason == "length"
    return capped and bool(answer.message.tool_calls)


def _usage(turn: TurnState, answer: ModelAnswer, seconds: float) -> UsageRecord:
    talk = turn.conversation
    return UsageRecord(
        answer.usage,
        answer.provider or talk.provider,
        answer.model,
        cause=TURN if talk.subagent_policy is None else "delegation",
        session_id=talk.account,
        turn_id=turn.id,
        source=talk.platform,
        principal=talk.principal,
        cost_usd=cost_usd(answer, talk.provider),
        seconds=seconds,
    )


async def _close_interrupted(turn: TurnState) -> None:
    """End the transcript with an assistant message, so that the next request alternates."""
    talk = turn.conversation
    if talk.history and talk.history[-1].role != "assistant":
        await talk.add(Message("assistant", "[interrupted by the user]"))


async def _close_stopped(turn: TurnState, sentence: str) -> StopSentence:
    """End the turn with a sentence of the agent's own."""
    delta = StopSentence(("\n\n" if turn.text else "") + sentence)
    turn.add_text(sentence)
    await turn.conversation.add(Message("assistant", sentence))
    return delta


async def _finish_turn(turn: TurnState) -> None:
    talk = turn.conversation
    for answer in await talk.call_hook("transform_llm_output", response_text=turn.text, **turn.hook_keywords()):
        if isinstance(answer.value, str) and answer.value:
            turn.text = redactor.mask_known(answer.value)
            break
    await remember_turn(talk, turn.content, turn.text)
    if talk.agent.titles is not None:
        talk.agent.titles.after_turn(talk, turn.user_message, turn.text)
    if turn.text and talk.agent.hooks.has("post_llm_call"):
        await talk.call_hook(
            "post_llm_call",
            user_message=turn.user_message,
            assistant_response=turn.text,
            conversation_history=[m.to_dict() for m in talk.history],
            **turn.ids(),
            **turn.hook_keywords(),
        )
