"""Telling a conversation what became of its background processes (`notify_on_complete`, `watch_patterns`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from hermes_agent.core.redact import redactor
from hermes_agent.workspace.background import Process, Processes
from hermes_agent.workspace.output import shorten, strip_control

__all__ = ["Watcher"]

logger = logging.getLogger(__name__)

EVERY_S = 1.0
TAIL_CHARS = 2_000
MAX_TOLD = 10
"""How often a process's patterns are told; a pattern in every line would fill the conversation."""
SHOWN_LINES = 5


class Watcher:
    """Looks at the watched processes about once a second, as long as there are any.

    Args:
        later: calls something soon, on a loop (`Bridge.later`).
        spawn: runs something in a thread beside (`Bridge.spawn`).
        announce: `announce(text, session_id)` leaves a text for a session.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        later: Callable[[float, Callable[[], None]], None],
        spawn: Callable[[Callable[[], None]], None],
        announce: Callable[[str, str], object],
    ) -> None:
        self._processes = processes
        self._later, self._spawn, self._announce = later, spawn, announce
        self._offsets: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._runs = self._again = False
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Begin to look, unless that happens already."""
        with self._lock:
            self._again = True  # who looks now may have missed it
            if self._runs:
                return
            self._runs = True
        self._later(EVERY_S, self._tick)

    def _tick(self) -> None:
        self._spawn(self._look)

    def _look(self) -> None:
        with self._lock:
            self._again = False
        try:
            more = self.look()
        except Exception:
            logger.exception("background processes could not be looked at")
            more = True
        with self._lock:
            self._runs = more = more or self._again
        if more:
            self._later(EVERY_S, self._tick)

    def look(self) -> bool:
        """Tell what is new; return whether anything is left to be watched."""
        left = False
        for process in self._processes.watched():
            status = self._processes.status(process)
            if process.watch:
                self._match(process, last=status != "running")
            if status == "running":
                left = True
                continue
            self._processes.told(process)
            if process.notify:
                self._announce(self._ended(process, status), process.session_id)
        return left

    def _match(self, process: Process, *, last: bool) -> None:
        if process.id not in self._offsets:  # what a former agent told is not told again
            found_again = self._processes.is_found_again(process)
            self._offsets[process.id] = self._processes.output(process)[2] if found_again else 0
        data, begin, _ = self._processes.output(process, self._offsets[process.id])
        whole = data if last else data[: data.rfind(b"\n") + 1]
        self._offsets[process.id] = begin + len(whole)
        lines = _clean(whole).split("\n")
        hits = [line for line in lines if any(word in line for word in process.watch)]
        told = self._told.get(process.id, 0)
        if not hits or told >= MAX_TOLD:
            return
        self._told[process.id] = told + 1
        shown = "\n".join(line[:500] for line in hits[:SHOWN_LINES])
        over = f"\n({len(hits) - SHOWN_LINES} more)" if len(hits) > SHOWN_LINES else ""
        over += "\n(its patterns are not told any more)" if told + 1 == MAX_TOLD else ""
        self._announce(
            f"[Background process {process.id} printed what you watch for]\n{process.command}\n{shown}{over}",
            process.session_id,
        )

    def _ended(self, process: Process, status: str) -> str:
        end = self._processes.end(process) or {}
        how = f"exit code {end.get('code')}" if status == "exited" else f"it was {status}"
        text = _clean(self._processes.output(process)[0])
        tail = shorten(text[-TAIL_CHARS:], TAIL_CHARS, max_lines=40, max_line_chars=500)
        return f"[Background process {process.id} has ended: {how}]\n{process.command}\n{tail}".rstrip()


def _clean(data: bytes) -> str:
    return redactor(strip_control(data.decode("utf-8", "replace")))
