"""Background processes: each has a keeper (`system.process_keeper`) and a directory.

The directories are below `$HERMES_HOME/processes`. A process that outlives the agent is found there by the next agent;
one that ended without a result is reported as lost.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal

import hermes_agent
from hermes_agent.contracts.terminal_env import BackendStart
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.core.redaction import redactor
from hermes_agent.sessions.turn_journal import is_running, this_process
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.locks import FileLock
from hermes_agent.system.process_keeper import START
from hermes_agent.system.process_tree import boot_id, start_time
from hermes_agent.workspace.sandbox.steering_guard import finish_abandoned, guard_command

logger = logging.getLogger(__name__)

MAX_RUNNING = 32
MAX_KEPT = 64
"""Most ended processes that are kept; the oldest are removed first."""
KEPT_S = 24 * 3600
START_LIMIT_S = 20.0
KILL_LIMIT_S = 10.0
TICK_S = 0.05

Status = Literal["running", "exited", "killed", "lost"]


@lazy_dataclass(slots=True)
class BackgroundProcess:
    """A background process, as stored in its directory."""

    id: str
    task_id: str
    session_id: str
    """The session that is notified; for a subagent, that of its user."""
    command: str
    cwd: str
    backend: str
    pid: int
    keeper: int
    """Process id of the keeper."""
    keeper_started: int
    """Start of the keeper in ticks since boot, because process ids are reused."""
    boot: str
    began: float
    confined: bool = True
    tty: bool = False
    notify: bool = False
    watch: list[str] = field(default_factory=list)

    def is_visible_to(self, task_id: str) -> bool:
        """Return whether a task may see the process: it started it, or is notified of it."""
        return task_id == self.task_id or (bool(task_id) and task_id == self.session_id)


class BackgroundProcesses:
    """The background processes of one home. Safe for threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.segment_bytes = 1_000_000
        """Size of an output segment; the last one or two segments of a process are kept."""
        self._known: dict[str, BackgroundProcess] = {}
        self._seen: dict[str, int] = {}
        self._found: set[str] = set()
        self._lock = threading.Lock()
        self._read = False

    def start(
        self, start: BackendStart, *, command: str, cwd: str, backend: str, task_id: str, session_id: str, **more: Any
    ) -> BackgroundProcess:
        """Start a process and return it once it runs.

        Args:
            start: the program to start.
            command: the command line.
            cwd: its working directory.
            backend: the name of the backend.
            task_id: the task that starts it.
            session_id: the session to notify.
            more: further fields of `BackgroundProcess`.

        Raises:
            ToolFailed: the process cannot be started, or too many run.
        """
        self._load()
        self._clean()
        running = [p for p in self._all() if self.status(p) == "running"]
        if len(running) >= MAX_RUNNING:
            raise ToolFailed(f"{len(running)} background processes run already; end one with `process` (kill)")
        process_id = new_id("proc")
        place = self._directory / process_id
        place.mkdir(mode=0o700, parents=True)
        request = {
            "argv": guard_command(start.argv, start.before, place) if start.before is not None else start.argv,
            "cwd": start.cwd,
            "tty": bool(more.get("tty")) and not start.has_tty,
            "directory": str(place),
            "mark": process_id,
            "segment": self.segment_bytes,
        }
        try:
            pid, keeper = _launch(request, start.env)
        except ToolFailed:
            shutil.rmtree(place, ignore_errors=True)
            raise
        # secrets in the command line are not written to a file
        process = BackgroundProcess(
            process_id, task_id, session_id, redactor(command), cwd, backend, pid, keeper, start_time(keeper),
            boot_id(), time.time(), **more,
        )  # fmt: skip
        write_atomic(place / "meta.json", json.dumps(asdict(process)), mode=PRIVATE)
        with self._lock:
            self._known[process_id] = process
        return process

    def directories(self) -> list[Path]:
        """Return the directories of the running processes."""
        self._load()
        return [self._directory / p.id for p in self._all() if self.status(p) == "running"]

    def processes_of(self, task_id: str) -> list[BackgroundProcess]:
        """Return the processes of a task, and of the subagents of its session, oldest first."""
        self._load()
        return sorted((p for p in self._all() if p.is_visible_to(task_id)), key=lambda p: p.began)

    def get(self, process_id: str, task_id: str) -> BackgroundProcess:
        """Return a process of a task.

        Raises:
            ToolFailed: the task has no such process.
        """
        self._load()
        process = self._known.get(process_id)
        if process is None or not process.is_visible_to(task_id):
            names = ", ".join(p.id for p in self.processes_of(task_id)) or "none"
            raise ToolFailed(f"there is no process {process_id!r}; this conversation has: {names}")
        return process

    def watched(self) -> list[BackgroundProcess]:
        """Return the processes with notifications that are not complete yet."""
        self._load()
        wanted = [p for p in self._all() if p.notify or p.watch]
        return [p for p in wanted if not (self._directory / p.id / "told").exists()]

    def mark_notified(self, process: BackgroundProcess) -> None:
        """Record that the session was notified of the end, for the next agent of this home."""
        with contextlib.suppress(OSError):
            (self._directory / process.id / "told").touch()

    @contextlib.contextmanager
    def hold_claim(self, process: BackgroundProcess) -> Iterator[int]:
        """Hold the lock on the notifications of a process; yield the open file of the claim.

        Raises:
            OSError: the directory is gone, or cannot be written.
        """
        # the file names the agent that reports the end; the lock is held only to write it
        with FileLock(self._directory / process.id / "claim", names_holder=False) as lock:
            yield lock.fd

    def claim(self, process: BackgroundProcess) -> bool:
        """Claim the notification of the end; return False while another running agent has claimed it."""
        with contextlib.suppress(OSError), self.hold_claim(process) as handle:
            holder = os.read(handle, 100).decode()
            if holder not in ("", this_process()) and is_running(holder):
                return False
            os.ftruncate(handle, 0)
            os.pwrite(handle, this_process().encode(), 0)
        return True

    def release(self, process: BackgroundProcess) -> None:
        """Release the claim, so that another agent of this home may report the end."""
        with contextlib.suppress(OSError):
            os.truncate(self._directory / process.id / "claim", 0)

    def progress(self, process: BackgroundProcess) -> tuple[int, int]:
        """Return how many bytes of output were searched for patterns, and the number of notifications."""
        try:
            found = json.loads((self._directory / process.id / "matched.json").read_bytes())
            return int(found["offset"]), int(found["told"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0, 0

    def note_progress(self, process: BackgroundProcess, offset: int, notified: int) -> None:
        """Store what `progress` returns, for the next agent of this home."""
        with contextlib.suppress(OSError):
            data = json.dumps({"offset": offset, "told": notified})
            write_atomic(self._directory / process.id / "matched.json", data, mode=PRIVATE)

    def is_recovered(self, process: BackgroundProcess) -> bool:
        """Return whether an earlier agent of this home started the process."""
        return process.id in self._found

    def status(self, process: BackgroundProcess) -> Status:
        """Return the status of a process."""
        with contextlib.suppress(OSError):  # as process 1 of a container the agent must reap orphans
            os.waitpid(process.keeper, os.WNOHANG)
        end = self.end(process)
        if end is None:
            if process.boot == boot_id() and start_time(process.keeper) == process.keeper_started:
                return "running"
            end = self.end(process)  # it ended just now
        finish_abandoned(self._directory / process.id)
        if end is None:
            return "lost"
        return "killed" if end.get("killed") else "exited"

    def end(self, process: BackgroundProcess) -> dict[str, Any] | None:
        """Return `code`, `killed` and `at` of the end, or None while the process runs."""
        try:
            found = json.loads((self._directory / process.id / "ended.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def output(self, process: BackgroundProcess, offset: int = 0) -> tuple[bytes, int, int]:
        """Return the kept output from byte `offset` on, with the offsets of its begin and end."""
        place = self._directory / process.id
        with contextlib.suppress(OSError):
            starts = sorted(int(path.name[4:]) for path in place.glob("out-*"))
            data = bytearray()
            first = starts[0] if starts else 0
            for start in starts:
                with contextlib.suppress(FileNotFoundError):  # the keeper has just removed it
                    piece = (place / f"out-{start}").read_bytes()
                    if not data:
                        first = start
                    data += piece
            begin = max(offset, first)
            return bytes(data[begin - first :]), begin, first + len(data)
        return b"", offset, offset

    def read_new(self, process: BackgroundProcess) -> tuple[bytes, int]:
        """Return the output since the last call, and how many bytes of it are no longer kept."""
        seen = self._seen.get(process.id, 0)
        data, begin, end = self.output(process, seen)
        self._seen[process.id] = end
        return data, begin - seen

    def wait(self, process: BackgroundProcess, limit_s: float, cancelled: threading.Event) -> Status:
        """Wait until the process ends, the time is over, or the turn is interrupted; return the status."""
        deadline = time.monotonic() + limit_s
        while (status := self.status(process)) == "running":
            remaining = deadline - time.monotonic()
            if remaining <= 0 or cancelled.wait(min(TICK_S, remaining)):
                break
        return status

    def write(self, process: BackgroundProcess, data: bytes) -> None:
        """Write to the input of a process.

        Raises:
            ToolFailed: it does not run, or has not read its earlier input.
        """
        if self.status(process) != "running":
            raise ToolFailed(f"{process.id} has ended and reads no more")
        try:
            handle = os.open(self._directory / process.id / "input", os.O_WRONLY | os.O_NONBLOCK)
            try:
                while data:
                    data = data[os.write(handle, data) :]
            finally:
                os.close(handle)
        except BlockingIOError:
            raise ToolFailed(f"{process.id} has not read its input yet; {len(data)} bytes were not written") from None
        except OSError as exc:
            raise ToolFailed(f"{process.id} takes no input: {exc.strerror}") from exc

    def close_input(self, process: BackgroundProcess) -> None:
        """Close the input of a process."""
        self._signal(process, signal.SIGUSR1)

    def kill(self, process: BackgroundProcess) -> Status:
        """End a process with all that it started, and wait for its end."""
        self._signal(process, signal.SIGTERM)
        return self.wait(process, KILL_LIMIT_S, threading.Event())

    def _signal(self, process: BackgroundProcess, number: signal.Signals) -> None:
        if self.status(process) == "running":
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.keeper, number)

    def _load(self) -> None:
        """Load the processes of earlier agents of this home, once."""
        with self._lock:
            if self._read:
                return
            self._read = True
            found: list[BackgroundProcess] = []
            for place in self._places():
                try:
                    process = BackgroundProcess(**json.loads((place / "meta.json").read_bytes()))
                except (OSError, ValueError, TypeError) as exc:
                    logger.warning("background process not loaded: %s: %s", exc, place)
                    continue
                self._known.setdefault(process.id, process)
                self._found.add(process.id)
                found.append(process)
        for process in found:
            self.status(process)  # finishes the check of a guard that was killed

    def _all(self) -> list[BackgroundProcess]:
        """Return a copy of the known processes, which other threads change."""
        with self._lock:
            return list(self._known.values())

    def _places(self) -> Iterator[Path]:
        with contextlib.suppress(FileNotFoundError):
            yield from sorted(p for p in self._directory.iterdir() if p.is_dir())

    def _clean(self) -> None:
        """Remove processes that ended long ago."""
        ended = sorted((p for p in self._all() if self.status(p) != "running"), key=lambda p: -p.began)
        for number, process in enumerate(ended):
            if number >= MAX_KEPT or time.time() - process.began > KEPT_S:
                shutil.rmtree(self._directory / process.id, ignore_errors=True)
                with self._lock:
                    self._known.pop(process.id, None)
                    self._seen.pop(process.id, None)


def _launch(request: dict[str, Any], env: dict[str, str]) -> tuple[int, int]:
    """Start a keeper; return the process ids of the command and of the keeper."""
    argv = [sys.executable, "-I", "-S", "-c", START, str(Path(hermes_agent.__file__).parents[1])]
    try:
        done = subprocess.run(
            argv, cwd="/", env=env, input=json.dumps(request).encode(), stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=START_LIMIT_S, check=False,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        raise ToolFailed(f"the command could not be started, its keeper failed: {exc}") from exc
    if "pid" not in answer:
        raise ToolFailed(f"the command could not be started: {answer.get('error')}")
    return int(answer["pid"]), int(answer["keeper"])
