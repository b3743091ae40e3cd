"""The begin of a turn: the session's hooks, what the person said, and what plugins add to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.recalling import recall, track_recalled
from hermes_agent.agent.recovering import InterruptedTurn
from hermes_agent.agent.turn_state import TurnState
from hermes_agent.core.foreign import mark_untrusted
from hermes_agent.core.messages import Message

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["start_turn", "add_injected"]

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
