"""Limits of memory and processes for commands: systemd scopes, control groups, resource limits.

`CommandLimits` uses the first that works: a systemd scope, then a control group, both for all processes of a command
together, then the limits of the kernel for each process.

A scope comes from the manager of the system for root, else from that of the user. The command stays a child of the
agent. A process that leaves its session and clears its environment is still in the scope, where
`system.process_tree` finds it. A manager without a controller accepts limits that do not hold; `is_effective` checks
them in the scope.

A control group needs an agent that may make groups below its own: root without systemd, a service with
`Delegate=yes`, a container with its own groups. Both versions of control groups work. The limits are on a group, and
the command enters a second one inside it: a command that mounts control groups sees only the inner one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.system.process_tree import SCOPE
from hermes_agent.workspace.sandbox.sandbox import Probed, run_probe

INNER = "c"
LEAF = "agent"
"""Child group for the agent itself: a group with limited children must have no processes."""
OF_SWAP = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""Files that not every kernel has, because it does not count swap."""
EVENTS = {
    ("memory.events", "oom_kill"): "memory",
    ("memory.oom_control", "oom_kill"): "memory",
    ("pids.events", "max"): "pids",
}
"""Counters of reached limits by file and key, in both versions of control groups."""
ENDING_S = 0.2
"""Seconds that the last processes of a command may take to leave its group."""
ENTER = 'for g; do shift; test "$g" = -- && break; echo $$ >"$g/cgroup.procs" || exit 125; done; exec "$@"'


class _Place(LazyNamedTuple):
    """A directory in which groups are made, and the values by file for each group."""

    base: Path
    limits: dict[str, int]


class Cgroup(Probed):
    """Control groups with limits for commands.

    Args:
        memory_mb: memory of a command; 0 for no limit.
        processes: processes of a command; 0 for no limit.
        proc: the directory of this process in `/proc`.
    """

    def __init__(self, *, memory_mb: int = 0, processes: int = 0, proc: Path = Path("/proc/self")) -> None:
        self._memory, self._processes, self._proc = memory_mb << 20, processes, proc
        super().__init__()
        self._places: list[_Place] = []
        self.abandoned_s = 60.0
        """Age of a group from which it is removed when it has no process."""

    def wrap(self, argv: Sequence[str]) -> tuple[list[str], list[Path]]:
        """Return a program that runs `argv` in a new group, and the groups to `remove` after its end.

        Raises:
            OSError: the group cannot be made.
        """
        self._prune()
        groups: list[Path] = []
        name = f"{SCOPE}{secrets.token_hex(8)}"
        try:
            for place in self._places:
                groups.append(place.base / name)
                _make(groups[-1], place.limits)
        except OSError:
            self.remove(groups)
            raise
        inner = [str(group / INNER) for group in groups]
        return ["/bin/sh", "-c", ENTER, "sh", *inner, "--", *argv], groups

    def reached(self, groups: Sequence[Path]) -> set[str]:
        """Return the limits that a command reached: `memory`, `pids`."""
        found = set()
        for path in [path for group in groups for path in (group, group / INNER)]:
            for (name, key), limit in EVENTS.items():
                with contextlib.suppress(OSError, ValueError):
                    counts = dict(line.split() for line in (path / name).read_text().splitlines())
                    found |= {limit} if int(counts.get(key, 0)) else set()
        return found

    def remove(self, groups: Sequence[Path], *, wait_s: float = ENDING_S) -> None:
        """Remove the groups of an ended command; one that is still used stays for a later call."""
        limit = time.monotonic() + wait_s
        for path in [path for group in groups for path in (group / INNER, group)]:
            while _is_used(path) and time.monotonic() < limit:
                time.sleep(0.005)

    def _prune(self) -> None:
        """Remove groups that background processes and earlier agents left."""
        for place in self._places:
            for group in place.base.glob(f"{SCOPE}*"):
                with contextlib.suppress(OSError):
                    if time.time() - group.stat().st_ctime > self.abandoned_s:
                        self.remove([group], wait_s=0)  # the kernel refuses it for a group with processes

    def probe(self) -> str:
        try:
            self._places = list(self._found())
            _, groups = self.wrap(["true"])
            self.remove(groups)
        except OSError as exc:
            return f"no control group can be made: {exc.strerror or exc} ({exc.filename})"
        return "" if self._places else "no control groups are mounted"

    def _found(self) -> Iterator[_Place]:
        """Yield the directories in which groups are made for the limits."""
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
    """Remove a group; return whether processes in it prevent that."""
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
    """Return the groups of this process by controller; that of the second version has an empty name."""
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
    """Return the group of the second version that may have limited children; the agent moves to a child.

    Raises:
        OSError: there is no such group, it is not delegated to the agent, or has processes that cannot be moved.
    """
    if "" not in own:
        raise OSError(2, f"no control group of {' and '.join(controllers)} is mounted", "/sys/fs/cgroup")
    group = own[""].parent if own[""].name == LEAF else own[""]
    if (group / "cgroup.type").exists():  # not so in the root group, which may have processes and limited children
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
    """Return whether a group is delegated to the agent (`Delegate=yes`), or the root of a container."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return not (group.parent / "cgroup.procs").exists()


RUNTIME = "XDG_RUNTIME_DIR"
LOOK = """while IFS=: read -r _ kind path; do for at in "$kind" unified; do
for file in memory.max memory.limit_in_bytes pids.max; do cat "/sys/fs/cgroup/$at$path/$file"; done
done; done </proc/self/cgroup 2>/dev/null; exit 0"""
"""Shell code that prints the limits of its group, in either version of control groups."""


class SystemdScope(Probed):
    """Systemd scopes with limits for commands.

    Args:
        environ: the environment of the agent, which names the runtime directory of the manager.
        memory_mb: memory of a command; 0 for no limit.
        processes: processes of a command; 0 for no limit.
        run: the directory of the machine's manager, that of users is in `environ`.
    """

    def __init__(
        self, environ: Mapping[str, str], *, memory_mb: int = 0, processes: int = 0, run: Path = Path("/run")
    ) -> None:
        runtime = environ.get(RUNTIME, "")
        self._system = os.geteuid() == 0
        self._socket = (run if self._system else Path(runtime or "/nonexistent")) / "systemd/private"
        self._env = {} if self._system else {RUNTIME: runtime}
        self._path = environ.get("PATH", os.defpath)
        self._wanted = {str(value) for value in (memory_mb << 20, processes) if value}
        self._held: set[str] = set()
        self._limits = [f"--property=MemoryMax={memory_mb}M", "--property=MemorySwapMax=0"] if memory_mb else []
        self._limits += [f"--property=TasksMax={processes}"] if processes else []
        super().__init__()

    @property
    def is_effective(self) -> bool:
        """Whether scopes work, and the kernel enforces their limits."""
        return not self.problem and self._wanted <= self._held

    @property
    def missing_reason(self) -> str:
        """Why `is_effective` is False."""
        return self.problem or "systemd's scopes have no controller of memory or processes here"

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return program and environment that run `argv` in a scope; unchanged if scopes do not work."""
        if self.problem:
            return list(argv), dict(env)
        # only systemd-run needs the address of the manager
        hidden = [name for name in self._env if name not in env]
        words = [*argv] if not hidden else ["env", *(f"--unset={name}" for name in hidden), *argv]
        return [*self._words(), *words], {**env, **self._env}

    def _words(self) -> list[str]:
        # without a description the journal would contain the command
        name = f"{SCOPE}{secrets.token_hex(8)}"
        about = ["--scope", "--quiet", "--collect", f"--unit={name}", "--description=a command of hermes-agent"]
        return [self._program(), "--system" if self._system else "--user", *about, *self._limits, "--"]

    def _program(self) -> str:
        return shutil.which("systemd-run", path=self._path) or ""

    def probe(self) -> str:
        if not self._socket.exists():
            return f"no systemd listens at {self._socket}"
        if not self._program():
            return "there is no systemd-run"
        words = [*self._words(), "sh", "-c", LOOK]
        try:
            done = run_probe(words, {"PATH": self._path, **self._env}, self.probe_limit_s)
        except OSError as exc:
            return f"{words[0]} does not run: {exc}"
        self._held = set(done.stdout.decode().split())
        message = done.stderr.decode("utf-8", "replace").strip()
        return "" if done.returncode == 0 else f"{words[0]} says: {message or f'exit status {done.returncode}'}"


COUNTED_IN_NAMESPACES = (5, 14)
"""First kernel in which `RLIMIT_NPROC` counts the processes of a user namespace separately."""


@lazy_dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Most memory and processes; 0 for no limit."""

    memory_mb: int = 0
    processes: int = 0

    def prelude(self) -> str:
        """Return the shell lines that set the limits for each process: `RLIMIT_AS` and `RLIMIT_NPROC`."""
        lines = [f"ulimit -v {self.memory_mb * 1024}"] if self.memory_mb else []
        lines += [_processes(self.processes)] if self.processes else []
        return _lines(lines)


UNLIMITED = ProcessLimits()


class LimitedCommand(LazyNamedTuple):
    """A program that runs another one within limits."""

    argv: list[str]
    env: dict[str, str]
    finish: Callable[[], tuple[str, ...]]
    """Releases the limits after the end of the program; returns those that it reached, as far as known."""


class CommandLimits:
    """The limits of commands in the sandbox.

    Args:
        environ: the environment of the agent, as of `SystemdScope`.
        limits: the limits.
        run: as of `SystemdScope`.
        proc: as of `Cgroup`.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        limits: ProcessLimits,
        *,
        run: Path = Path("/run"),
        proc: Path = Path("/proc/self"),
    ) -> None:
        self.limits = limits
        self._scope = SystemdScope(environ, memory_mb=limits.memory_mb, processes=limits.processes, run=run)
        self._cgroup = Cgroup(memory_mb=limits.memory_mb, processes=limits.processes, proc=proc)

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the program that runs `argv` in the sandbox, with limits per process if no others work.

        Memory counts as `ulimit -d`, because many programs reserve more addresses than they use.
        """
        if self._scope.is_effective or not self._cgroup.problem:
            return list(argv)
        lines = [f"ulimit -d {self.limits.memory_mb * 1024}"] if self.limits.memory_mb else []
        lines += [_processes(self.limits.processes)] if self.limits.processes and not self._unlimited_reason() else []
        return ["/bin/sh", "-c", f'{_lines(lines)}exec "$@"', "sh", *argv] if lines else list(argv)

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> LimitedCommand:
        """Return the program that runs `argv`, if possible with limits for all its processes together.

        Raises:
            OSError: the control group cannot be made.
        """
        if self._scope.is_effective:
            return LimitedCommand(*self._scope.wrap(argv, env), _nothing)
        if self._cgroup.problem:
            return LimitedCommand(list(argv), dict(env), _nothing)
        wrapped, groups = self._cgroup.wrap(argv)
        return LimitedCommand(wrapped, dict(env), lambda: self._finish(groups))

    def _finish(self, groups: Sequence[Path]) -> tuple[str, ...]:
        reached = self._cgroup.reached(groups)
        self._cgroup.remove(groups)
        settings = {
            "memory": f"{self.limits.memory_mb} MiB of memory (terminal.sandbox_memory_mb)",
            "pids": f"{self.limits.processes} processes (terminal.sandbox_processes)",
        }
        return tuple(text for name, text in settings.items() if name in reached)

    def check(self) -> tuple[bool, str, str]:
        """Return the row for `hermes doctor`: whether the limits hold, a label, and the mechanism."""
        label = "limits of the sandbox"
        memory, processes = f"{self.limits.memory_mb} MiB of memory", f"{self.limits.processes} processes"
        both = " and ".join([memory] * bool(self.limits.memory_mb) + [processes] * bool(self.limits.processes))
        if not both:
            return True, label, "none (terminal.sandbox_memory_mb and terminal.sandbox_processes are 0)"
        if self._scope.is_effective:
            return True, label, f"{both} of a command, by a scope of systemd"
        if not self._cgroup.problem:
            return True, label, f"{both} of a command, by a control group"
        why = f"{self._scope.missing_reason}; {self._cgroup.problem}"
        if self.limits.processes and (unheld := self._unlimited_reason()):
            return False, "processes of the sandbox are not limited", f"{unheld}; {memory} of each process only; {why}"
        return True, label, f"{memory} of each process and {processes} of a command, by resource limits ({why})"

    def _unlimited_reason(self) -> str:
        """Return why the kernel does not limit the processes of the sandbox; empty when it does."""
        if os.geteuid() == 0:
            return "the kernel does not hold root to RLIMIT_NPROC"
        release = os.uname().release
        numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
        return "" if numbers >= COUNTED_IN_NAMESPACES else f"Linux {release} counts all processes of the user together"


def _processes(most: int) -> str:
    # dash calls the option -p; a lower hard limit stays
    return f"ulimit -u {most} 2>/dev/null || ulimit -p {most}"


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{{ {line}; }} 2>/dev/null; " for line in lines)


def _nothing() -> tuple[str, ...]:
    return ()
