"""What is said next: lines that were typed while the agent worked, and what plugins push. From any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["MAX_WAITING", "Said", "Waiting"]

MAX_WAITING = 32


class Said(NamedTuple):
    """One input."""

    text: str
    typed: bool = True
    """By the person; a plugin's text is never taken for a command."""


class Waiting:
    """A bounded queue.

    Args:
        on_plugin: called, in the thread that pushes, when a plugin has pushed something.
    """

    def __init__(self, on_plugin: Callable[[], None]) -> None:
        self._on_plugin = on_plugin
        self._items: deque[Said] = deque()
        self._lock = threading.Lock()

    def type(self, line: str) -> bool:
        """Let a line of the person wait; false when too much waits."""
        with self._lock:
            if len(self._items) >= MAX_WAITING:
                return False
            self._items.append(Said(line))
            return True

    def push(self, text: str) -> bool:
        """Let a plugin's text come next, after those of plugins that wait already; false when too much waits."""
        with self._lock:
            if len(self._items) >= MAX_WAITING:
                return False
            place = next((i for i, said in enumerate(self._items) if said.typed), len(self._items))
            self._items.insert(place, Said(text, typed=False))
        self._on_plugin()
        return True

    def take(self) -> Said | None:
        """Return what comes next, or None."""
        with self._lock:
            return self._items.popleft() if self._items else None

    def __len__(self) -> int:
        return len(self._items)
