"""Questions to people in a chat. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.answers import clarifications as _clarifications
from hermes_agent.compat.answers import mark_awaiting_text as mark_awaiting_text
from hermes_agent.compat.answers import open_clarifications as _real_open_clarifications


def resolve_gateway_clarify(clarify_id: str, response: str) -> bool:
    """Answer an open question; false when it is not open."""
    return _clarifications().answer(clarify_id, response)


_entries = _real_open_clarifications
