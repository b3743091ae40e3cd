"""Injected messages: what plugins add to a conversation from outside. Source: plugin contract §2.4.

The console takes a message immediately: it interrupts the running turn, and the message starts the next one. Any other
session adds it to the next model request of its running turn, or to its next turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal, Protocol

from hermes_agent.core.caches import LruDict

MAX_PENDING = 32
"""Messages that may wait for one session."""
MAX_SESSIONS = 512
"""Sessions that can get messages; the one opened longest ago is dropped, with its waiting messages."""

PushResult = Literal["taken", "full", "nobody"]


class PromptedFrontEnd(Protocol):
    """A front end in which a user reads one session: the console."""

    @property
    def session_id(self) -> str:
        """The session that the user sees."""
        ...

    def push(self, text: str) -> bool:
        """Make the text the next user message, from any thread; return False if too many wait."""
        ...


class InjectedMessages:
    """Waiting messages by session. Safe for threads."""

    def __init__(self) -> None:
        self.front_end: PromptedFrontEnd | None = None
        """The console, while it runs."""
        self.on_push: Callable[[str], None] | None = None
        """Called with the session that gets a message, from any thread: the gateway starts a turn for it."""
        self.on_open: Callable[[str], None] | None = None
        """Called with each session that is opened for the first time, from any thread."""
        self._pending: LruDict[str, list[str]] = LruDict(MAX_SESSIONS)
        self._lock = threading.Lock()

    def open(self, session_id: str) -> None:
        """Accept messages for a session from now on."""
        with self._lock:
            is_new = session_id not in self._pending
            self._pending.use(session_id, list)
        if is_new and self.on_open is not None:
            self.on_open(session_id)

    def is_open(self, session_id: str) -> bool:
        """Return whether this process takes messages for a session."""
        front = self.front_end
        with self._lock:
            return session_id in self._pending or (front is not None and session_id in ("", front.session_id))

    def close(self, session_id: str) -> None:
        """Drop a session that has no next turn, with its waiting messages."""
        with self._lock:
            self._pending.pop(session_id, None)

    def push(self, text: str, session_id: str) -> PushResult:
        """Add a message to a session, from any thread.

        Args:
            session_id: "" means the session of the console.
        """
        front = self.front_end
        if front is not None and session_id in ("", front.session_id):
            return "taken" if front.push(text) else "full"
        return self.add(text, session_id)

    def add(self, text: str, session_id: str) -> PushResult:
        """Add a message to the running turn of a session, or to its next turn; from any thread."""
        with self._lock:
            waiting = self._pending.get(session_id)
            if waiting is None:
                return "nobody"
            if len(waiting) >= MAX_PENDING:
                return "full"
            waiting.append(text)
        if self.on_push is not None:
            self.on_push(session_id)
        return "taken"

    def has_pending(self, session_id: str) -> bool:
        """Return whether messages wait for a session."""
        with self._lock:
            return bool(self._pending.get(session_id))

    def take(self, session_id: str) -> list[str]:
        """Return the waiting messages of a session in their order, and remove them."""
        with self._lock:
            waiting = self._pending.get(session_id)
            if not waiting:
                return []
            taken = list(waiting)
            waiting.clear()
            return taken
