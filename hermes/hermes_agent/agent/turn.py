"""One turn: model step, tool step, until the model is done, the budget is spent, or somebody stops it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.fitting import fitted
from hermes_agent.agent.interrupt import Interrupted
from hermes_agent.agent.model_step import ModelStep
from hermes_agent.agent.recalling import learn, recalled, scrubbed
from hermes_agent.agent.repair import sound
from hermes_agent.agent.tool_step import ToolStep
from hermes_agent.agent.turn_state import Stopped, TurnState
from hermes_agent.agent.verifying import nudge_of
from hermes_agent.core.events import Event, Notice, TextDelta, TurnFinished
from hermes_agent.core.messages import Message
from hermes_agent.models.request import ModelAnswer, ModelRequest, TextPart
from hermes_agent.service.context import log_context

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["run_turn"]

logger = logging.getLogger(__name__)

BUDGET_SPENT = (
    "You have used all tool calls of this turn. Answer now, without tools: say what you found and what is left to do."
)


async def run_turn(turn: TurnState) -> AsyncGenerator[Event, None]:
    """Run one turn of a conversation and yield its events; the transcript is kept as it goes.

    Raises:
        ModelError: the model could not answer. What was said and done until then stays in the transcript.
    """
    talk = turn.conversation
    completed = False
    with log_context(session=talk.session_id, turn=turn.id):
        try:
            await _begin(turn)
            try:
                async with contextlib.aclosing(_steps(turn)) as steps:
                    async for event in steps:
                        yield event
            except Interrupted:
                turn.end = "interrupted"
                await _close_interrupted(turn)
            except Stopped as stopped:
                turn.end = "stopped"
                yield await _close_stopped(turn, str(stopped))
                await _finish(turn)
            else:
                await _finish(turn)
            completed = turn.end != "interrupted"
            yield TurnFinished(turn.text, turn.end, turn.usage, turn.model or talk.model)
        finally:
            logger.info(
                "turn ended: %s, %d tool call(s), %d tokens",
                turn.end if completed or turn.end == "interrupted" else "failed",
                turn.calls,
                turn.usage.total_tokens,
            )
            await talk.fire(
                "on_session_end",
                completed=completed,
                interrupted=turn.end == "interrupted",
                **turn.ids(),
                **turn.common(),
            )


async def _begin(turn: TurnState) -> None:
    """Start the session if this is its first turn, note the message, and collect what plugins add to it."""
    talk = turn.conversation
    first = not talk.history
    if await talk.ensure_started():
        await talk.fire("on_session_start", **turn.common())
    elif await talk.ensure_resumed():
        await talk.fire("on_session_resume", message_count=len(talk.history), **turn.common())
    await _take_up(turn)
    pieces = [await recalled(talk, turn.content, turn.interrupt)]
    if talk.agent.hooks.has("pre_llm_call"):
        answers = await talk.fire(
            "pre_llm_call",
            user_message=turn.user_message,
            conversation_history=[m.to_dict() for m in talk.history],
            is_first_turn=first,
            sender_id=talk.principal.partition(":")[2],
            **turn.ids(),
            **turn.common(),
        )
        pieces += [await _spilled(talk, p) for a in answers if (p := _injected(a.value))]
    if any(pieces) and isinstance(turn.content, str):
        talk.inject(len(talk.history), "\n\n".join([turn.content, *filter(None, pieces)]))
    await talk.add(Message("user", turn.content))


async def _spilled(talk: Conversation, piece: str) -> str:
    spill = talk.agent.spill
    if spill is None or not spill.is_long(piece):
        return piece
    return await talk.agent.bridge.run(spill.fit, talk.session_id, piece)


async def _take_up(turn: TurnState) -> bool:
    """Add what plugins left for this session, as messages of the user; false when there was nothing."""
    talk = turn.conversation
    texts = talk.agent.inboxes.take(talk.session_id)
    for text in texts:
        logger.info("a plugin's message of %d characters is taken up", len(text))
        await talk.add(Message("user", text))
    return bool(texts)


def _injected(value: Any) -> str:
    text = value.get("context") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text.strip() else ""


async def _steps(turn: TurnState) -> AsyncGenerator[Event, None]:
    talk = turn.conversation
    tools = await talk.agent.bridge.run(talk.agent.definitions)  # asks check functions of plugins
    valid = [t["function"]["name"] for t in tools]
    settings = talk.agent.settings
    while turn.budget.take():
        await _take_up(turn)
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
            if talk.agent.inboxes.waits(talk.session_id):
                continue
            return
        async with contextlib.aclosing(ToolStep(turn, answer.message.tool_calls, valid).events()) as events:
            async for event in events:
                yield event
        if 0 < settings.max_turn_tokens <= turn.usage.total_tokens:
            reached = f"The limit of {settings.max_turn_tokens} tokens for a turn is reached"
            break
    else:
        reached = f"The limit of {settings.max_turns} steps is reached"
    turn.end = "budget"
    yield Notice(f"{reached}; asking for a last answer.", "warning")
    await _take_up(turn)
    async with contextlib.aclosing(_fitted_step(turn, (), reminder=BUDGET_SPENT)) as deltas:
        async for item in deltas:
            if not isinstance(item, ModelAnswer):
                yield item


async def _nudge(turn: TurnState, final_response: str) -> str:
    """Return what `pre_verify` wants the model to be told before the turn ends; empty when it may end."""
    talk = turn.conversation
    if not turn.changed or turn.nudges >= talk.agent.settings.max_verify_nudges:
        return ""
    answers = await talk.fire(
        "pre_verify",
        coding=True,
        attempt=turn.nudges,
        final_response=final_response,
        changed_paths=list(turn.changed),
        **turn.common(),
    )
    nudge = nudge_of(answers)
    turn.nudges += bool(nudge)
    return nudge


def _fitted_step(
    turn: TurnState, tools: Any, reminder: str = ""
) -> AsyncGenerator[TextDelta | ModelAnswer | Notice, None]:
    return fitted(
        turn.conversation,
        turn.interrupt,
        tools,
        lambda: _model_step(turn, tools, reminder),
        first=not turn.requests,
    )


async def _model_step(turn: TurnState, tools: Any, reminder: str = "") -> AsyncGenerator[TextDelta | ModelAnswer, None]:
    """Ask the model once; the answer is in the transcript when it is yielded."""
    talk = turn.conversation
    turn.interrupt.check()
    await talk.agent.warm_up(talk.chosen.client)
    reminders = [Message("user", reminder)] if reminder else []
    messages = [Message("system", talk.system_prompt), *sound([*talk.outgoing(), *reminders])]
    request = ModelRequest(talk.model, messages, tools, talk.chosen.max_tokens, session_id=talk.session_id)
    turn.requests += 1
    step = ModelStep(talk, turn.interrupt, turn.id, turn.user_message, turn.requests)
    text = ""
    separator = "\n\n" if turn.text else ""
    try:
        async with contextlib.aclosing(scrubbed(talk, step.ask(request))) as deltas:
            async for item in deltas:
                if isinstance(item, TextPart):
                    yield TextDelta(separator + item.text)
                    separator = ""
                    text += item.text
                else:
                    turn.request_id = step.id
                    turn.usage += item.usage
                    turn.model = item.model
                    # calls of the last answer, which are not run, go; with them what the provider signed them with
                    message = Message("assistant", item.message.content) if reminder else item.message
                    await talk.add(message, item.usage)
                    turn.says(message.text)
                    yield ModelAnswer(message, item.finish_reason, item.usage, item.model)
                    return
    except Interrupted:
        if text:
            await talk.add(Message("assistant", text + "\n\n[interrupted by the user]"))
            turn.says(text)
        raise


async def _close_interrupted(turn: TurnState) -> None:
    """End the transcript with an assistant message, so that the next request alternates."""
    talk = turn.conversation
    if talk.history and talk.history[-1].role != "assistant":
        await talk.add(Message("assistant", "[interrupted by the user]"))


async def _close_stopped(turn: TurnState, sentence: str) -> TextDelta:
    """End the turn with a sentence of the agent's own."""
    delta = TextDelta(("\n\n" if turn.text else "") + sentence)
    turn.says(sentence)
    await turn.conversation.add(Message("assistant", sentence))
    return delta


async def _finish(turn: TurnState) -> None:
    talk = turn.conversation
    for answer in await talk.fire("transform_llm_output", response_text=turn.text, **turn.common()):
        if isinstance(answer.value, str) and answer.value:
            turn.text = answer.value
            break
    learn(talk, turn.content, turn.text)
    if turn.text and talk.agent.hooks.has("post_llm_call"):
        await talk.fire(
            "post_llm_call",
            user_message=turn.user_message,
            assistant_response=turn.text,
            conversation_history=[m.to_dict() for m in talk.history],
            **turn.ids(),
            **turn.common(),
        )
