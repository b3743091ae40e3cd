"""The shells of the tasks: which backend they run in, and where each of them stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import ToolFailed

if TYPE_CHECKING:
    from hermes_agent.contracts.terminal_env import TerminalBackend
    from hermes_agent.workspace.backend import ShellState
    from hermes_agent.workspace.egress.networks import Networks


MAX_TASKS = 512
"""Tasks that are remembered; the one that was used longest ago begins anew."""


@dataclass(slots=True)
class _Task:
    cwd: str = ""
    states: dict[bool, ShellState] = field(default_factory=dict)
    """By confinement: what a confined command left behind must not reach one that is not."""


class TaskShells:
    """Safe for threads.

    Args:
        choose: returns the backend of the configuration, or raises ToolFailed; asked at the first use.
        persistent: false forgets everything after each command (`terminal.persistent_shell`).
        networks: makes the networks of this machine's sandboxed commands, at their first use; None: there are none.
        name: of the backend that is configured; no command has to run to know it.
    """

    def __init__(
        self,
        choose: Callable[[], TerminalBackend],
        *,
        persistent: bool = True,
        networks: Callable[[], Networks] | None = None,
        name: str = "local",
    ) -> None:
        self.name = name
        self._make_networks = networks
        self._networks: Networks | None = None
        self._networks_lock = threading.Lock()
        self._choose = choose
        self._backend: TerminalBackend | None = None
        self._persistent = persistent
        self._tasks: LruDict[str, _Task] = LruDict(MAX_TASKS)
        self._lock = threading.Lock()

    @property
    def backend(self) -> TerminalBackend:
        """Where commands run.

        Raises:
            ToolFailed: the configuration names none that is there.
        """
        with self._lock:
            if self._backend is None:
                self._backend = self._choose()
            return self._backend

    @property
    def networks(self) -> Networks | None:
        """The networks of sandboxed commands; None where there are none."""
        with self._networks_lock:
            if self._networks is None and self._make_networks is not None:
                self._networks = self._make_networks()
            return self._networks

    @property
    def backend_or_none(self) -> TerminalBackend | None:
        """The backend; None when it cannot be had, for those who only describe it."""
        try:
            return self.backend
        except ToolFailed:
            return None

    def sandbox_name(self) -> str:
        """Return which sandbox commands run in that reach a socket in the working directory.

        `none` without a sandbox; empty: they run elsewhere, or not at all.
        """
        backend = self.backend_or_none
        if backend is None or not backend.own_files or backend.refusal:
            return ""
        box = getattr(getattr(backend, "sandbox", None), "selected", None)
        return "none" if box is None else str(box.name)

    def state(self, task_id: str, *, confined: bool) -> ShellState:
        """Return where a task's shell stands; a plain one when nothing lasts."""
        from hermes_agent.workspace.backend import ShellState  # for the first command

        if not self._persistent:
            return ShellState()
        with self._lock:
            return self._task(task_id).states.setdefault(confined, ShellState())

    def cwd(self, task_id: str) -> str:
        """Return the directory that the task's last command ended in; empty before the first."""
        with self._lock:
            return self._tasks[task_id].cwd if task_id in self._tasks else ""

    def set_cwd(self, task_id: str, cwd: str) -> None:
        """Note the directory that a command ended in."""
        if self._persistent and cwd:
            with self._lock:
                self._task(task_id).cwd = cwd

    def close(self, task_id: str) -> None:
        """Forget a task and give back what its backend holds for it."""
        with self._lock:
            self._tasks.pop(task_id, None)
            backend = self._backend
        if backend is not None:
            backend.close(task_id)

    def close_all(self) -> None:
        """Close every task."""
        with self._lock:
            tasks = list(self._tasks)
        for task_id in tasks:
            self.close(task_id)
        if self._networks is not None:
            self._networks.close_all()
        if self._backend is not None:
            self._backend.close_all()

    def _task(self, task_id: str) -> _Task:
        return self._tasks.use(task_id, _Task)
