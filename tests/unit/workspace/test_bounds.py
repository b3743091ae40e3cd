"""What a command of the sandbox may take: memory, processes and temporary space, by each way that there is."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.terminal_places import ENVIRON, Place, settings
from hermes_agent.workspace.backend_selection import LocalBackend
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.limits import INNER, SCOPE, Cgroup, CommandLimits, ProcessLimits
from hermes_agent.workspace.sandbox.sandbox import SandboxSelector
from waiting import until

FORKS = """
import os, signal, time
made = []
try:
    while len(made) < {most}:
        made.append(os.fork())
        if not made[-1]: time.sleep(60); os._exit(0)
except OSError as exc: print("refused:", exc.strerror, flush=True)
for pid in made: os.kill(pid, signal.SIGKILL)
for pid in made: os.waitpid(pid, 0)
print(len(made), flush=True)
"""
TAKES = (
    "import mmap; m = mmap.mmap(-1, {bytes}, mmap.{kind}); m[::4096] = b'x' * len(m[::4096]); print('taken', len(m))"
)
PARTS = """
import subprocess, sys
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
parts = []
for _ in range(6):
    parts.append(subprocess.Popen([sys.executable, "-u", "part.py"], **pipes))
    parts[-1].stdout.readline()  # it has taken its part, or ended
print(sum(part.poll() is None for part in parts), flush=True)
for part in parts: part.kill()
"""
"""Prints how many of six programs hold their part of memory at the same time."""
LIFT = """
import contextlib, ctypes, glob, os, sys
FLAGS = {"user": 0x10000000, "cgroup": 0x02000000}
libc = ctypes.CDLL(None)
if spaces := sys.argv[1:]: libc.unshare(sum(FLAGS[name] for name in spaces) | 0x20000)
os.makedirs("/tmp/g", exist_ok=True)
for kind, options in ((b"cgroup2", None), (b"cgroup", b"memory"), (b"cgroup", b"pids")):
    if libc.mount(b"none", b"/tmp/g", kind, 0, options): continue
    for name in ("memory.max", "memory.limit_in_bytes", "pids.max", "cgroup.procs"):
        for file in glob.glob(f"/tmp/g/**/{name}", recursive=True):
            for value in ("0",) if name == "cgroup.procs" else ("max", "-1"):
                with contextlib.suppress(OSError), open(file, "w") as place: place.write(value)
    libc.umount(b"/tmp/g")
exec(sys.stdin.read())
"""
"""Mounts the control groups in namespaces of its own, and lifts what it finds there."""
MIB = 1 << 20


def made(tmp_path: Path, limits: ProcessLimits, tmp_mb: int = 0) -> Place:
    box = BubblewrapSandbox(PathRules(str(tmp_path / "home"), str(tmp_path)), path=ENVIRON["PATH"], tmp_mb=tmp_mb)
    sandbox = SandboxSelector([box])
    if not sandbox.works:
        pytest.skip(f"no sandbox can be made here: {sandbox.problem}")
    work = tmp_path / "work"
    work.mkdir()
    return Place(LocalBackend(ENVIRON, sandbox=sandbox, bounds=CommandLimits(ENVIRON, limits)), str(work))


@pytest.fixture
def held(tmp_path: Path) -> Place:
    """A sandbox of 200 MiB, 40 processes and 32 MiB of temporary space, held by a scope or a control group."""
    place = made(tmp_path, ProcessLimits(200, 40), 32)
    holds, label, how = place.backend.bounds.check()  # type: ignore[attr-defined]
    if "of a command, by a" not in how:
        pytest.skip(f"{label}: {how}")
    assert holds
    return place


def ends_whole(place: Place) -> bool:
    """Say whether a command ends as a whole when one process of it has reached the memory: systemd stops its scope."""
    return bool(place.backend.bounds._scope.is_effective)  # type: ignore[attr-defined]


def groups() -> list[str]:
    """Return the groups of commands that there are."""
    return [str(path) for path in Path("/sys/fs/cgroup").rglob(f"{SCOPE}*")]


def forked(place: Place, most: int) -> int:
    """Let a command start processes until it is refused one; return how many it got."""
    return number(place.say("exec python3 -", stdin=FORKS.format(most=most).encode()))


def number(said: str) -> int:
    """Return the number that a command said last; 0 when it said none."""
    return int((re.findall(r"^\d+$", said, re.MULTILINE) or ["0"])[-1])


# -- processes held together ----------------------------------------------------------------------------------------


@pytest.mark.attack("limits", at="bubblewrap")
def test_processes_of_a_command_are_counted_together(held: Place) -> None:
    assert 10 < forked(held, 300) < 40
    assert held.say("echo on") == "on\n"


@pytest.mark.attack("limits", at="bubblewrap")
def test_a_fork_bomb_takes_no_more_and_ends_with_its_time(held: Place) -> None:
    done = held(":(){ :|:& };: 2>/dev/null; sleep 30", timeout_s=2)
    assert done.timed_out
    assert held.say("echo on") == "on\n"


@pytest.mark.attack("limits", at="bubblewrap")
@pytest.mark.parametrize("kind", ["MAP_PRIVATE", "MAP_SHARED"])
def test_memory_of_one_process_is_limited(held: Place, kind: str) -> None:
    done = held("exec python3 -", stdin=TAKES.format(bytes=400 * MIB, kind=kind).encode())
    assert done.exit_code in ((137, 143) if ends_whole(held) else (137,)) and b"taken" not in done.output
    assert "taken" in held.say("exec python3 -", stdin=TAKES.format(bytes=100 * MIB, kind=kind).encode())


@pytest.mark.attack("limits", at="bubblewrap")
def test_memory_of_all_processes_together_is_limited(held: Place) -> None:
    part = TAKES.format(bytes=60 * MIB, kind="MAP_PRIVATE")
    Path(held.cwd, "part.py").write_text(part + "; input()")
    together = number(held.say("exec python3 -", stdin=PARTS.encode(), timeout_s=100))
    assert together < 6 and (together >= 1 or ends_whole(held))


@pytest.mark.attack("limits", at="bubblewrap")
def test_temporary_files_count_as_memory_and_have_a_size_each(held: Place, attempt: Callable[..., None]) -> None:
    for place in ("/tmp", "/var/tmp", "/run", "/dev/shm"):
        said = held.say(f"head -c 100M /dev/zero >{place}/big; stat -c %s {place}/big")
        attempt(number(said) <= 32 * MIB, f"{place}: {said}")
    attempt("not made" in held.say("echo x 2>/dev/null >/dev/big || echo not made"), "/dev itself")


@pytest.mark.attack("limits", at="bubblewrap")
def test_a_command_cannot_change_its_own_limits(held: Place, attempt: Callable[..., None]) -> None:
    few, much = FORKS.format(most=300), TAKES.format(bytes=400 * MIB, kind="MAP_PRIVATE")
    Path(held.cwd, "lift.py").write_text(LIFT)
    for spaces in ("", "user", "user cgroup"):
        said = held.say(f"exec python3 lift.py {spaces}", stdin=few.encode())
        attempt(number(said) < 40, f"{spaces}: processes: {said}")
        said = held.say(f"exec python3 lift.py {spaces}", stdin=much.encode())
        attempt("taken" not in said, f"{spaces}: memory: {said}")
    writable = held.say("find /sys/fs/cgroup -writable -name '*.max' 2>/dev/null | head")
    attempt(all("ok" not in held.say(f"echo max >{file} && echo ok") for file in writable.split()), "in place")


def test_a_command_that_reached_a_limit_is_told_which(held: Place) -> None:
    bounds = held.backend.bounds  # type: ignore[attr-defined]
    if bounds._scope.is_effective:
        pytest.skip("a scope is gone with its command, and what it counted")
    assert held("true").limits == ()
    done = held("exec python3 -", stdin=TAKES.format(bytes=400 * MIB, kind="MAP_PRIVATE").encode())
    assert done.limits == ("200 MiB of memory (terminal.sandbox_memory_mb)",)
    done = held("exec python3 -", stdin=FORKS.format(most=300).encode())
    assert done.limits == ("40 processes (terminal.sandbox_processes)",)


def test_an_operator_who_sets_zero_has_no_limit(tmp_path: Path) -> None:
    place = made(tmp_path, ProcessLimits(0, 0))
    assert place.say("exec python3 -", stdin=FORKS.format(most=60).encode()).split()[-1] == "60"
    assert place.backend.bounds.check()[2].startswith("none (")  # type: ignore[attr-defined]


def test_groups_are_gone_when_their_command_has_ended(held: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: list[str] = []
    token = secrets.token_hex
    monkeypatch.setattr(secrets, "token_hex", lambda size=None: tokens.append(token(size)) or tokens[-1])
    for command in ("true", "exit 3", "sleep 60 & exit 0"):
        held(command)
    held("sleep 60", timeout_s=0.2)
    assert len(tokens) >= 4
    until(lambda: not [group for group in groups() if group.endswith(tuple(tokens))])  # other processes have theirs


def test_a_group_that_a_former_agent_left_is_removed(held: Place) -> None:
    cgroup = held.backend.bounds._cgroup  # type: ignore[attr-defined]
    if cgroup.problem or held.backend.bounds._scope.is_effective:  # type: ignore[attr-defined]
        pytest.skip(f"control groups are not used here: {cgroup.problem}")
    _, left = cgroup.wrap(["true"])
    sleeping, used = cgroup.wrap(["sleep", "60"])
    process = subprocess.Popen(sleeping)
    until(lambda: bool((used[0] / INNER / "cgroup.procs").read_text()))
    cgroup.abandoned_s = 0.0
    until(lambda: left[0].stat().st_mtime < time.time())
    held("true")
    assert not left[0].exists() and used[0].exists(), "one with a process stays"
    process.kill()
    process.wait()
    cgroup.remove(used)


# -- the defaults, through the tool ---------------------------------------------------------------------------------


@pytest.mark.attack("limits", at="bubblewrap")
def test_three_gigabytes_and_300_processes_do_not_go_through_by_default(boxed, attempt: Callable[..., None]) -> None:
    backend = boxed.registry.get("terminal").handler.loaded.shells.backend
    holds, label, how = backend.bounds.check()
    if not holds:
        pytest.skip(f"{label}: {how}")
    assert settings()["sandbox_memory_mb"] == 2048 and settings()["sandbox_processes"] == 256
    (boxed.cwd / "many.py").write_text(FORKS.format(most=300))
    populate = 0x8000  # the kernel takes the pages at once
    (boxed.cwd / "much.py").write_text(TAKES.format(bytes=3 << 30, kind=f"MAP_PRIVATE | {populate}"))
    many = boxed.call("terminal", command="python3 many.py")
    attempt(0 < number(many["output"]) < 300, "300 processes")
    if "by a control group" in how:
        assert many["note"] == "the command reached its limit of 256 processes (terminal.sandbox_processes)"
    attempt("taken" not in boxed.call("terminal", command="python3 much.py")["output"], "3 GB of memory")
    said = boxed.call("terminal", command="head -c 1500M /dev/zero >/tmp/big; stat -c %s /tmp/big")["output"]
    attempt(number(said) <= 1 << 30, "1.5 GB in /tmp")
    assert boxed.person.asked == []


def test_in_the_background_they_hold_too(held: Place, tmp_path: Path) -> None:
    from hermes_agent.contracts.terminal_env import BackendCommand
    from hermes_agent.workspace.background_processes import BackgroundProcesses

    processes = BackgroundProcesses(tmp_path / "processes")
    Path(held.cwd, "many.py").write_text(FORKS.format(most=300))
    command = "exec python3 many.py"
    start = held.backend.start(command, BackendCommand(command, held.cwd, 30, "task", root=held.cwd))
    process = processes.start(start, command=command, cwd=held.cwd, backend="local", task_id="task", session_id="")
    limit = time.monotonic() + 20
    while b"\n" not in (said := processes.output(process)[0]) and time.monotonic() < limit:
        time.sleep(0.05)
    processes.kill(process)
    assert said.startswith(b"refused")


# -- the last way: limits of each process ---------------------------------------------------------------------------


AS_A_USER = """
import sys
sys.path[:0] = sys.argv[2].split(":")
from unit.workspace.test_bounds import *
place = made(Path(sys.argv[1]), ProcessLimits(200, 40), 32)
print(place.backend.bounds.check())
print(forked(place, 300))
print(place("exec python3 -", stdin=TAKES.format(bytes=400 * MIB, kind="MAP_PRIVATE").encode()).output)
print(place.say("exec python3 -", stdin=TAKES.format(bytes=100 * MIB, kind="MAP_PRIVATE").encode()))
"""


def opened(words: list[str], stage: Path) -> list[str]:
    """Return a command that runs `words` where every user reaches the interpreter and the sources.

    If they are below a directory that others may not enter, such as `/root`, the command has a mount namespace in
    which that directory contains them alone.
    """
    found = {place for name in (*sys.path, sys.prefix, sys.base_prefix) if Path(name).is_dir() and name
             for place in (Path(name), Path(name).resolve())}  # fmt: skip
    trees = {
        tree: top
        for tree in sorted(found - {below for below in found if found & set(below.parents)})
        for top in [up for up in reversed(tree.parents) if not up.stat().st_mode & 0o1][:1]
    }
    if not trees:
        return words
    quoted = {shlex.quote(str(tree)): shlex.quote(str(stage / str(number))) for number, tree in enumerate(trees)}
    lines = ["umask 022", *(f"mkdir -p {to}; mount --rbind {tree} {to}" for tree, to in quoted.items())]
    lines += [f"mount -t tmpfs -o mode=755 none {shlex.quote(str(top))}" for top in sorted(set(trees.values()))]
    lines += [f"mkdir -p {tree}; mount --rbind {to} {tree}" for tree, to in quoted.items()]
    return ["unshare", "--mount", "sh", "-ec", "\n".join([*lines, 'exec "$@"']), "sh", *words]


@pytest.mark.attack("limits", at="bubblewrap")
def test_a_user_without_systemd_and_control_groups_has_limits_of_each_process(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv, to become a user who may make no control group")
    tmp_path.chmod(0o777)
    for parent in list(tmp_path.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o5)
    user = str(100_000 + os.getpid())  # one of this run: the kernel counts the processes of a user
    words = [
        "setpriv",
        "--reuid",
        user,
        "--regid",
        user,
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ]
    words += [sys.executable, "-c", AS_A_USER, str(tmp_path), ":".join(p for p in sys.path if p)]
    done = subprocess.run(
        opened(words, tmp_path / "trees"), cwd=tmp_path, timeout=60,
        capture_output=True, text=True, env={"PATH": ENVIRON["PATH"], "HOME": str(tmp_path)},
    )  # fmt: skip
    if "no sandbox can be made" in done.stderr or done.stderr.startswith("unshare: "):
        pytest.skip(f"users can make no sandbox here: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr
    check, many, much, fits = done.stdout.strip().split("\n")[:4]
    assert "200 MiB of memory of each process and 40 processes of a command, by resource limits (" in check, done.stderr
    assert 10 < int(many) < 40
    assert "MemoryError" in much or "Cannot allocate" in much
    assert "taken" in fits


def limits_of_a_machine_without_both(tmp_path: Path) -> CommandLimits:
    """Return the limits where neither systemd runs nor control groups are mounted."""
    for name in ("mountinfo", "cgroup"):
        (tmp_path / name).touch()
    return CommandLimits(
        {**ENVIRON, "XDG_RUNTIME_DIR": str(tmp_path)}, ProcessLimits(200, 40), run=tmp_path, proc=tmp_path
    )


def test_root_without_both_is_told_that_processes_are_not_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    bounds = limits_of_a_machine_without_both(tmp_path)
    holds, label, how = bounds.check()
    assert (holds, label) == (False, "processes of the sandbox are not limited")
    assert "root" in how and "no control group of memory and pids is mounted" in how
    assert "ulimit -d 204800" in bounds.inside(["true"])[2] and "ulimit -u" not in bounds.inside(["true"])[2]


def test_an_old_kernel_counts_a_users_processes_together_and_is_given_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Old:
        release = "5.10.0-28-amd64"

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "uname", Old)
    bounds = limits_of_a_machine_without_both(tmp_path)
    assert "Linux 5.10.0-28-amd64 counts all processes of the user together" in bounds.check()[2]
    assert "ulimit -u" not in bounds.inside(["true"])[2]


# -- control groups of the second version, with a directory in their place ------------------------------------------


def second_version(tmp_path: Path, own: str) -> tuple[Path, Path]:
    """Return a stand-in of `/proc/self`, and one of the mounted control groups, whose own group is `own`."""
    proc, mounted = tmp_path / "proc", tmp_path / "groups"
    proc.mkdir()
    (mounted / own).mkdir(parents=True)
    (proc / "mountinfo").write_text(f"31 23 0:28 / {mounted} rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n")
    (proc / "cgroup").write_text(f"0::/{own}\n")
    return proc, mounted


def only(base: Path) -> Path:
    """Return the one group of a command below `base`; files of a stand-in keep it from being removed."""
    (group,) = base.glob(f"{SCOPE}*")
    return group


def test_second_version_at_the_machines_root(tmp_path: Path) -> None:
    proc, mounted = second_version(tmp_path, "")
    assert Cgroup(memory_mb=200, processes=40, proc=proc).problem == ""
    assert (mounted / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (only(mounted) / "memory.max").read_text() == str(200 * MIB)
    assert (only(mounted) / "pids.max").read_text() == "40"
    assert not (only(mounted) / "memory.swap.max").exists(), "only where the kernel counts swap"


@pytest.mark.parametrize("own", ["service", "service/agent"])
def test_second_version_in_a_delegated_group_which_the_agent_leaves_for_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    proc, mounted = second_version(tmp_path, own)
    group = mounted / "service"
    (mounted / "cgroup.procs").write_text("")
    (group / "cgroup.type").write_text("domain\n")
    (group / "cgroup.procs").write_text("4711\n")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1" if Path(path) == group else b"0")
    assert Cgroup(memory_mb=200, proc=proc).problem == ""
    assert (group / "agent" / "cgroup.procs").read_text() == "4711"
    assert (group / "cgroup.subtree_control").read_text() == "+memory"
    assert (only(group) / "memory.max").read_text() == str(200 * MIB)


def test_second_version_in_a_group_that_is_not_the_agents_is_left_alone(tmp_path: Path) -> None:
    proc, mounted = second_version(tmp_path, "session")
    (mounted / "cgroup.procs").write_text("")
    (mounted / "session" / "cgroup.type").write_text("domain\n")
    problem = Cgroup(memory_mb=200, processes=40, proc=proc).problem
    assert problem == f"no control group can be made: it is not delegated to the agent ({mounted}/session)"
    assert [path.name for path in (mounted / "session").iterdir()] == ["cgroup.type"]
