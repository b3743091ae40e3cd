"""Whose files and checkpoints the call that runs may see."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hermes_agent.core.home_files import FileAccess
from hermes_agent.tools import current_scope

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["file_reader", "can_see_session"]


def file_reader(host: Host) -> FileAccess:
    """Return which files of the home the call that runs may open; outside of every call none of a user."""
    scope = current_scope.get()
    return FileAccess() if scope is None else host.people.reader(scope.principal, scope.session_id)


def can_see_session(host: Host, session_id: str) -> bool:
    """Say whether a session is one that the caller of the command or tool that runs may see; in a worker."""
    scope = current_scope.get()
    if scope is None:
        return False
    with contextlib.closing(host.open_transcript()) as transcript:
        return transcript.principal(session_id) in host.people.visible_to(scope.principal)
