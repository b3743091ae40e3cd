"""Processes in /proc: the tree of a command, state and start time of one process, the boot id.

The tree is found by session, descent, a mark in the environment, and the scope of the command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Literal

from hermes_agent.core.lazy_types import LazyNamedTuple


def boot_id() -> str:
    """Return the kernel's id of this boot, or "" if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


SCOPE = "hermes-command-"
"""Beginning of the name of a command's scope (`workspace.sandbox`)."""

_PROC = Path("/proc")
_CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
EXEC_TRIES = 3
EXEC_WAIT_S = 0.001


class ProcessStat(LazyNamedTuple):
    """State of a process, from `/proc/PID/stat`."""

    state: str
    """One letter; `Z` and `X` are a process that has ended."""
    parent: int
    session: int
    started: int
    """Clock ticks since boot."""


class ProcessTree:
    """The processes of a command.

    Args:
        leader: the first process of the command, in its own session and not reaped yet.
        mark: `NAME=value` in the environment of the leader.
    """

    def __init__(self, leader: int, mark: bytes) -> None:
        self.leader = leader
        self._mark = mark
        own = process_stat(leader)
        self._since = own.started if own is not None else 0
        self._scope: Path | None = None
        self._known: dict[int, int] = {}
        """Members seen so far, with their start: a process that lost its parent stays a member."""

    def members(self) -> set[int]:
        """Return the living members, without zombies.

        The list is empty only if two readings are: a process that starts while /proc is read appears in the second one.
        """
        return self._scan() or self._scan()

    def _scan(self) -> set[int]:
        table = _table()
        found = {pid for pid, status in table.items() if status.session == self.leader or pid == self.leader}
        found |= {pid for pid, started in self._known.items() if pid in table and table[pid].started == started}
        found |= self._in_scope()
        found |= {pid for pid, status in table.items() if pid not in found and self._is_marked(pid, status)}
        while fresh := {pid for pid, status in table.items() if status.parent in found} - found:
            found |= fresh
        found &= table.keys()
        self._known |= {pid: table[pid].started for pid in found}
        return {pid for pid in found if table[pid].state not in "ZX"}

    def signal(self, number: signal.Signals) -> set[int]:
        """Send a signal to all members; return them."""
        found = self.members()
        if number == signal.SIGKILL and self._scope is not None:
            with contextlib.suppress(OSError):  # a kernel before 5.14, or the scope is gone
                (self._scope / "cgroup.kill").write_text("1")
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or of another user (sudo)
                os.kill(pid, number)
        if not _PROC.is_dir():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, number)
        return found

    def reap(self) -> None:
        """Reap members that became children of this process (process 1 of a container), but not the leader."""
        for pid in self._known.keys() - {self.leader}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _in_scope(self) -> set[int]:
        """Return the processes in the scope of the leader, or none."""
        if self._scope is None:
            self._scope = _scope(self.leader)
        found: set[int] = set()
        if self._scope is not None:
            with contextlib.suppress(OSError):  # the scope ends with its last process
                found = {int(pid) for pid in (self._scope / "cgroup.procs").read_text().split()}
        return found

    def _is_marked(self, pid: int, status: ProcessStat) -> bool:
        if status.started < self._since or pid == os.getpid():
            return False
        try:
            return self._mark in _environ(pid).split(b"\0")
        except OSError:  # gone, or of another user
            return False


def _scope(leader: int) -> Path | None:
    """Return the directory of a command's scope; None without one, or if this process is in it."""
    try:
        groups, own = ((_PROC / str(pid) / "cgroup").read_text().split("\n") for pid in (leader, os.getpid()))
    except OSError:
        return None
    for line in set(groups) - set(own):
        path = Path(line.partition("::")[2].removesuffix(" (deleted)").lstrip("/"))
        if path.name.startswith(SCOPE):
            return next((root / path for root in _CGROUPS if (root / path).is_dir()), None)
    return None


def _environ(pid: int) -> bytes:
    """Read the environment of a process; it is briefly empty while another program replaces it."""
    for _ in range(EXEC_TRIES):
        text = (_PROC / str(pid) / "environ").read_bytes()
        if text:
            return text
        time.sleep(EXEC_WAIT_S)
    return b""


def _table() -> dict[int, ProcessStat]:
    try:
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return {}
    return {pid: status for pid in pids if (status := process_stat(pid)) is not None}


def start_time(pid: int) -> int:
    """Return when a process began, in clock ticks since boot; 0 if it has ended."""
    status = process_stat(pid)
    return 0 if status is None or status.state in ("Z", "X") else status.started


def resident_bytes(pid: int | Literal["self"] = "self") -> int:
    """Return the resident memory of a process in bytes, or 0 if the system does not report it."""
    try:
        pages = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # no such process, no Linux, or no /proc
        return 0


def process_stat(pid: int) -> ProcessStat | None:
    """Return the state of a process, or None if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # `pid (name) state ppid pgrp session …`; the name may contain blanks and parentheses
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
