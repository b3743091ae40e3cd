"""The begin of a turn: the session's hooks, what the person said, and what plugins add to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.recalling import hear_recalled, recalled
from hermes_agent.agent.recovering import Cut
from hermes_agent.agent.turn_state import TurnState
from hermes_agent.core.foreign import fenced
from hermes_agent.core.messages import Message

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["begin", "take_up"]

logger = logging.getLogger(__name__)


async def begin(turn: TurnState, cut: Cut | None) -> None:
    """Start the session if this is its first turn, note the message, and collect what plugins add to it.

    Args:
        cut: where a crash cut the turn off; its message is there already, what was added to it is gone.
    """
    talk = turn.conversation
    first = not talk.history
    _say(turn)
    started = await talk.ensure_started()
    if cut is None:
        note = talk.record.turn(turn.id)
        note.begins, note.model = True, talk.model
    if started:
        await talk.fire("on_session_start", **turn.common())
    elif await talk.ensure_resumed():
        await talk.fire("on_session_resume", message_count=len(talk.history), **turn.common())
    if cut is None:
        await take_up(turn)
    place = len(talk.history) if cut is None else turn.place()  # -1: a compaction took it away, nothing is added
    if place >= 0:
        plugin, known = await recalled(talk, turn.content, turn.interrupt)
        await hear_recalled(talk, plugin, known)
        pieces = [(plugin, known), *await _pieces(turn, place, first=first)]
        added = [(name, text) for name, text in pieces if text]
        if added and isinstance(turn.content, str):
            talk.inject(place, "\n\n".join([turn.content, *(text for _, text in added)]), [name for name, _ in added])
    if cut is None:
        await talk.add(Message("user", turn.content))


async def take_up(turn: TurnState) -> None:
    """Add what was said into this session meanwhile, as messages of the user."""
    talk = turn.conversation
    for text in talk.agent.inboxes.take(talk.session_id):
        logger.info("a message of %d characters is taken up", len(text))
        await talk.add(Message("user", text))


def _say(turn: TurnState) -> None:
    """Tell whose words come: the person's, a program's that speaks to a webhook, or for a sub-agent its parent's."""
    talk = turn.conversation
    provenance = talk.agent.provenance
    if provenance is None:
        return
    if talk.charter is not None:
        provenance.share(talk.session_id, talk.parent)
        return
    if not talk.is_stored:  # whoever opened it brought along what was said
        for message in talk.history:
            if message.role == "user":
                provenance.said(talk.session_id, message.text)
            elif message.role == "assistant":
                provenance.quoted(talk.session_id, message.text)
            elif message.role == "tool":
                provenance.said(talk.session_id, fenced(message.text, "a result in the caller's history"))
    whose = talk.principal.replace(":", " ") if talk.platform == "webhook" else ""
    provenance.said(talk.session_id, fenced(turn.user_message, whose) if whose else turn.user_message)


async def _pieces(turn: TurnState, place: int, *, first: bool) -> list[tuple[str, str]]:
    """Return what plugins add to the message, each with its plugin."""
    talk = turn.conversation
    if not talk.agent.hooks.has("pre_llm_call"):
        return []
    answers = await talk.fire(
        "pre_llm_call",
        user_message=turn.user_message,
        conversation_history=[m.to_dict() for m in talk.history[:place]],
        is_first_turn=first,
        sender_id=talk.principal.partition(":")[2],
        **turn.ids(),
        **turn.common(),
    )
    return [(a.plugin, await _spilled(talk, p)) for a in answers if (p := _injected(a.value))]


async def _spilled(talk: Conversation, piece: str) -> str:
    spill = talk.agent.spill
    if spill is None or not spill.is_long(piece):
        return piece
    return await talk.agent.bridge.run(spill.fit, talk.session_id, piece)


def _injected(value: Any) -> str:
    text = value.get("context") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text.strip() else ""
