"""`ctx.inject_message`: a plugin says something in a conversation. Source: plugin contract §2.4."""

from __future__ import annotations

import logging

from hermes_agent.plugins.ground import Ground
from hermes_agent.tools import current_scope

__all__ = ["NO_CONVERSATION", "inject_message"]

logger = logging.getLogger(__name__)

NO_CONVERSATION = "inject_message: no CLI reference (not available in gateway mode)"


def inject_message(ground: Ground, plugin: str, content: str, role: str, session_id: str) -> bool:
    """Leave a text for a conversation; false, with a warning in the log, when there is none or too much waits.

    Args:
        session_id: empty means the conversation that this thread works for, else the one in front of the person.
    """
    text = content if role == "user" else f"[{role}] {content}"
    if not content.strip():
        logger.warning("inject_message: plugin '%s' gave no text", plugin)
        return False
    scope = current_scope.get()
    target = session_id or ("" if scope is None else scope.session_id)
    outcome = ground.inboxes.push(text, target)
    if outcome == "full":
        logger.warning("inject_message: too many messages wait already, one of plugin '%s' is dropped", plugin)
    elif outcome == "nobody":
        logger.warning("%s", NO_CONVERSATION)
    return outcome == "taken"
