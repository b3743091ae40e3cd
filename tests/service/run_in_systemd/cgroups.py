"""The container's own cgroup: found, and emptied when the run is over."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from run_in_systemd.plan import HarnessError

__all__ = ["end_cgroup", "own_cgroup"]


def own_cgroup() -> str:
    """Return the directory of this process's cgroup in the v2 hierarchy, pure or part of a hybrid."""
    mount = _cgroup2_mount()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::") and not line.startswith("0::/.."):
            here = mount + line[3:].strip().rstrip("/")
            if Path(here).is_dir():
                return here
    raise HarnessError("this process is not in the cgroup2 hierarchy that is mounted")


def _cgroup2_mount() -> str:
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] == "cgroup2":
            mounts.append(left.split()[4])
    if not mounts:
        raise HarnessError("no cgroup2 file system is mounted")
    return "/sys/fs/cgroup" if "/sys/fs/cgroup" in mounts else mounts[0]


def end_cgroup(path: str, limit_s: float = 5.0) -> None:
    """Kill what is left in the cgroup and remove it with those below it.

    Raises:
        HarnessError: it was not empty within the limit.
    """
    until = time.monotonic() + limit_s
    while Path(path).is_dir():
        _kill_all(path)
        for directory, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):  # busy until the killed processes are gone
                os.rmdir(directory)
        if not Path(path).is_dir():
            return
        if time.monotonic() > until:
            raise HarnessError(f"could not remove the cgroup {path}")
        time.sleep(0.02)


def _kill_all(path: str) -> None:
    try:
        Path(path, "cgroup.kill").write_text("1")  # Linux 5.14
        return
    except OSError:
        pids = [p for d, _, _ in os.walk(path) for p in _processes(d)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _processes(directory: str) -> list[int]:
    try:
        return [int(pid) for pid in Path(directory, "cgroup.procs").read_text().split()]
    except OSError:
        return []  # the cgroup went away
