"""Start a server as a child process, wait until it listens, end it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["free_port", "running"]

START_S = 90
OUTPUT_BYTES = 8192
"""Of the output in a note."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: list[str], *, host: str, port: int, path: str, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server while the block lasts, from the moment in which `path` answers.

    Args:
        path: empty where it speaks no HTTP: that it takes connections is enough.

    Raises:
        RuntimeError: it ended, or did not answer within `START_S` seconds; the message has its output.

    An error of the block gets a note with the end of the server's output, and with what a Python server's threads did.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONFAULTHANDLER": "1", **environ},
        )
        try:
            end = time.monotonic() + START_S
            while not _answers(host, port, path):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise RuntimeError(f"{Path(command[0]).name} did not start:\n{log.read().decode()}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            yield process
        except Exception as exc:
            process.send_signal(signal.SIGABRT)  # Python's fault handler prints the stacks
            process.wait(5)
            log.seek(max(0, log.seek(0, os.SEEK_END) - OUTPUT_BYTES))
            exc.add_note(f"the end of the output of {Path(command[0]).name}:\n{log.read().decode(errors='replace')}")
            raise
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(host: str, port: int, path: str) -> bool:
    if not path:
        with socket.socket() as probe:
            return probe.connect_ex((host, port)) == 0
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()
