"""What plugins say into a conversation from outside of it. Source: plugin contract §2.4.

A conversation in front of a person takes it at once: the running turn is interrupted, and this is said next. Any other
session takes it up in its running turn, before the model is asked again, or else at its next turn.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, Protocol

MAX_PENDING = 32
"""Texts that may wait for one conversation."""
MAX_SESSIONS = 512
"""Sessions that are remembered; the one that was used longest ago is forgotten, with what waits for it."""

PushResult = Literal["taken", "full", "nobody"]


class PromptedFrontEnd(Protocol):
    """A conversation with a person in front of it."""

    @property
    def session_id(self) -> str:
        """The session that is in front now."""
        ...

    def push(self, text: str) -> bool:
        """Say this next; false when too much waits. From any thread."""
        ...


class InjectedMessages:
    """The texts that wait, by session. Safe for threads."""

    def __init__(self) -> None:
        self.front_end: PromptedFrontEnd | None = None
        """The interactive terminal, while there is one."""
        self.on_push: Callable[[str], None] | None = None
        """Told the session for which something waits, from any thread: a chat answers it without being asked."""
        self.on_open: Callable[[str], None] | None = None
        """Called with each session that is opened for the first time, from any thread."""
        self._pending: OrderedDict[str, list[str]] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, session_id: str) -> None:
        """Let texts wait for a session from now on."""
        with self._lock:
            is_new = session_id not in self._pending
            self._pending.setdefault(session_id, [])
            self._pending.move_to_end(session_id)
            while len(self._pending) > MAX_SESSIONS:
                self._pending.popitem(last=False)
        if is_new and self.on_open is not None:
            self.on_open(session_id)

    def is_open(self, session_id: str) -> bool:
        """Return whether a text for a session would be taken by this process."""
        front = self.front_end
        with self._lock:
            return session_id in self._pending or (front is not None and session_id in ("", front.session_id))

    def close(self, session_id: str) -> None:
        """Forget a session that has no next turn, and what waits for it."""
        with self._lock:
            self._pending.pop(session_id, None)

    def push(self, text: str, session_id: str) -> PushResult:
        """Leave a text for a session, from any thread.

        Args:
            session_id: empty means the conversation in front of the person.
        """
        front = self.front_end
        if front is not None and session_id in ("", front.session_id):
            return "taken" if front.push(text) else "full"
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
        """Say whether something waits for a session."""
        with self._lock:
            return bool(self._pending.get(session_id))

    def take(self, session_id: str) -> list[str]:
        """Return what waits for a session, in its order, and forget it."""
        with self._lock:
            waiting = self._pending.get(session_id)
            if not waiting:
                return []
            taken = list(waiting)
            waiting.clear()
            return taken
