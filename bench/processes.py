"""What the kernel knows of a process: memory, wake-ups. Linux."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["rss_mib", "wake_ups"]


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
