"""The processes between the test and systemd.

`launch` runs in the test's namespaces: it ties itself to the test process, enters the run's cgroup and becomes
unshare(1). `become_init` is the first process in the new namespaces: it builds the root, enters it and becomes systemd.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

from run_in_systemd.plan import INSIDE, NAME, PATH, HarnessError, Plan
from run_in_systemd.root import make_root
from run_in_systemd.shell import bind, inside_path, sh, write

__all__ = ["FAILED", "become_init", "launch"]

FAILED = 125
DROPPED_CAPABILITIES = {
    "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PACCT": 20, "SYS_TIME": 25,
    "AUDIT_CONTROL": 30, "MAC_OVERRIDE": 32, "MAC_ADMIN": 33, "SYSLOG": 34,
    "WAKE_ALARM": 35, "BLOCK_SUSPEND": 36, "AUDIT_READ": 37, "PERFMON": 38,
}  # fmt: skip
"""Taken from the container for good; the numbers are kernel ABI. NET_ADMIN stays: systemd brings up the loopback."""
PR_SET_PDEATHSIG, PR_CAPBSET_DROP = 1, 24
MNT_DETACH, MS_REC, MS_SHARED = 2, 1 << 14, 1 << 20
MOUNTS = (
    ("proc", "/proc", "nosuid,nodev,noexec"),
    ("sysfs", "/sys", "ro,nosuid,nodev,noexec"),
    ("cgroup2", "/sys/fs/cgroup", "rw,nosuid,nodev,noexec"),
    ("tmpfs", "/dev", "nosuid,mode=0755,size=4m"),
    ("devpts", "/dev/pts", "newinstance,nosuid,noexec,ptmxmode=0666,mode=0620,gid=5"),
    ("tmpfs", "/dev/shm", "nosuid,nodev,mode=1777"),
    ("mqueue", "/dev/mqueue", "nosuid,nodev,noexec"),
    ("tmpfs", "/run", "nosuid,nodev,mode=0755"),
    ("tmpfs", "/tmp", "nosuid,nodev,mode=1777"),
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
    "ptmx": "pts/ptmx",
}


def launch(plan_file: str) -> None:
    """Become unshare(1), whose child is `become_init`; all of it ends with the test process."""
    plan = Plan.from_json(Path(plan_file).read_text())
    _libc().prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != plan.parent:
        os._exit(FAILED)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Entered before the cgroup namespace is made, so that this cgroup is the namespace's root.
    Path(plan.cgroup, "cgroup.procs").write_text("0")
    package = str(Path(__file__).resolve().parent.parent)
    code = f"import sys; sys.path.insert(0, {package!r}); import run_in_systemd.inside as i; i.become_init(sys.argv[1])"
    # --kill-child: the first process of the pid namespace, and so all in it, goes with unshare.
    namespaces = ["--mount", "--propagation", "private", "--pid", "--cgroup", "--uts", "--ipc", "--net"]
    argv = ["unshare", *namespaces, "--fork", "--kill-child", "--", sys.executable, "-I", "-c", code, plan_file]
    os.execvp(argv[0], argv)


def become_init(plan_file: str) -> None:
    """Build the root, enter it and become systemd. What goes wrong is in the run's file `init.err`."""
    plan = Plan.from_json(Path(plan_file).read_text())
    with open(f"{plan.directory}/init.err", "w", buffering=1) as errors:
        try:
            _enter_root(plan, make_root(plan))
            for capability in DROPPED_CAPABILITIES.values():
                _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
            # Python ignores SIGPIPE and a program that it becomes would inherit that.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            argv = ["/lib/systemd/systemd", "--system", "--show-status=0", "--log-target=journal"]
            os.execve(argv[0], argv, {"PATH": PATH, "LANG": "C.UTF-8", "container": NAME})
        except (HarnessError, OSError, subprocess.SubprocessError) as exc:
            errors.write(f"{exc}\n")
            os._exit(FAILED)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _enter_root(plan: Plan, root: str) -> None:
    for kind, at, options in MOUNTS:
        os.makedirs(root + at, exist_ok=True)
        sh("mount", "-t", kind, "-o", options, kind, root + at)
    _make_devices(root)
    _protect_proc(root)
    write(f"{root}/run/host/container-manager", NAME + "\n")
    bind(f"{plan.directory}/io", root + INSIDE)
    bind(f"{plan.directory}/journal", f"{root}/run/log/journal")
    for each in plan.binds:
        bind(each.source, inside_path(root, each.target), read_only=each.read_only)
    for target, source in plan.files.items():
        at = inside_path(root, target)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        shutil.copy(source, at)
    _libc().sethostname(plan.hostname.encode(), len(plan.hostname))
    _pivot(root)


def _make_devices(root: str) -> None:
    for name in DEVICES:
        status = os.stat(f"/dev/{name}")
        os.mknod(f"{root}/dev/{name}", stat.S_IFCHR | 0o666, status.st_rdev)
        os.chmod(f"{root}/dev/{name}", 0o666)
    for name, target in LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    bind("/dev/null", f"{root}/dev/console")


def _protect_proc(root: str) -> None:
    for path in ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi"):
        if os.path.isdir(root + path):
            sh("mount", "--bind", root + path, root + path)
            sh("mount", "-o", "remount,bind,ro,nosuid,nodev,noexec", root + path)
    for path in ("/proc/sysrq-trigger", "/proc/kcore", "/proc/kmsg"):
        if os.path.exists(root + path):
            sh("mount", "--bind", "/dev/null", root + path)


def _pivot(root: str) -> None:
    os.chdir(root)
    os.makedirs(f"{root}/run/.old")
    sh("pivot_root", ".", "run/.old")
    os.chroot(".")
    os.chdir("/")
    if _libc().umount2(b"/run/.old", MNT_DETACH):
        raise HarnessError("cannot detach the old root")
    os.rmdir("/run/.old")
    # systemd leaves this to the container manager. Without it LoadCredential= gives an empty directory: credentials
    # reach a unit by mount propagation.
    if _libc().mount(None, b"/", None, MS_REC | MS_SHARED, None):
        raise HarnessError("cannot make / shared")
