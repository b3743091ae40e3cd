"""Run a function in a child process that may hang, crash, or call `os._exit`, and know what it was doing then."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ChildDied", "run_in_child"]

ProgressReport = Callable[[str], None]
"""Says what is done now; the limit counts from here."""


@dataclass(frozen=True, slots=True)
class ChildDied:
    """The child gave no result."""

    activity: str
    """What it said last; empty when nothing."""
    cause: str
    """`exit status 3`, `signal SIGSEGV`, `no progress within 60 s`."""


def run_in_child(work: Callable[[ProgressReport], Any], *, limit_s: float) -> Any | ChildDied:
    """Return what `work` returns (JSON types), or how the child ended without it.

    The child's standard output goes to standard error: what a stranger prints is no result of ours.

    Args:
        limit_s: seconds that may pass between two words of the child.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer)
    os.close(writer)
    try:
        doing, result, late = _listen(reader, limit_s)
    finally:
        os.close(reader)
    if late:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if result is not None:
        return result["result"]
    if late:
        return ChildDied(doing, f"no progress within {limit_s:g} s")
    return ChildDied(doing, f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}")


def _child(work: Callable[[ProgressReport], Any], writer: int) -> None:
    status = 70
    try:
        os.dup2(2, 1)
        os.set_inheritable(writer, False)

        def send(message: dict[str, Any]) -> None:
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(writer, data) :]

        send({"result": work(lambda doing: send({"doing": doing}))})
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads of strangers must not keep the process


def _listen(reader: int, limit_s: float) -> tuple[str, dict[str, Any] | None, bool]:
    doing, buffer = "", b""
    deadline = time.monotonic() + limit_s
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return doing, None, True
        data = os.read(reader, 65536)
        if not data:
            return doing, None, False
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "result" in message:
                return doing, message, False
            doing, deadline = message["doing"], time.monotonic() + limit_s
