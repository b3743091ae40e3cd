"""Notify sessions of their background processes, also of those that an earlier agent of this home started."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.agent.inbox import InjectedMessages
    from hermes_agent.io.bridge import Bridge
    from hermes_agent.workspace.watching import ProcessWatcher

__all__ = ["ProcessNotices"]

logger = logging.getLogger(__name__)

CONSOLE = "cli"
"""Source of the sessions whose notices wait until a user opens them."""


class ProcessNotices:
    """A component of the daemon, and the watcher of every process that runs conversations.

    Args:
        transcript: runs a method of `Transcript` (`Agent.transcript`).
        whose: returns whose words a process prints (`Provenance.whose`).
    """

    def __init__(
        self,
        home: Path,
        bridge: Bridge,
        inboxes: InjectedMessages,
        transcript: Callable[..., Coroutine[Any, Any, Any]],
        whose: Callable[[str], str],
    ) -> None:
        self._directory = home / "processes"
        self._bridge, self._inboxes, self._transcript, self._session_principal = bridge, inboxes, transcript, whose
        self._watcher: ProcessWatcher | None = None
        self._lock = threading.Lock()
        inboxes.on_open = self._opened

    def watcher(self) -> ProcessWatcher:
        """Return the watcher; made at the first use."""
        with self._lock:
            if self._watcher is None:
                from hermes_agent.workspace.background import BackgroundProcesses  # a start calls no tool
                from hermes_agent.workspace.watching import ProcessWatcher

                self._watcher = ProcessWatcher(
                    BackgroundProcesses(self._directory),
                    later=self._bridge.call_later,
                    spawn=self._bridge.spawn,
                    announce=self._inboxes.push,
                    is_open=self._inboxes.is_open,
                    was_said=self._is_recorded,
                    whose=self._session_principal,
                )
            return self._watcher

    async def start(self) -> None:
        """Open the inbox of each stored session whose processes are watched; the console's wait for a user."""
        if not self._has_processes():
            return
        watched = await self._bridge.run(lambda: self.watcher().processes.watched())
        for session_id in dict.fromkeys(process.session_id for process in watched):
            source = await self._transcript("source", session_id)
            if source is not None and source != CONSOLE:
                self._inboxes.open(session_id)

    async def drain(self, timeout_s: float) -> None:
        """Nothing is to be ended: the watcher stops with the threads."""

    def _opened(self, session_id: str) -> None:
        """Look at the processes when a session opens whose notices may have waited for that."""
        if self._has_processes():
            self._bridge.spawn(lambda: self.watcher().wake())

    def _has_processes(self) -> bool:
        try:
            with os.scandir(self._directory) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def _is_recorded(self, session_id: str, text: str) -> bool:
        return bool(self._bridge.wait_core(self._transcript("was_said", session_id, text)))
