"""Runs a command and ends all its processes when the program that started this one ends.

    python mcp_watchdog.py --ppid PID -- COMMAND [ARGUMENT …]

Upstream's `tools/mcp_stdio_watchdog.py`: plugins start MCP servers through its file. The command has the streams of
this process, and its exit status becomes that of this process. It imports the standard library alone, to start fast.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

LOOK_S = 1.0
"""Time between two looks for the program that started this one."""
GRACE_S = 3.0
"""Time that the processes have to end by themselves."""
ENDING = ("SIGTERM", "SIGINT", "SIGHUP")
NOT_FOUND = 127
"""Exit status of a command that cannot be started, as of a shell."""


class Ended(Exception):
    """This process was sent a signal to end.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of the arguments and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ppid", type=int, required=True, help="process that must live on")
    parser.add_argument("command", nargs="+", help="what is run, after `--`")
    options = parser.parse_args(argv)
    for name in ENDING:
        signal.signal(getattr(signal, name), _end)
    try:
        process = subprocess.Popen(options.command, start_new_session=True)
    except OSError as exc:
        print(f"{options.command[0]} cannot be started: {exc}", file=sys.stderr)
        return NOT_FOUND
    try:
        status = _wait(process, options.ppid)
    except Ended as exc:
        status = 128 + exc.number
    finally:
        end_group(process)
    return status if status >= 0 else 128 - status


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the processes of the command's group: SIGTERM first, SIGKILL after `GRACE_S`."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes], parent: int) -> int:
    while os.getppid() == parent:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK_S)
    raise Ended(signal.SIGHUP)


def _end(number: int, frame: object) -> None:
    raise Ended(number)


if __name__ == "__main__":
    sys.exit(main())
