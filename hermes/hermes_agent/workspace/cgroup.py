"""A control group for each command: limits of memory and of processes for all that it starts.

For an agent that may make groups below its own: root where no systemd answers, a service with `Delegate=yes`, a
container with groups of its own. The second version of control groups and the first one are used as they are mounted.

The limits are set on a group, and the command enters a second one inside of it. A command that mounts the control
groups in namespaces of its own has that second one as its root, and cannot change the limits.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_agent.io.processtree import SCOPE

__all__ = ["Cgroup"]

logger = logging.getLogger(__name__)

INNER = "c"
LEAF = "agent"
"""Where the agent itself goes in a group that was delegated to it: one that has limited children has no processes."""
ABANDONED_S = 60.0
"""Age from which an empty group is one that a former command left."""
OF_SWAP = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""Not every kernel counts swap."""
EVENTS = {
    ("memory.events", "oom_kill"): "memory",
    ("memory.oom_control", "oom_kill"): "memory",
    ("pids.events", "max"): "pids",
}
"""Where the kernel counts that a limit was reached, in either version of control groups."""
ENDING_S = 0.2
"""How long the last processes of a command may take to leave its group."""
ENTER = 'for g; do shift; test "$g" = -- && break; echo $$ >"$g/cgroup.procs" || exit 125; done; exec "$@"'


class _Place(NamedTuple):
    """A directory in which groups are made, and what is written into each: values by file."""

    base: Path
    limits: dict[str, int]


class Cgroup:
    """Args: `memory_mb`, `processes` are what a command may take, 0 is no limit; `proc`: this process in `/proc`."""

    def __init__(self, *, memory_mb: int = 0, processes: int = 0, proc: Path = Path("/proc/self")) -> None:
        self._memory, self._processes, self._proc = memory_mb << 20, processes, proc
        self._places: list[_Place] = []
        self._problem: str | None = None
        self._lock = threading.Lock()

    @property
    def problem(self) -> str:
        """Why no group can be made here, empty when one can: tried out once."""
        with self._lock:
            if self._problem is None:
                self._problem = self._try_out()
            return self._problem

    def wrap(self, argv: Sequence[str]) -> tuple[list[str], list[Path]]:
        """Return a program that runs `argv` in a new group, and what `remove` takes when it has ended.

        Raises:
            OSError: the group cannot be made.
        """
        self._prune()
        made: list[Path] = []
        name = f"{SCOPE}{secrets.token_hex(8)}"
        try:
            for place in self._places:
                made.append(place.base / name)
                _make(made[-1], place.limits)
        except OSError:
            self.remove(made)
            raise
        inner = [str(group / INNER) for group in made]
        return ["/bin/sh", "-c", ENTER, "sh", *inner, "--", *argv], made

    def reached(self, groups: Sequence[Path]) -> set[str]:
        """Return the limits that a command came up against: `memory`, `pids`."""
        found = set()
        for path in [path for group in groups for path in (group, group / INNER)]:
            for (name, key), limit in EVENTS.items():
                with contextlib.suppress(OSError, ValueError):
                    counts = dict(line.split() for line in (path / name).read_text().splitlines())
                    found |= {limit} if int(counts.get(key, 0)) else set()
        return found

    def remove(self, groups: Sequence[Path], *, wait_s: float = ENDING_S) -> None:
        """Remove the groups of a command that has ended; one that is in use stays until a later command."""
        limit = time.monotonic() + wait_s
        for path in [path for group in groups for path in (group / INNER, group)]:
            while _is_used(path) and time.monotonic() < limit:
                time.sleep(0.005)

    def _prune(self) -> None:
        """Remove groups that background processes and former agents left."""
        for place in self._places:
            for group in place.base.glob(f"{SCOPE}*"):
                with contextlib.suppress(OSError):
                    if time.time() - group.stat().st_ctime > ABANDONED_S:
                        self.remove([group], wait_s=0)  # the kernel refuses it while there is a process in it

    def _try_out(self) -> str:
        try:
            self._places = list(self._found())
            _, made = self.wrap(["true"])
            self.remove(made)
        except OSError as exc:
            return f"no control group can be made: {exc.strerror or exc} ({exc.filename})"
        return "" if self._places else "no control groups are mounted"

    def _found(self) -> Iterator[_Place]:
        """Yield where groups are made for the limits that are wanted."""
        own = _own_groups(self._proc)
        limits = {"memory": self._memory, "pids": self._processes}
        wanted = [name for name, most in limits.items() if most]
        second = [name for name in wanted if name not in own]
        for name in wanted:
            if name in own:
                files = ("memory.limit_in_bytes", OF_SWAP[0]) if name == "memory" else ("pids.max",)
                yield _Place(own[name], dict.fromkeys(files, limits[name]))
        if second:
            values = {f"{name}.max": limits[name] for name in second}
            yield _Place(_limiting(own, second), values | ({OF_SWAP[1]: 0} if "memory" in second else {}))


def _is_used(group: Path) -> bool:
    """Remove a group; say whether there are processes in it, which keep it."""
    try:
        group.rmdir()
    except OSError as exc:
        return exc.errno == errno.EBUSY
    return False


def _make(group: Path, limits: dict[str, int]) -> None:
    group.mkdir(exist_ok=True)  # two controllers of the first version may be mounted together
    for file, value in limits.items():
        if file not in OF_SWAP or (group / file).exists():
            (group / file).write_text(str(value))
    (group / INNER).mkdir(exist_ok=True)


def _own_groups(proc: Path) -> dict[str, Path]:
    """Return this process's group by controller; under the empty name that of the second version."""
    mounts: dict[str, tuple[str, Path]] = {}
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            mounts[""] = (root, Path(place))
        elif kind == "cgroup":
            mounts |= {name: (root, Path(place)) for name in options.split(",")}
    found: dict[str, Path] = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in mounts:
                top, mounted = mounts[name]
                found[name] = mounted / os.path.relpath(path, top)
    return found


def _limiting(own: dict[str, Path], controllers: Sequence[str]) -> Path:
    """Return the group of the second version whose children can have limits; the agent leaves it for a child.

    Raises:
        OSError: there is none, it was not delegated to the agent, or others are in it that cannot be moved.
    """
    if "" not in own:
        raise OSError(2, f"no control group of {' and '.join(controllers)} is mounted", "/sys/fs/cgroup")
    group = own[""].parent if own[""].name == LEAF else own[""]
    if (group / "cgroup.type").exists():  # the machine's own root has none, and may have processes and limited children
        if not _is_delegated(group):
            raise OSError(1, "it is not delegated to the agent", str(group))
        leaf = group / LEAF
        leaf.mkdir(exist_ok=True)
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (leaf / "cgroup.procs").write_text(pid)
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    return group


def _is_delegated(group: Path) -> bool:
    """Say whether the group is the agent's to divide: a service with `Delegate=yes`, or all that a container has."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return not (group.parent / "cgroup.procs").exists()
