"""Is there enough memory and disk for the embedded model, in numbers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "free_disk", "memory"]

CGROUP_LIMITS = ("memory.max", "memory.high")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes; the smaller of what the machine and what the control group of this process has."""

    total: int
    available: int


def memory(meminfo: Path = Path("/proc/meminfo"), cgroup_root: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """Return the memory that this process may count on; None when the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        total = int(fields["MemTotal"].split()[0]) * 1024
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    limit, used = _cgroup(cgroup_root)
    if limit is not None and limit < total:
        return Memory(limit, min(available, max(0, limit - used)))
    return Memory(total, available)


def _cgroup(root: Path, membership: Path = Path("/proc/self/cgroup")) -> tuple[int | None, int]:
    """Return the smallest limit on the way up from our control group (v2), and what that group uses."""
    try:
        relative = next(line[3:] for line in membership.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None, 0
    best: tuple[int | None, int] = (None, 0)
    group = root / relative.lstrip("/")
    while group.is_relative_to(root):
        for name in CGROUP_LIMITS:
            limit = _number(group / name)
            if limit is not None and (best[0] is None or limit < best[0]):
                best = (limit, _number(group / "memory.current") or 0)
        if group == root:
            break
        group = group.parent
    return best


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def free_disk(path: Path) -> int:
    """Return the free bytes where `path` is, or would be made."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
