"""Start the process of an isolated plugin: a child in a sandbox, or a systemd unit of its own.

`ChildLauncher` starts a program that confines the process, bubblewrap or the operator's own. `UnitLauncher` connects to
a socket of systemd, which starts a unit for the connection (`system/plugin_unit.py`). The service that the packages
and NixOS start may make no namespaces, so that it needs units.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Protocol

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.isolation.process_state import memory_of
from hermes_agent.plugins.pinned_files import SKIPPED
from hermes_agent.system.plugin_unit import MOST_CODE, MOST_REQUEST, send_request
from hermes_agent.system.process_tree import start_time
from hermes_agent.workspace.sandbox.file_rules import is_inside

START_S = 60.0
"""Seconds for a unit to start the process."""
ANSWER_S = 1.0
"""Seconds for a unit to tell the memory in use."""
MEMORY = "memory"
"""Word for a limit of memory that was reached."""


class ProcessEnd(LazyNamedTuple):
    """How a process ended."""

    code: int | None
    """Exit status, negative for a signal; None if nothing reported it."""
    reached: tuple[str, ...] = ()
    """Limits that were reached, as far as known."""


class StartedProcess(Protocol):
    """A process of a plugin that runs."""

    connection: socket.socket
    """The agent's end of the socket for calls."""
    output: IO[bytes]
    """What the process prints."""
    pid: int
    started: int
    """Clock ticks since boot at its start."""
    notes: tuple[str, ...]
    """Warnings about the start."""

    def wait(self, limit_s: float | None) -> ProcessEnd:
        """Wait for the end.

        Raises:
            TimeoutError: it did not end in time.
        """
        ...

    def kill(self) -> None:
        """End the process and what it started."""
        ...

    def memory_bytes(self) -> int:
        """Return the resident memory; 0 if it is not known."""
        ...


class ProcessLauncher(Protocol):
    """Starts the process of one plugin, again after each end."""

    name: str
    """`bwrap`, `unit`, or `launcher` for the operator's own program."""

    def start(self) -> StartedProcess:
        """Start the process.

        Raises:
            OSError: it cannot be started.
        """
        ...


class StartedCommand(LazyNamedTuple):
    """How a child is started."""

    argv: Sequence[str]
    env: Mapping[str, str]
    finish: Callable[[], tuple[str, ...]]
    """Releases the limits after the end; returns those that were reached, as far as known."""


class _Child:
    """A child process."""

    notes: tuple[str, ...] = ()

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, command: StartedCommand) -> None:
        self._process, self.connection, self._command = process, connection, command
        assert process.stdout is not None
        self.output: IO[bytes] = process.stdout
        self.pid, self.started = process.pid, start_time(process.pid) or 0

    def wait(self, limit_s: float | None) -> ProcessEnd:
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired as exc:
            raise TimeoutError(f"process {self.pid} did not end") from exc
        return ProcessEnd(code, self._command.finish())

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)

    def memory_bytes(self) -> int:
        return memory_of(self.pid)


class ChildLauncher:
    """Starts the process as a child of the agent.

    Args:
        name: `bwrap` or `launcher`.
        command: returns the program, with what confines it.
    """

    def __init__(self, name: str, command: Callable[[], StartedCommand]) -> None:
        self.name, self._command = name, command

    def start(self) -> StartedProcess:
        """Start the process.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                command = self._command()
                process = subprocess.Popen(
                    list(command.argv),
                    env=dict(command.env),
                    cwd="/",
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        return _Child(process, ours, command)


class UnitRequest(LazyNamedTuple):
    """What the unit needs for the process."""

    env: Mapping[str, str]
    folder: str = ""
    """Folder that is passed to the unit, which does not see it; empty for none."""
    read: Mapping[str, str] = MappingProxyType({})
    write: Mapping[str, str] = MappingProxyType({})
    """Granted paths, with their real paths."""
    memory_mb: int = 0
    broker: Callable[[], socket.socket | None] = lambda: None
    """Return a connection to the network broker; None for no network."""


class _InUnit:
    """A process in a unit; `control` is the connection that the unit serves."""

    def __init__(self, control: socket.socket, connection: socket.socket, output: IO[bytes], memory_mb: int) -> None:
        self._control, self.connection, self.output = control, connection, output
        self._memory_mb = memory_mb
        self._data = bytearray()
        self._end: ProcessEnd | None = None
        self._lock = threading.Lock()
        self.notes: tuple[str, ...] = ()
        self.pid = self.started = 0

    def await_start(self) -> None:
        """Wait until the unit has started the process.

        Raises:
            OSError: it did not.
        """
        answer = self._line(START_S)
        if answer is None:
            raise OSError("its unit ended before it started the process; the journal has the reason")
        if "error" in answer:
            raise OSError(str(answer["error"]))
        pid, started, missing = (answer.get(name) for name in ("started", "start", "missing"))
        if not (type(pid) is int and type(started) is int and isinstance(missing, list)):
            raise OSError(f"its unit answers {answer!r:.200}")
        self.pid, self.started = pid, started
        notes = [f"granted path {path} is not shown by its unit" for path in missing]
        most = answer.get("memory_max")
        self.notes = (*notes, *memory_notes(self._memory_mb, most if type(most) is int else None))

    def _line(self, limit_s: float | None) -> dict[str, Any] | None:
        """Return the next line of the unit; None after the last one, and after one that cannot be read.

        Raises:
            TimeoutError: there was none in time.
        """
        until = None if limit_s is None else time.monotonic() + limit_s
        while b"\n" not in self._data:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("the unit gives no answer")
            self._control.settimeout(left)
            try:
                part = self._control.recv(65_536)
            except TimeoutError:
                continue
            except OSError:  # `kill` closed the connection
                return None
            self._data += part
            if not part or len(self._data) > MOST_REQUEST:
                return self._refuse()
        line, _, rest = self._data.partition(b"\n")
        self._data = rest
        try:
            answer = json.loads(bytes(line))
        except (ValueError, RecursionError):
            return self._refuse()
        return answer if isinstance(answer, dict) else self._refuse()

    def _refuse(self) -> dict[str, Any] | None:
        """End the unit: the processes of the plugin have its user, so that no line of it is trusted."""
        self._data.clear()
        self.kill()
        return None

    def wait(self, limit_s: float | None) -> ProcessEnd:
        with self._lock:
            until = None if limit_s is None else time.monotonic() + limit_s
            while self._end is None:
                answer = self._line(None if until is None else max(until - time.monotonic(), 0.01))
                if answer is None:
                    self._end = ProcessEnd(None)
                elif "code" in answer:
                    self._set_end(answer)
            self._control.close()
            return self._end

    def _set_end(self, answer: Mapping[str, Any]) -> None:
        code = answer["code"]
        self._end = ProcessEnd(code if type(code) is int else None, (MEMORY,) if answer.get("out_of_memory") else ())

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def memory_bytes(self) -> int:
        if not self._lock.acquire(timeout=ANSWER_S):
            return 0
        try:
            if self._end is not None:
                return 0
            self._control.settimeout(ANSWER_S)
            self._control.sendall(b"m")
            while (answer := self._line(ANSWER_S)) is not None:
                if "memory" in answer:
                    memory = answer["memory"]
                    return memory if type(memory) is int else 0
                if "code" in answer:
                    self._set_end(answer)
                    return 0
        except OSError:  # also a unit that gives no answer
            pass
        finally:
            self._lock.release()
        return 0


class UnitLauncher:
    """Starts the process in a systemd unit of its own.

    Args:
        path: socket at which systemd starts the unit.
        request: returns what the unit needs, for each start.
    """

    name = "unit"

    def __init__(self, path: Path, request: Callable[[], UnitRequest]) -> None:
        self._path, self._request = path, request

    def start(self) -> StartedProcess:
        """Start the process.

        Raises:
            OSError: the unit did not start it.
        """
        request = self._request()
        with contextlib.ExitStack() as failed, contextlib.ExitStack() as passed:
            control = failed.enter_context(socket.socket(socket.AF_UNIX))
            try:
                control.connect(str(self._path))
            except OSError as exc:
                raise OSError(
                    f"no unit answers at {self._path}: {exc.strerror or exc};"
                    " `systemctl status 'hermes-plugin-*.socket'` shows why"
                ) from exc
            ours, theirs = socket.socketpair()
            failed.enter_context(ours)
            passed.enter_context(theirs)
            reading, writing = os.pipe()
            output = failed.enter_context(os.fdopen(reading, "rb"))
            passed.callback(os.close, writing)
            fds = {"peer": theirs.fileno(), "output": writing}
            if request.folder:
                fds["code"] = passed.enter_context(archive_of(request.folder)).fileno()
            if (broker := request.broker()) is not None:
                fds["broker"] = passed.enter_context(broker).fileno()
            wanted = {
                "env": dict(request.env), "folder": request.folder, "memory_mb": request.memory_mb,
                "read": dict(request.read), "write": dict(request.write),
            }  # fmt: skip
            control.settimeout(START_S)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the unit said why before it ended
                send_request(control, wanted, fds)
            started = _InUnit(control, ours, output, request.memory_mb)
            passed.close()
            started.await_start()
            failed.pop_all()
            return started


def memory_notes(memory_mb: int, unit_bytes: int | None) -> tuple[str, ...]:
    """Return a sentence if a unit has less memory than the setting allows.

    Args:
        memory_mb: `plugins.host.memory_mb`; 0 for no limit.
        unit_bytes: `MemoryMax` of the unit; None for none.
    """
    if unit_bytes is None or 0 < memory_mb << 20 <= unit_bytes:
        return ()
    wanted = f"{memory_mb} MiB" if memory_mb else "no limit"
    return (
        f"its unit has MemoryMax={unit_bytes >> 20}M, and plugins.host.memory_mb allows {wanted}: the unit's limit"
        " counts; `packaging/systemd/plugin NAME` writes a new unit",
    )


def archive_of(folder: str) -> IO[bytes]:
    """Return an open archive of a plugin's folder.

    Bytecode, `.git`, links to folders and links that lead out of it are left out.

    Raises:
        OSError: a file cannot be read or named, or the folder is too large.
    """
    root, size = os.path.realpath(folder), 0
    with contextlib.ExitStack() as failed:
        file = failed.enter_context(tempfile.TemporaryFile())
        with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
            for place, directories, names in os.walk(root):
                directories[:] = sorted(name for name in directories if name not in SKIPPED)
                for path in (Path(place, name) for name in sorted(names)):
                    if not (path.is_file() and is_inside(os.path.realpath(path), root)):
                        continue
                    size += path.stat().st_size
                    if size > MOST_CODE:
                        raise OSError(
                            f"{root} has more than {MOST_CODE >> 20} MiB, which its unit does not take: keep large"
                            " files in another folder, and grant that one (`files.read:PATH`)"
                        )
                    try:
                        archive.write(path, path.relative_to(root))
                    except UnicodeEncodeError as exc:
                        raise OSError(f"{os.fsencode(path)!r} is no UTF-8: rename the file") from exc
        file.seek(0)
        failed.pop_all()
        return file
