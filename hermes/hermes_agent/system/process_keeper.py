"""The keeper of one background process: a separate program, so that the process outlives the agent.

It starts a command, stores the end of its output, forwards input, ends the process tree on request, and records how the
command ended. It imports the standard library and `process_tree` alone. Its directory has these files:

    out-N        output from byte N on; at most two such files of SEGMENT bytes
    input        a named pipe to the input of the command
    ended.json   {"code", "killed", "at", "error"}, after the end

SIGTERM ends the command, SIGUSR1 ends its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

from hermes_agent.system.process_tree import ProcessTree

START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from hermes_agent.system.process_keeper import main; main()"
"""Code for an interpreter with `-I -S -c`; the source directory follows, the request comes on standard input."""

GRACE_S = 2.0
SETTLE_S = 0.5
READ_BYTES = 65_536
MOST_INPUT = 1_000_000


def main() -> None:
    """Read the request, answer `{"pid", "keeper"}` or `{"error"}`, and keep running."""
    request = json.load(sys.stdin)
    if os.fork():  # no process has to wait for an orphan
        os._exit(0)
    os.setsid()
    os.chdir(request["directory"])
    try:
        keeper = _Keeper(request)
    except OSError as exc:
        sys.stdout.write(json.dumps({"error": str(exc)}))
        sys.stdout.flush()
        return
    sys.stdout.write(json.dumps({"pid": keeper.process.pid, "keeper": os.getpid()}))
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    keeper.run()


class _Keeper:
    def __init__(self, request: dict[str, Any]) -> None:
        self._segment = int(request["segment"])
        self._written, self._file = 0, self._open(0)
        os.mkfifo("input", 0o600)
        self._fifo = os.open("input", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pending = bytearray()
        tty = bool(request["tty"])
        output, theirs = pty.openpty() if tty else os.pipe()
        stdin, ours = (theirs, os.dup(output)) if tty else os.pipe()
        self._output: int | None = output
        self._input: int | None = ours
        self._tty = tty
        mark = str(request["mark"])
        self._requested = {signal.SIGTERM: False, signal.SIGUSR1: False}
        self._wake, wake = os.pipe()
        for fd in (output, ours, self._wake, wake):
            os.set_blocking(fd, False)
        try:
            self.process = subprocess.Popen(
                request["argv"],
                cwd=request["cwd"],
                env={**os.environ, "HERMES_CALL": mark},
                stdin=stdin,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=take_terminal if tty else None,  # this process has no threads
            )
        finally:
            for fd in {theirs, stdin}:
                os.close(fd)
        self._tree = ProcessTree(self.process.pid, f"HERMES_CALL={mark}".encode())
        for number in self._requested:
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._requested[signal.Signals(number)] = True

    def run(self) -> None:
        """Run until the command has ended."""
        ended = os.pidfd_open(self.process.pid)
        while not self._requested[signal.SIGTERM] and not self._turn(ended):
            pass
        killed = self._requested[signal.SIGTERM]
        if not killed:
            self._drain(SETTLE_S)
        self._end(signal.SIGTERM, GRACE_S)
        self._end(signal.SIGKILL, 1.0)
        self._drain(0)
        code = self.process.wait()
        end = {"code": 128 - code if code < 0 else code, "killed": killed, "at": time.time(), "error": ""}
        part = Path("ended.part")
        part.write_text(json.dumps(end))
        part.rename("ended.json")

    def _turn(self, ended: int) -> bool:
        """Wait for an event and handle it; return True after the end of the command."""
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._output is not None:
            poll.register(self._output, select.POLLIN)
        if self._input is not None and self._pending:
            poll.register(self._input, select.POLLOUT)
        if self._input is not None and len(self._pending) < MOST_INPUT:
            poll.register(self._fifo, select.POLLIN)
        ready = dict(poll.poll())
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 64)
        if self._output in ready:
            self._forward()
        if self._fifo in ready:
            with contextlib.suppress(BlockingIOError):
                self._pending += os.read(self._fifo, READ_BYTES)
        self._feed()
        return ended in ready

    def _feed(self) -> None:
        if self._input is None:
            return
        ends = self._requested[signal.SIGUSR1]
        if ends and self._tty and not self._pending:
            self._requested[signal.SIGUSR1] = False
            self._pending += b"\x04"
        try:
            if self._pending:
                del self._pending[: os.write(self._input, self._pending)]
        except BlockingIOError:
            return
        except OSError:  # the command no longer reads
            self._pending.clear()
            ends = True
        if ends and not self._pending and not self._tty:
            os.close(self._input)
            self._input = None

    def _forward(self) -> bool:
        """Store output; return False if there is none now."""
        if self._output is None:
            return False
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that no process has open
            data = b""
        if not data:
            self._output = None
        os.write(self._file, data)
        self._written += len(data)
        if os.fstat(self._file).st_size >= self._segment:
            os.close(self._file)
            self._file = self._open(self._written)
        return bool(data)

    def _open(self, start: int) -> int:
        """Open the file for output from byte `start` on; of the earlier files only the last stays."""
        for earlier in sorted(Path().glob("out-*"), key=lambda path: int(path.name[4:]))[:-1]:
            earlier.unlink()
        return os.open(f"out-{start}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _drain(self, limit_s: float) -> None:
        """Read while ending processes of the tree write, for at most `limit_s` seconds, and empty the pipe."""
        limit = time.monotonic() + limit_s
        while self._tree.members() and time.monotonic() < limit:
            if not self._forward():
                time.sleep(0.02)
        for _ in range(32):
            if not self._forward():
                return

    def _end(self, number: signal.Signals, limit_s: float) -> None:
        if self._tree.signal(number):
            self._drain(limit_s)


def take_terminal() -> None:
    """Make standard input the controlling terminal of a child."""
    import fcntl  # only in the child

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
