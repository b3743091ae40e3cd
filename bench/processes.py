"""What the kernel knows of a process (memory, wake-ups), and how it lets one run. Linux."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ahead_of_others", "rss_mib", "wake_ups"]


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """Run with its children before all other programs, where the user may: the machine is never idle."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def rss_mib(pid: int) -> float:
    """Return its resident memory in MiB."""
    return _number(Path(f"/proc/{pid}/status"), "VmRSS") / 1024


def wake_ups(pid: int) -> int:
    """Return how many times its threads went to sleep so far: each time something woke them before."""
    count = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += _number(thread / "status", "voluntary_ctxt_switches")
    return count


def _number(status: Path, field: str) -> int:
    lines = status.read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])
