"""Going back to what was said: what `/resume` and `/title` answer, at the terminal and in chats."""

from __future__ import annotations

from hermes_agent.agent.agent import Agent
from hermes_agent.core.errors import UserError
from hermes_agent.sessions import SessionInfo

__all__ = ["find_session", "set_title"]

LISTED_SESSIONS = 10
"""Sessions that `/resume` lists."""
SEARCHED_SESSIONS = 200
"""Sessions among which a title is looked for."""
TITLE_CHARS = 100


async def find_session(agent: Agent, wish: str, who: str) -> SessionInfo | str:
    """Return the session that a person means by the beginning of its id or by its title, or what to answer.

    Args:
        wish: empty asks for the list.
        who: the person (`sessions.people`); nobody else's sessions are found.
    """
    wish, of = wish.strip(), agent.principals.visible_to(who)
    found: list[SessionInfo] = await agent.call_transcript(
        "recent", SEARCHED_SESSIONS if wish else LISTED_SESSIONS, of=of
    )
    if not wish:
        rows = [f"{one.id}  {one.title or '(no title)'}" for one in found]
        return "\n".join(["Your sessions (/resume ID or title):", *rows]) if rows else "There are no sessions yet."
    titled = next((one for one in found if one.title.lower() == wish.lower()), None)
    if titled is not None:
        return titled
    try:
        chosen: SessionInfo = await agent.call_transcript("find", wish, of=of)
    except UserError as error:
        return f"{error.message[:1].upper()}{error.message[1:]}. /resume lists them."
    return chosen


async def set_title(agent: Agent, session_id: str, text: str) -> str:
    """Set the title of a session, unless the text is empty, and return what to answer."""
    if await agent.call_transcript("title", session_id) is None:
        return "There is no session yet."
    if text.strip():
        await agent.call_transcript("set_title", session_id, text.strip()[:TITLE_CHARS])
    return f"Title: {await agent.call_transcript('title', session_id) or '(none)'}"
