"""Whose message is worked on in this context: `gateway.session_context`. Source: plugin contract §8.2.3, §11.

Tools and hooks that a message leads to run with the context of their caller, so they see the session of that message
also while others are worked on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from hermes_agent.contracts.platform.source import SessionSource

__all__ = ["get_session_env", "bind_session"]

_session: ContextVar[Mapping[str, str] | None] = ContextVar("hermes_session", default=None)


def get_session_env(name: str, default: str = "") -> str:
    """Return `HERMES_SESSION_PLATFORM`, `…_CHAT_ID`, `…_CHAT_NAME`, `…_THREAD_ID`, `…_USER_ID`, `…_USER_NAME`, `…_KEY`.

    They are of the message that is worked on here; elsewhere the environment is asked.
    """
    values = _session.get()
    if values is not None and name in values:
        return values[name] or default
    return os.environ.get(name, default)


@contextlib.contextmanager
def bind_session(source: SessionSource, key: str) -> Iterator[None]:
    """Work on a message of `source` inside the block."""
    values = {
        "PLATFORM": source.platform.value,
        "CHAT_ID": source.chat_id,
        "CHAT_NAME": source.chat_name,
        "THREAD_ID": source.thread_id,
        "USER_ID": source.user_id,
        "USER_NAME": source.user_name,
        "KEY": key,
    }
    token = _session.set({f"HERMES_SESSION_{name}": value or "" for name, value in values.items()})
    try:
        yield
    finally:
        _session.reset(token)
