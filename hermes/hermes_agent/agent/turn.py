"""One turn: model step, tool step, until the model is done, the budget is spent, or somebody stops it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.fitting import fitted
from hermes_agent.agent.interrupt import GRACE_S, Interrupt, Interrupted
from hermes_agent.agent.model_step import ModelStep
from hermes_agent.agent.repair import sound
from hermes_agent.agent.verifying import changed_path, nudge_of
from hermes_agent.core.events import Event, Notice, TextDelta, ToolFinished, ToolStarted, TurnEnd, TurnFinished
from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import Content, Message, ToolCall, Usage, text_of
from hermes_agent.models.request import ModelAnswer, ModelRequest, TextPart
from hermes_agent.service.context import log_context
from hermes_agent.tools import tool_error

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["run_turn"]

logger = logging.getLogger(__name__)

INTERRUPTED = tool_error("interrupted by the user")
BUDGET_SPENT = (
    "You have used all tool calls of this turn. Answer now, without tools: say what you found and what is left to do."
)


@dataclass(slots=True)
class _Turn:
    """What one turn knows; nothing of it outlives the turn."""

    conversation: Conversation
    content: Content
    interrupt: Interrupt
    id: str = field(default_factory=lambda: new_id("turn"))
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    end: TurnEnd = "answered"
    calls: int = 0
    """Tool calls that ran."""
    changed: dict[str, None] = field(default_factory=dict)
    """Files that tools wrote, in the order of their first time."""
    nudges: int = 0
    """Times that `pre_verify` sent the model back to work."""
    requests: int = 0
    """Requests to the model."""
    request_id: str = ""
    """The last one."""

    @property
    def user_message(self) -> str:
        return text_of(self.content)

    def common(self) -> dict[str, Any]:
        """Return the keywords that every hook of a turn is given."""
        talk = self.conversation
        return {"session_id": talk.session_id, "model": talk.model, "platform": talk.platform}

    def ids(self) -> dict[str, str]:
        return {"task_id": self.conversation.session_id, "turn_id": self.id}


async def run_turn(talk: Conversation, content: Content, interrupt: Interrupt) -> AsyncGenerator[Event, None]:
    """Run one turn of a conversation and yield its events; the transcript is kept as it goes.

    Raises:
        ModelError: the model could not answer. What was said and done until then stays in the transcript.
    """
    turn = _Turn(talk, content, interrupt)
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


async def _begin(turn: _Turn) -> None:
    """Start the session if this is its first turn, note the message, and collect what plugins add to it."""
    talk = turn.conversation
    first = not talk.history
    if await talk.ensure_started():
        await talk.fire("on_session_start", **turn.common())
    elif await talk.ensure_resumed():
        await talk.fire("on_session_resume", message_count=len(talk.history), **turn.common())
    await _take_up(turn)
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
        pieces = [await _spilled(talk, p) for a in answers if (p := _injected(a.value))]
        if pieces and isinstance(turn.content, str):
            talk.inject(len(talk.history), turn.content + "\n\n" + "\n\n".join(pieces))
    await talk.add(Message("user", turn.content))


async def _spilled(talk: Conversation, piece: str) -> str:
    spill = talk.agent.spill
    if spill is None or not spill.is_long(piece):
        return piece
    return await talk.agent.bridge.run(spill.fit, talk.session_id, piece)


async def _take_up(turn: _Turn) -> bool:
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


async def _steps(turn: _Turn) -> AsyncGenerator[Event, None]:
    talk = turn.conversation
    tools = await talk.agent.bridge.run(talk.agent.definitions)  # asks check functions of plugins
    valid = [t["function"]["name"] for t in tools]
    for _ in range(talk.agent.settings.max_turns):
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
        async with contextlib.aclosing(_tool_step(turn, answer.message.tool_calls, valid)) as events:
            async for event in events:
                yield event
    turn.end = "budget"
    yield Notice(f"The limit of {talk.agent.settings.max_turns} steps is reached; asking for a last answer.", "warning")
    async with contextlib.aclosing(_fitted_step(turn, (), reminder=BUDGET_SPENT)) as deltas:
        async for item in deltas:
            if not isinstance(item, ModelAnswer):
                yield item


async def _nudge(turn: _Turn, final_response: str) -> str:
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


def _fitted_step(turn: _Turn, tools: Any, reminder: str = "") -> AsyncGenerator[TextDelta | ModelAnswer | Notice, None]:
    return fitted(
        turn.conversation,
        turn.interrupt,
        tools,
        lambda: _model_step(turn, tools, reminder),
        first=not turn.requests,
    )


async def _model_step(turn: _Turn, tools: Any, reminder: str = "") -> AsyncGenerator[TextDelta | ModelAnswer, None]:
    """Ask the model once; the answer is in the transcript when it is yielded."""
    talk = turn.conversation
    turn.interrupt.check()
    await talk.agent.warm_up(talk.chosen.client)
    messages = [Message("system", talk.system_prompt), *sound(talk.outgoing())]
    if reminder:
        messages.append(Message("user", reminder))
    request = ModelRequest(talk.model, messages, tools, talk.chosen.max_tokens, session_id=talk.session_id)
    turn.requests += 1
    step = ModelStep(talk, turn.interrupt, turn.id, turn.user_message, turn.requests)
    text = ""
    separator = "\n\n" if turn.text else ""
    try:
        async with contextlib.aclosing(step.ask(request)) as deltas:
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
                    turn.text = "\n\n".join(t for t in (turn.text, message.text) if t)
                    yield ModelAnswer(message, item.finish_reason, item.usage, item.model)
                    return
    except Interrupted:
        if text:
            await talk.add(Message("assistant", text + "\n\n[interrupted by the user]"))
            turn.text = "\n\n".join(t for t in (turn.text, text) if t)
        raise


async def _tool_step(turn: _Turn, calls: tuple[ToolCall, ...], valid: list[str]) -> AsyncGenerator[Event, None]:
    """Run the calls of one answer in their order; each has a result in the transcript in the end."""
    talk = turn.conversation
    scope = talk.scope(turn.id, turn.user_message, turn.interrupt.flag, api_request_id=turn.request_id)
    left = list(calls)
    try:
        while left:
            turn.interrupt.check()
            call = left[0]
            name, arguments = talk.agent.dispatcher.resolve(call, valid)
            yield ToolStarted(call.id, name, arguments if arguments is not None else {})
            with log_context(tool=name):
                work = talk.agent.dispatcher.run(call.id, name, arguments, scope, valid=valid)
                outcome = await turn.interrupt.run(work, grace_s=GRACE_S)
                logger.info("%s: %s after %d ms", outcome.name, outcome.status, outcome.duration_ms)
            turn.calls += 1
            if path := changed_path(outcome):
                turn.changed[path] = None
            await talk.add(Message("tool", outcome.result, tool_call_id=call.id, tool_name=outcome.name))
            left.pop(0)
            yield ToolFinished(call.id, outcome.name, outcome.result, outcome.status, outcome.duration_ms)
    except Interrupted:
        for call in left:
            await talk.add(Message("tool", INTERRUPTED, tool_call_id=call.id, tool_name=call.name))
            yield ToolFinished(call.id, call.name, INTERRUPTED, "cancelled", 0)
        raise


async def _close_interrupted(turn: _Turn) -> None:
    """End the transcript with an assistant message, so that the next request alternates."""
    talk = turn.conversation
    if talk.history and talk.history[-1].role != "assistant":
        await talk.add(Message("assistant", "[interrupted by the user]"))


async def _finish(turn: _Turn) -> None:
    talk = turn.conversation
    for answer in await talk.fire("transform_llm_output", response_text=turn.text, **turn.common()):
        if isinstance(answer.value, str) and answer.value:
            turn.text = answer.value
            break
    if turn.text and talk.agent.hooks.has("post_llm_call"):
        await talk.fire(
            "post_llm_call",
            user_message=turn.user_message,
            assistant_response=turn.text,
            conversation_history=[m.to_dict() for m in talk.history],
            **turn.ids(),
            **turn.common(),
        )
