"""Telling a conversation what became of its background processes (`notify_on_complete`, `watch_patterns`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from hermes_agent.core.foreign import mark_untrusted
from hermes_agent.core.redact import redactor
from hermes_agent.workspace.background import BackgroundProcess, BackgroundProcesses
from hermes_agent.workspace.output import shorten, strip_sequences

__all__ = ["ProcessWatcher"]

logger = logging.getLogger(__name__)

EVERY_S = 1.0
TAIL_CHARS = 2_000
MAX_NOTIFIED = 10
"""How often a process's patterns are told; a pattern in every line would fill the conversation."""
SHOWN_LINES = 5


class ProcessWatcher:
    """Looks at the watched processes about once a second, as long as there are any.

    Args:
        later: calls something soon, on a loop (`Bridge.later`).
        spawn: runs something in a thread beside (`Bridge.spawn`).
        announce: `announce(text, session_id)` leaves a text for a session, and returns `taken`, `full` or `nobody`.
        is_open: says whether this process takes texts for a session; the others belong to other processes.
        was_said: `was_said(session_id, text)` says whether a text is part of a stored session.
        whose: returns whose words a process prints by its id (`process:ID`); empty when they are nobody's.
    """

    def __init__(
        self,
        processes: BackgroundProcesses,
        *,
        later: Callable[[float, Callable[[], None]], None],
        spawn: Callable[[Callable[[], None]], None],
        announce: Callable[[str, str], str],
        is_open: Callable[[str], bool],
        was_said: Callable[[str, str], bool],
        whose: Callable[[str], str] = lambda name: "",
    ) -> None:
        self.processes = processes
        self._later, self._spawn, self._announce = later, spawn, announce
        self._is_open, self._was_said, self._taint_source = is_open, was_said, whose
        self._progress: dict[str, tuple[int, int]] = {}
        """How far the output of each was searched for patterns, and how often a match was told."""
        self._announced: set[str] = set()
        """Processes whose end was announced here: whether a turn took it up is known from the transcript."""
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
        self._spawn(self._notify)

    def _notify(self) -> None:
        with self._lock:
            self._again = False
        try:
            more = self.notify_new()
        except Exception:
            logger.exception("background processes could not be looked at")
            more = True
        with self._lock:
            self._runs = more = more or self._again
        if more:
            self._later(EVERY_S, self._tick)

    def notify_new(self) -> bool:
        """Tell what is new; return whether anything is left to be watched."""
        left = False
        for process in self.processes.watched():
            if process.id in self._announced or not self._is_open(process.session_id):
                continue
            status = self.processes.status(process)
            done = not process.watch or self._notify_matches(process, last=status != "running")
            if status == "running" or not done:
                left = True
            elif not process.notify:
                self.processes.mark_notified(process)
            elif not self._notify_end(process, status):
                left = True
        return left

    def _notify_matches(self, process: BackgroundProcess, *, last: bool) -> bool:
        """Tell the lines that match since the last time; return False when the session takes no more at present."""
        try:
            with self.processes.hold_claim(process):  # another agent may have the same session open
                return self._notify_matches_locked(process, last=last)
        except OSError as exc:
            logger.warning("background process %s: its output is not searched for patterns: %s", process.id, exc)
            return True

    def _notify_matches_locked(self, process: BackgroundProcess, *, last: bool) -> bool:
        here, stored = self._progress.get(process.id, (0, 0)), self.processes.progress(process)
        offset, told = max(here[0], stored[0]), max(here[1], stored[1])
        data, begin, _ = self.processes.output(process, offset)
        whole = data if last else data[: data.rfind(b"\n") + 1]
        lines = _clean_output(whole).split("\n")
        hits = [line for line in lines if any(word in line for word in process.watch)]
        progress = (begin + len(whole), told)
        if hits and told < MAX_NOTIFIED:
            progress = (begin + len(whole), told + 1)
            shown = "\n".join(line[:500] for line in hits[:SHOWN_LINES])
            over = f"\n({len(hits) - SHOWN_LINES} more)" if len(hits) > SHOWN_LINES else ""
            over += "\n(its patterns are not told any more)" if told + 1 == MAX_NOTIFIED else ""
            text = f"[Background process {process.id} printed what you watch for]\n"
            if self._announce(text + self._output_text(process, shown + over), process.session_id) != "taken":
                return False
            self.processes.note_progress(process, *progress)
        self._progress[process.id] = progress
        return True

    def _notify_end(self, process: BackgroundProcess, status: str) -> bool:
        """Tell the end, unless the session knows it; return False when the session takes no more at present."""
        if not self.processes.claim(process):
            return True
        begin = f"[Background process {process.id} has ended: "
        if self.processes.is_recovered(process) and self._was_said(process.session_id, begin):
            self.processes.mark_notified(process)
            return True
        outcome = self._announce(begin + self._end_text(process, status), process.session_id)
        if outcome == "taken":
            self._announced.add(process.id)
        else:
            self.processes.release(process)
        return outcome != "full"

    def _end_text(self, process: BackgroundProcess, status: str) -> str:
        """Return how it ended, its command, and the end of its output."""
        end = self.processes.end(process) or {}
        how = f"exit code {end.get('code')}" if status == "exited" else f"it was {status}"
        text = _clean_output(self.processes.output(process)[0])
        tail = shorten(text[-TAIL_CHARS:], TAIL_CHARS, max_lines=40, max_line_chars=500)
        return f"{how}]\n{self._output_text(process, tail)}"

    def _output_text(self, process: BackgroundProcess, output: str) -> str:
        """Return a process's command and output as words that the person did not say."""
        return mark_untrusted(f"{process.command}\n{output}".rstrip(), self._taint_source(f"process:{process.id}"))


def _clean_output(data: bytes) -> str:
    return redactor(strip_sequences(data.decode("utf-8", "replace")))
