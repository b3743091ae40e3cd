"""Shell state per task: the backend, the working directory, variables and functions between commands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass

if TYPE_CHECKING:
    from hermes_agent.contracts.terminal_env import TerminalBackend
    from hermes_agent.workspace.backend import ShellState
    from hermes_agent.workspace.egress.networks import Networks


MAX_TASKS = 512
"""Most tasks in memory; the least recently used one loses its state."""


@lazy_dataclass(slots=True)
class _Task:
    """The state of a task's shell."""

    cwd: str = ""
    states: dict[bool, ShellState] = field(default_factory=dict)
    """By confinement: state of a confined command must not reach one outside the sandbox."""


class TaskShells:
    """The shells of all tasks. Safe for threads.

    Args:
        choose: returns the configured backend, or raises ToolFailed; called at the first use.
        persistent: False drops the state after each command (`terminal.persistent_shell`).
        networks: makes the networks of local sandboxed commands, at their first use; None for no networks.
        name: the name of the configured backend, known before a command runs.
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
        """The backend in which commands run.

        Raises:
            ToolFailed: the configured backend cannot be used.
        """
        with self._lock:
            if self._backend is None:
                self._backend = self._choose()
            return self._backend

    @property
    def networks(self) -> Networks | None:
        """The networks of sandboxed commands, or None."""
        with self._networks_lock:
            if self._networks is None and self._make_networks is not None:
                self._networks = self._make_networks()
            return self._networks

    @property
    def backend_or_none(self) -> TerminalBackend | None:
        """The backend, or None when it cannot be used."""
        try:
            return self.backend
        except ToolFailed:
            return None

    def sandbox_name(self) -> str:
        """Return the name of the sandbox in which commands reach a socket in the working directory.

        It is `none` without a sandbox, and empty when commands run in a remote backend or not at all.
        """
        backend = self.backend_or_none
        if backend is None or not backend.own_files or backend.refusal:
            return ""
        sandbox = getattr(getattr(backend, "sandbox", None), "selected", None)
        return "none" if sandbox is None else str(sandbox.name)

    def state(self, task_id: str, *, confined: bool) -> ShellState:
        """Return the shell state of a task; a new one when shells are not persistent."""
        from hermes_agent.workspace.backend import ShellState  # for the first command

        if not self._persistent:
            return ShellState()
        with self._lock:
            return self._task(task_id).states.setdefault(confined, ShellState())

    def cwd(self, task_id: str) -> str:
        """Return the directory in which the last command of a task ended; empty before the first."""
        with self._lock:
            return self._tasks[task_id].cwd if task_id in self._tasks else ""

    def set_cwd(self, task_id: str, cwd: str) -> None:
        """Record the directory in which a command ended."""
        if self._persistent and cwd:
            with self._lock:
                self._task(task_id).cwd = cwd

    def close(self, task_id: str) -> None:
        """Drop the state of a task and release what its backend holds for it."""
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
