"""Run a command to its end: listed environment, bounded output, no processes left behind.

The environment is built from a list of names, so that no key gets into it by accident. A command gets its own session.
At its end every process is ended that is in its session, descends from it, or has its mark in the environment. A child
inherits the mark even if it makes its own session and loses its parent. A process escapes if it clears its environment
and detaches itself, or runs as another user; a systemd unit for each command prevents that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.process_tree import ProcessTree

logger = logging.getLogger(__name__)

_NAMES = """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TERM COLORTERM NO_COLOR TZ TZDIR TMPDIR TMP TEMP COLUMNS LINES
    LOCALE_ARCHIVE SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE GIT_SSL_CAINFO
    NIX_PATH NIX_PROFILES NIX_REMOTE XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME XDG_CONFIG_DIRS
    XDG_DATA_DIRS NO_PROXY no_proxy
"""
_ALLOWED = frozenset(_NAMES.split())
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"})
_NEVER = frozenset(
    {"CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "JOURNAL_STREAM", "INVOCATION_ID", "MAINPID", "SYSTEMD_EXEC_PID"}
)
_NEVER_STARTS = ("WATCHDOG_", "LISTEN_", "MEMORY_PRESSURE_")


_withheld: dict[str, frozenset[str]] = {}
"""By plugin: variables that no process gets that works for the model."""


def withhold_variables(owner: str, names: Iterable[str]) -> None:
    """Keep variables from all processes that work for the model; an empty list ends that."""
    _withheld.pop(owner, None)
    if given := frozenset(map(str, names)):
        _withheld[owner] = given


def tool_environment(environ: Mapping[str, str], *, passthrough: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a process that works for the model: only listed variables.

    Args:
        passthrough: additional names, from `terminal.env_passthrough`. Variables of the service manager (notify socket,
            credential directory, …) are left out even if they are named.
    """
    wanted = set(passthrough).difference(*_withheld.values())
    for name in sorted(wanted):
        if name in _NEVER or name.startswith(_NEVER_STARTS):
            logger.warning("terminal.env_passthrough: variable of the service manager is not passed on: %s", name)
            wanted.discard(name)
    return {name: value for name, value in environ.items() if name in wanted or _is_allowed(name, value)}


def _is_allowed(name: str, value: str) -> bool:
    if name in _PROXIES:
        return "@" not in value  # http://user:password@proxy
    return name in _ALLOWED or name.startswith("LC_")


def find_shell(environ: Mapping[str, str]) -> str:
    """Return the shell for command lines: bash, or sh without it."""
    for path in ("/bin/bash", shutil.which("bash", path=environ.get("PATH")), "/bin/sh"):
        if path and Path(path).exists():
            return path
    return "sh"


MARK = "HERMES_CALL"
"""Variable that marks the processes of a command; its value is random and no secret."""

HEAD_SHARE = 0.4
"""Share of the output limit for the beginning; the rest is for the end."""
GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL."""
TICK_S = 0.1
"""Seconds until a cancellation is noticed."""
LINGER_S = 0.5
"""Seconds of reading after the end of the command, while a child keeps the pipe open."""
SETTLE_S = 0.1
"""Seconds for children that end with the command (a process substitution)."""
READ_BYTES = 65_536


@lazy_dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    exit_code: int
    """0 to 255; 128 + N after signal N."""
    head: bytes
    """Output and errors in order: all, or the beginning."""
    tail: bytes = b""
    """The end of the output, if a part before it was left out."""
    omitted: int = 0
    """Bytes left out between `head` and `tail`."""
    timed_out: bool = False
    cancelled: bool = False
    ended_children: int = 0
    """Processes that outlived the command and were ended."""
    held: tuple[str, ...] = ()
    """Files of the command that would steer other programs, and what happened to them."""
    limits: tuple[str, ...] = ()
    """The limits that the command reached, in words, as far as they are known."""

    @property
    def truncated(self) -> bool:
        """Whether a part of the output was left out."""
        return self.omitted > 0

    @property
    def output(self) -> bytes:
        """The stored output."""
        return self.head + self.tail


class OutputFilter(Protocol):
    """Removes a part of the output before it is stored."""

    def feed(self, data: bytes) -> bytes:
        """Take a piece and return the part to store."""
        ...

    def rest(self) -> bytes:
        """Return what was held back, at the end."""
        ...


def run(
    command: str | Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    output_limit_bytes: int,
    cancelled: threading.Event,
    stdin: IO[bytes] | int | bytes = subprocess.DEVNULL,
    head_only: bool = False,
    on_output: Callable[[bytes], None] | None = None,
    sieve: OutputFilter | None = None,
    pass_fds: Sequence[int] = (),
) -> CommandResult:
    """Run a command and wait for it; call it from a worker thread.

    Args:
        command: a line for the shell, or a program and its arguments.
        output_limit_bytes: bytes of output to store, from its beginning and its end; memory does not grow beyond it.
        cancelled: ends the command soon after it is set.
        stdin: an open file, or bytes that the command reads.
        head_only: store only the beginning, and end the command when the limit is reached.
        on_output: called with the output as it arrives, for a progress display.
        sieve: filters the output.
        pass_fds: descriptors that the command inherits under their numbers.

    Raises:
        OSError: the program cannot be started, or `cwd` cannot be entered.
        ValueError: the command has a NUL character, or text that cannot be encoded.
    """
    argv = [find_shell(env), "-c", command] if isinstance(command, str) else list(command)
    mark = secrets.token_hex(8)
    with _open_input(stdin) as source:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**env, MARK: mark},
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
            pass_fds=pass_fds,
        )
    assert process.stdout is not None
    with process.stdout as pipe:
        os.set_blocking(pipe.fileno(), False)
        kept = _OutputEnds(output_limit_bytes, 1.0 if head_only else HEAD_SHARE)
        watch = _Watch(process.pid, pipe.fileno(), kept, on_output, sieve)
        tree = ProcessTree(process.pid, f"{MARK}={mark}".encode())
        try:
            ending = watch.until_end(time.monotonic() + timeout_s, cancelled, stop_when_full=head_only)
            ended = _end(tree, watch, settle_s=SETTLE_S if ending == "ended" else 0)
            watch.drain()
            if sieve is not None:
                kept.add(sieve.rest())
        except BaseException:
            tree.signal(signal.SIGKILL)
            process.wait()
            raise
        finally:
            watch.close()
    # The leader is reaped last: until then no other process can get its id, which names the session.
    code = process.wait()
    return CommandResult(
        128 - code if code < 0 else code,
        *kept.parts(),
        timed_out=ending == "timeout",
        cancelled=ending == "cancelled",
        ended_children=ended if ending == "ended" else 0,
    )


@contextlib.contextmanager
def _open_input(stdin: IO[bytes] | int | bytes) -> Iterator[IO[bytes] | int]:
    """Yield input for a process.

    Bytes go through an unnamed file, so that writing does not wait for a reader.
    """
    if not isinstance(stdin, bytes):
        yield stdin
        return
    import tempfile  # few commands get so much input

    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        yield file


def _end(tree: ProcessTree, watch: _Watch, *, settle_s: float) -> int:
    """End the rest of the tree; return the number of its processes besides the leader."""
    if _wait_gone(tree, watch, settle_s):
        tree.reap()
        return 0
    left = tree.signal(signal.SIGTERM)
    _wait_gone(tree, watch, GRACE_S)
    for _ in range(20):  # a child may have forked while the others were killed
        if not tree.signal(signal.SIGKILL):
            break
        watch.read_some(0.02)
    else:
        logger.warning("command: some processes cannot be ended: %s", sorted(tree.members()))
    tree.reap()
    return len(left - {tree.leader})


def _wait_gone(tree: ProcessTree, watch: _Watch, limit_s: float) -> bool:
    """Wait until the tree has ended.

    Output is read meanwhile, so that no process waits for room in the pipe.
    """
    limit = time.monotonic() + limit_s
    while alive := tree.members():
        if time.monotonic() >= limit:
            break
        watch.read_some(0.02)
    return not alive


class _OutputEnds:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, limit: int, head_share: float) -> None:
        self._head_limit = int(limit * head_share)
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def is_full(self) -> bool:
        return len(self._head) >= self._head_limit

    def add(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_limit + READ_BYTES:
            self._cut()

    def _cut(self) -> None:
        over = len(self._tail) - self._tail_limit
        if over > 0:
            del self._tail[:over]
            self._dropped += over

    def parts(self) -> tuple[bytes, bytes, int]:
        """Return beginning, end, and the number of bytes between them."""
        self._cut()
        return bytes(self._head), bytes(self._tail), self._dropped


class _Watch:
    """Reads the output of a command and detects its end, without reaping it."""

    def __init__(
        self,
        pid: int,
        pipe: int,
        kept: _OutputEnds,
        on_output: Callable[[bytes], None] | None,
        sieve: OutputFilter | None,
    ) -> None:
        self._pid = pid
        self._sieve = sieve
        self._on_output = on_output
        self._kept = kept
        self._pipe: int | None = pipe
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)
        self._pidfd: int | None = None
        with contextlib.suppress(OSError, AttributeError):  # without a pidfd the end is detected at the next tick
            self._pidfd = os.pidfd_open(pid)
            self._poll.register(self._pidfd, select.POLLIN)

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def until_end(self, deadline: float, cancelled: threading.Event, *, stop_when_full: bool) -> str:
        """Return `ended`, `timeout`, `cancelled` or `full`."""
        ended_at: float | None = None
        while True:
            now = time.monotonic()
            if cancelled.is_set():
                return "cancelled"
            if ended_at is None and now >= deadline:
                return "timeout"
            got = self.read_some(min(TICK_S, deadline - now) if ended_at is None else TICK_S)
            if stop_when_full and self._kept.is_full:
                return "full"
            if ended_at is None and self._has_ended():
                ended_at = now
            if ended_at is not None and (self._pipe is None or not got or now - ended_at > LINGER_S):
                return "ended"

    def read_some(self, timeout_s: float) -> bool:
        """Wait for output or the end; return whether output came."""
        got = False
        for fd, _ in self._poll.poll(max(timeout_s, 0) * 1000):
            if fd == self._pipe:
                got = self._read(fd)
            else:
                self._poll.unregister(fd)  # it stays readable after the end of the command
        return got

    def drain(self) -> None:
        """Read what is in the pipe, at most about 2 MiB: an escaped process may write forever."""
        for _ in range(32):
            if self._pipe is None or not self.read_some(0):
                return

    def _read(self, fd: int) -> bool:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._poll.unregister(fd)
            self._pipe = None
        own = data if self._sieve is None else self._sieve.feed(data)
        self._kept.add(own)
        if own and self._on_output is not None:
            self._on_output(own)
        return bool(data)

    def _has_ended(self) -> bool:
        try:
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # other code of this process waits for all children
            return True
