"""What a command of the sandbox may take of the machine, whoever the agent's user is.

The first way that works here holds all processes of a command together: a scope of systemd, else a control group that
the agent makes. Where there is neither, the kernel's limits of each process are left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hermes_agent.workspace.cgroup import Cgroup
from hermes_agent.workspace.scope import SystemdScope

__all__ = ["UNLIMITED", "LimitedCommand", "CommandLimits", "ProcessLimits"]

COUNTED_IN_NAMESPACES = (5, 14)
"""The kernel from which `RLIMIT_NPROC` counts the processes of a user namespace by themselves."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Most memory and processes; 0 is no limit."""

    memory_mb: int = 0
    processes: int = 0

    def prelude(self) -> str:
        """Return the shell lines that set them for each process: `RLIMIT_AS` and `RLIMIT_NPROC`."""
        lines = [f"ulimit -v {self.memory_mb * 1024}"] if self.memory_mb else []
        lines += [_processes(self.processes)] if self.processes else []
        return _lines(lines)


UNLIMITED = ProcessLimits()


class LimitedCommand(NamedTuple):
    """A program that runs another one within limits."""

    argv: list[str]
    env: dict[str, str]
    finish: Callable[[], tuple[str, ...]]
    """Gives back what the limits took, once the program has ended; returns those that it reached, as far as known."""


class CommandLimits:
    """Args: `environ` says where systemd's manager is."""

    def __init__(self, environ: Mapping[str, str], limits: ProcessLimits) -> None:
        self.limits = limits
        self._scope = SystemdScope(environ, memory_mb=limits.memory_mb, processes=limits.processes)
        self._cgroup = Cgroup(memory_mb=limits.memory_mb, processes=limits.processes)

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the program that runs `argv` in the sandbox, with limits of each process where there are no others.

        Memory is counted as `RLIMIT_DATA`: many programs reserve more addresses than they ever use.
        """
        if self._scope.is_effective or not self._cgroup.problem:
            return list(argv)
        lines = [f"ulimit -d {self.limits.memory_mb * 1024}"] if self.limits.memory_mb else []
        lines += [_processes(self.limits.processes)] if self.limits.processes and not self._unlimited_reason() else []
        return ["/bin/sh", "-c", f'{_lines(lines)}exec "$@"', "sh", *argv] if lines else list(argv)

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> LimitedCommand:
        """Return the program that runs `argv`, all its processes within the limits together where that is possible.

        Raises:
            OSError: the control group cannot be made.
        """
        if self._scope.is_effective:
            return LimitedCommand(*self._scope.wrap(argv, env), _nothing)
        if self._cgroup.problem:
            return LimitedCommand(list(argv), dict(env), _nothing)
        wrapped, groups = self._cgroup.wrap(argv)
        return LimitedCommand(wrapped, dict(env), lambda: self._finish(groups))

    def _finish(self, groups: Sequence[Path]) -> tuple[str, ...]:
        reached = self._cgroup.reached(groups)
        self._cgroup.remove(groups)
        settings = {
            "memory": f"{self.limits.memory_mb} MiB of memory (terminal.sandbox_memory_mb)",
            "pids": f"{self.limits.processes} processes (terminal.sandbox_processes)",
        }
        return tuple(text for name, text in settings.items() if name in reached)

    def check(self) -> tuple[bool, str, str]:
        """Return the row of `hermes doctor`: whether they hold, a label, and by what."""
        label = "limits of the sandbox"
        memory, processes = f"{self.limits.memory_mb} MiB of memory", f"{self.limits.processes} processes"
        both = " and ".join([memory] * bool(self.limits.memory_mb) + [processes] * bool(self.limits.processes))
        if not both:
            return True, label, "none (terminal.sandbox_memory_mb and terminal.sandbox_processes are 0)"
        if self._scope.is_effective:
            return True, label, f"{both} of a command, by a scope of systemd"
        if not self._cgroup.problem:
            return True, label, f"{both} of a command, by a control group"
        why = f"{self._scope.missing_reason}; {self._cgroup.problem}"
        if self.limits.processes and (unheld := self._unlimited_reason()):
            return False, "processes of the sandbox are not limited", f"{unheld}; {memory} of each process only; {why}"
        return True, label, f"{memory} of each process and {processes} of a command, by resource limits ({why})"

    def _unlimited_reason(self) -> str:
        """Return why the kernel does not hold the sandbox to a number of processes; empty when it does."""
        if os.geteuid() == 0:
            return "the kernel does not hold root to RLIMIT_NPROC"
        release = os.uname().release
        numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
        return "" if numbers >= COUNTED_IN_NAMESPACES else f"Linux {release} counts all processes of the user together"


def _processes(most: int) -> str:
    # dash calls it -p; where the hard limit is lower already, that one holds
    return f"ulimit -u {most} 2>/dev/null || ulimit -p {most}"


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{{ {line}; }} 2>/dev/null; " for line in lines)


def _nothing() -> tuple[str, ...]:
    return ()
