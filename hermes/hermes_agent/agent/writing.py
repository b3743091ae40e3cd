"""Steps of turns on their way to the store: those of all conversations that wait for it share a commit.

Each statement lets go of the interpreter's lock and waits for it again, and so does each hop between two threads: what
many turns at once come to depends on how few there are.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable

from hermes_agent.io.bridge import SerialExecutor
from hermes_agent.sessions import SessionCommit, Transcript

__all__ = ["CommitWriter"]

_PendingCommit = tuple[str, SessionCommit, "asyncio.Future[None]"]


class CommitWriter:
    """Writes in the order of `write`. On the core loop.

    Args:
        lane: the thread of the transcript.
        transcript: returns it, in that thread.
    """

    def __init__(self, lane: SerialExecutor, transcript: Callable[[], Transcript]) -> None:
        self._lane = lane
        self._transcript = transcript
        self._waiting: deque[_PendingCommit] = deque()
        self._called = False
        """The lane is about to take what waits."""

    async def write(self, session_id: str, step: SessionCommit) -> None:
        """Store a step; it is stored even if the waiting side is cancelled.

        Raises:
            UserError: the session is somebody else's, or the store cannot be opened.
            sqlite3.Error: the disk is full, say.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((session_id, step, stored))
        if not self._called:
            self._called = True
            taken: list[_PendingCommit] = []
            self._lane.start(functools.partial(self._flush, taken)).add_done_callback(
                functools.partial(_resolve_futures, taken)
            )
        await stored  # whoever is cancelled cancels this, and not the work

    def _flush(self, taken: list[_PendingCommit]) -> list[Exception | None]:
        """Write what waits. In the lane; who comes now calls it again."""
        self._called = False
        while self._waiting:
            taken.append(self._waiting.popleft())
        return self._transcript().write([(session_id, step) for session_id, step, _ in taken]) if taken else []


def _resolve_futures(taken: list[_PendingCommit], written: asyncio.Future[list[Exception | None]]) -> None:
    """Say to each how it ended."""
    failed = written.exception()
    errors = [failed] * len(taken) if failed is not None else written.result()
    for (_, _, stored), error in zip(taken, errors, strict=True):
        if stored.done():
            continue
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error)
