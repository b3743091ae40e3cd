"""How far an adapter has heard in each of its chats, over a restart: what came after that is fetched."""

from __future__ import annotations

import time

from hermes_agent.contracts.platform.state_file import adapter_file, change_json, read_json

__all__ = ["ReadPositions"]

WRITE_EVERY_S = 5.0
MAX_CHATS = 500


class ReadPositions:
    """The last mark of each chat, in `HOME/gateway/<platform>_<identity>.json`; the chats that spoke last are kept.

    A mark is written a few seconds late, so what is fetched may have come before: whoever takes it in knows it.
    """

    def __init__(self, platform: str, identity: str) -> None:
        self._file = adapter_file(platform, identity)
        self._marks: dict[str, str] = {
            str(chat): str(mark) for chat, mark in (read_json(self._file).get("marks") or {}).items()
        }
        self._written, self._is_changed = 0.0, False

    def items(self) -> list[tuple[str, str]]:
        """Return chat and mark of each."""
        return list(self._marks.items())

    def get(self, chat: str) -> str | None:
        """Return the mark of a chat."""
        return self._marks.get(chat)

    def put(self, chat: str, mark: str) -> None:
        """Remember that a chat was heard so far."""
        self._marks.pop(chat, None)
        self._marks[chat] = mark
        while len(self._marks) > MAX_CHATS:
            del self._marks[next(iter(self._marks))]
        self._is_changed = True
        if time.monotonic() - self._written >= WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Bring to the disk what is not there yet.

        Raises:
            OSError: it cannot be written.
        """
        if self._is_changed:
            with change_json(self._file) as state:
                state["marks"] = self._marks
            self._written, self._is_changed = time.monotonic(), False
