"""Messages of plugins for chats: `ctx.inject_message(session_key=…)` and `(origin=…)`.

A message is a user message of the chat's session. It runs no slash command and answers no question. Access is checked
at this time, as for a message of the chat itself. Source: plugin contract of 0.23 §6.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.events import MessageEvent, SessionSource
from hermes_agent.delivery import InboundMessage
from hermes_agent.gateway.access import AccessControl, principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_messages import to_payload
from hermes_agent.gateway.intake import session_key_of

if TYPE_CHECKING:
    from hermes_agent.gateway.chat_sessions import ChatSessions


async def queue_message(
    chats: ChatSessions,
    access: AccessControl,
    text: str,
    session_key: str | None,
    origin: Mapping[str, Any] | None,
) -> str:
    """Queue a message for a chat; return why it is not queued, or "".

    Args:
        session_key: key of a chat with a session.
        origin: `SessionSource.to_dict()` of a chat.
    """
    source, session_id = None, ""
    if session_key is not None:
        route = await chats.route(session_key)
        if route is None:
            return f"there is no session with the key {session_key!r}"
        source, session_id = SessionSource.from_dict(route.source), route.session_id
    else:
        try:
            source = SessionSource.from_dict(origin or {})
        except (KeyError, ValueError, TypeError) as exc:
            return f"origin is not usable: {exc}"
    connection = chats.connections.get(source.platform.value)
    if connection is None or not connection.is_connected:
        return f"platform {source.platform.value!r} is not connected"
    admission = await chats.deps.agent.bridge.run(access.admit, source, connection.config, connection.adapter)
    if not admission.is_allowed:
        return f"user {source.user_id!r} of {source.platform.value} may not use the agent"
    key = session_key or _key(chats, connection, source)
    event = MessageEvent(
        text, source=source, internal=True, metadata={"admitted": admission.by, "for_session": session_id}
    )
    await chats.deps.delivery.receive(
        InboundMessage(connection.name, source.chat_id, "", key, principal(source), to_payload(event))
    )
    return ""


def _key(chats: ChatSessions, connection: AdapterConnection, source: SessionSource) -> str:
    settings = chats.deps.settings
    return session_key_of(connection, source, settings.group_sessions_per_user, settings.thread_sessions_per_user)
