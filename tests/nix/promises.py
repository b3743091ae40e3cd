"""What the units promise, one probe for each: a program that ends with 0 where the promise holds.

Each runs in the unit that the module rendered, with `around` changed so that no other directive keeps the promise as well,
and once more without the directives of `kept_by`, where it has to fail.
"""

# ruff: noqa: E501 - a table is read by its columns

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["PRELUDE", "PROMISES", "SAMPLE", "Promise", "variant"]

Changes = dict[str, str | None]
"""Directive to its value; None removes it. Several values stand on lines of their own."""

PRELUDE = """
import ctypes, errno, grp, mmap, os, resource, signal, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
facts = dict(line.split("=", 1) for line in open("/srv/probes/facts").read().splitlines())

def cannot(do):
    try:
        do()
    except OSError:
        return
    sys.exit("it could")

def hidden(path):
    if os.path.exists(path):
        sys.exit(f"{path} is there")

def denied(number, *arguments):
    # Arguments that the kernel would not take: EPERM comes from the filter alone.
    if libc.syscall(number, *arguments) != -1 or ctypes.get_errno() != errno.EPERM:
        sys.exit(f"call {number} was not denied: errno {ctypes.get_errno()}")

def write(path):
    with open(path, "w") as file:
        file.write("x")

def holds(condition):
    if not condition:
        sys.exit("no")
"""

_SECCOMP = (
    "SystemCallFilter", "SystemCallArchitectures", "RestrictAddressFamilies", "RestrictNamespaces", "PrivateDevices",
    "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectClock", "MemoryDenyWriteExecute",
    "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "ProtectHostname",
)  # fmt: skip
"""Each of them brings NoNewPrivileges with it."""
AS_ROOT: Changes = {"User": "root", "DynamicUser": None, "PrivateUsers": None, "StateDirectory": "NAME"}
ROOT: Changes = {**AS_ROOT, "CapabilityBoundingSet": None}
"""Where the user's own lack of rights would keep the promise."""
NO_FILTER: Changes = {"SystemCallFilter": None}


@dataclass(frozen=True)
class Promise:
    """One thing that a unit keeps from what runs in it, or gives to it."""

    unit: str
    """`agent`: the daemon; `strict`, `workspace`, `host`: a command, in that profile."""
    text: str
    code: str
    kept_by: Changes
    around: Changes = field(default_factory=dict)


def _promise(unit: str, text: str, code: str, kept_by: str | Changes, around: Changes | None = None) -> Promise:
    removed: Changes = {kept_by: None} if isinstance(kept_by, str) else kept_by
    return Promise(unit, text, code, removed, around or {})


UNSHARE, PERSONALITY, CHROOT, PTRACE, CLOCK, SCHEDULER, PERF = 272, 135, 161, 101, 227, 144, 298
"""Numbers of system calls of x86-64."""

_BOTH = [
    ("programs are read-only", 'cannot(lambda: write("/usr/probe"))', "ProtectSystem", ROOT),
    ("the configuration is read-only", 'cannot(lambda: write("/etc/probe"))', "ProtectSystem", ROOT),
    ("other state is read-only", 'cannot(lambda: write("/var/lib/probe"))', "ProtectSystem", ROOT),
    ("root would have no rights", 'cannot(lambda: open("/srv/probes/foreign"))', "CapabilityBoundingSet", AS_ROOT),
    ("homes are hidden", 'hidden("/home/someone/secret")', "ProtectHome", ROOT),
    ("root's home is hidden", 'hidden("/root/secret")', "ProtectHome", ROOT),
    ("temporary files are its own", 'hidden("/tmp/marker")', "PrivateTmp", {"DynamicUser": None, "User": "hermes"}),
    ("devices are hidden", 'hidden("/dev/probe")', "PrivateDevices", {}),
    ("a device that is there is closed", 'cannot(lambda: os.close(os.open("/dev/probe", os.O_WRONLY)))', {"DevicePolicy": None}, {**ROOT, "PrivateDevices": None, "ProtectKernelLogs": None, "ProtectClock": None}),
    ("users are its own", 'holds(open("/proc/self/uid_map").read().split()[2] != "4294967295")', "PrivateUsers", {}),
    ("shared memory is its own", 'holds(os.readlink("/proc/self/ns/ipc") != facts["ipc"])', "PrivateIPC", {}),
    ("the host's name is out of reach", 'holds(os.readlink("/proc/self/ns/uts") != facts["uts"])', "ProtectHostname", {}),
    ("control groups are read-only", 'holds(os.statvfs("/sys/fs/cgroup").f_flag & os.ST_RDONLY)', "ProtectControlGroups", {"ProtectKernelTunables": None}),
    ("the kernel's symbols are hidden", 'cannot(lambda: open("/proc/kallsyms"))', "ProtectKernelTunables", {"ProcSubset": None, "ProtectProc": None}),
    ("the kernel's log is closed", 'cannot(lambda: os.close(os.open("/dev/kmsg", os.O_WRONLY)))', "ProtectKernelLogs", {**ROOT, "PrivateDevices": None, "DevicePolicy": None, "ProtectClock": None}),
    ("kernel modules are hidden", 'cannot(lambda: os.listdir("/usr/lib/modules"))', "ProtectKernelModules", {}),
    ("the clock cannot be set", f"denied({CLOCK}, 0, 0)", "ProtectClock", NO_FILTER),
    ("other users' processes are hidden", 'hidden("/proc/1")', "ProtectProc", {}),
    ("the machine's state is hidden", 'hidden("/proc/meminfo")', "ProcSubset", {}),
    ("the network cannot be configured", "cannot(lambda: socket.socket(16, socket.SOCK_RAW))", "RestrictAddressFamilies", {}),
    ("packets cannot be forged", "cannot(lambda: socket.socket(17, socket.SOCK_RAW))", "RestrictAddressFamilies", ROOT),
    ("no namespaces can be made", f"denied({UNSHARE}, 0x10000000)", "RestrictNamespaces", {"PrivateUsers": None}),
    ("no process comes before all others", f"denied({SCHEDULER}, 0, 1, ctypes.byref(ctypes.c_int(0)))", "RestrictRealtime", NO_FILTER),
    ("it stays what it is", f"denied({PERSONALITY}, 8)", "LockPersonality", {}),
    ("calls of administrators are filtered", f"denied({CHROOT}, 0)", "SystemCallFilter", {}),
    ("processes cannot be traced", f"denied({PTRACE}, 0)", "SystemCallFilter", {}),
    ("the kernel cannot be measured", f"denied({PERF}, 0)", "SystemCallFilter", {}),
    ("a filtered call is an error, not the end", f"libc.syscall({PTRACE}, 0)", "SystemCallErrorNumber", {}),
]  # fmt: skip

_AGENT = [
    ("no file becomes setuid", 'os.chdir("/tmp"); write("s"); cannot(lambda: os.chmod("s", 0o4755))', "RestrictSUIDSGID", {}),
    ("no program gives more rights", "holds(libc.prctl(39, 0, 0, 0, 0) == 1)", "NoNewPrivileges", dict.fromkeys(_SECCOMP)),
    ("memory is written or run", "cannot(lambda: mmap.mmap(-1, 4096, prot=7))", "MemoryDenyWriteExecute", {}),
    ("memory that was written does not become code", "a = mmap.mmap(-1, 4096); denied(10, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(a))), 4096, 5)", "MemoryDenyWriteExecute", {}),
    ("nothing takes more than its part", "cannot(lambda: os.nice(1))", "SystemCallFilter", {}),
    ("what it writes is its own", 'write("probe-mask"); holds(stat.S_IMODE(os.stat("probe-mask").st_mode) == 0o600)', "UMask", {"WorkingDirectory": "/tmp"}),
    ("a secret is handed over", 'holds(open(os.environ["CREDENTIALS_DIRECTORY"] + "/env-0").read().strip() == "A=b")', "LoadCredential", {}),
    ("shared memory is no place to meet", 'hidden("/dev/shm/marker"); write("/dev/shm/probe")', "TemporaryFileSystem", {}),
    ("its state is writable", 'write("/var/lib/hermes/.hermes/probe")', "StateDirectory", {}),
    ("its state is nobody else's", 'holds(stat.S_IMODE(os.stat(os.environ["STATE_DIRECTORY"]).st_mode) == 0o750)', "StateDirectoryMode", {"StateDirectory": "NAME"}),
    ("there is a place for its sockets", 'write(os.environ["RUNTIME_DIRECTORY"] + "/probe")', "RuntimeDirectory", {}),
    ("its sockets are its group's", 'holds(stat.S_IMODE(os.stat(os.environ["RUNTIME_DIRECTORY"]).st_mode) == 0o750)', "RuntimeDirectoryMode", {}),
    ("the keys of a cloud are out of reach", 'cannot(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("169.254.169.254", 9)))', "IPAddressDeny", {}),
    ("it shares the workspace with commands", 'holds(grp.getgrnam("hermes-work").gr_gid in os.getgroups())', "SupplementaryGroups", {"PrivateUsers": None, "User": "nobody", "StateDirectory": "NAME", "WorkingDirectory": "/tmp"}),
]  # fmt: skip

_HIDES: Changes = {"RootDirectory": None, "ProtectHome": None}
_WRITABLE: Changes = {"BindReadOnlyPaths": None, "BindPaths": "/usr /etc -/bin -/lib -/lib64 /nix/store"}
_LISTED = [
    ("programs are read-only", 'cannot(lambda: write("/usr/probe"))', _WRITABLE, ROOT),
    ("the configuration is read-only", 'cannot(lambda: write("/etc/probe"))', _WRITABLE, ROOT),
    ("homes are hidden", 'hidden("/home/someone/secret")', _HIDES, ROOT),
    ("root's home is hidden", 'hidden("/root/secret")', _HIDES, ROOT),
    ("of a home nothing is there but the workspace", 'holds(os.listdir("/home") == ["someone"] and os.listdir("/home/someone") == ["project"])', _HIDES, {"BindPaths": "/home/someone/project", "WorkingDirectory": "/home/someone/project", "ProtectHome": "tmpfs"}),
    ("temporary files are its own", 'hidden("/tmp/marker")', "PrivateTmp", {"RootDirectory": None, "DynamicUser": None, "User": "hermes"}),
    ("there is a place for temporary files", 'write("/tmp/probe")', "PrivateTmp", {"DynamicUser": None, "User": "hermes"}),
    ("the agent's state is hidden", 'hidden("/var/lib/hermes/.hermes")', "RootDirectory", ROOT),
    ("the agent's state is hidden whatever is listed", 'hidden("/var/lib/hermes/.hermes/probe-secret")', "InaccessiblePaths", {**ROOT, "BindReadOnlyPaths": "/usr -/lib -/lib64 /var/lib/hermes"}),
    ("sockets and secrets are hidden", 'hidden("/run/probe-secret")', "RootDirectory", ROOT),
    ("the build daemon is out of reach", 'hidden("/nix/var/nix/daemon-socket")', "RootDirectory", ROOT),
    ("what is not listed is not there", 'for name in ("/srv/other", "/mnt", "/media", "/boot", "/var/log", "/var/lib/other"): hidden(name)', "RootDirectory", ROOT),
    ("what is listed is there", 'for name in ("/nix/store", "/nix/var/nix/profiles", "/usr/bin", "/bin/sh", "/run/current-system/sw"): os.stat(name)', {"BindReadOnlyPaths": "/usr -/lib -/lib64"}, {}),
    ("shared memory is no place to meet", 'hidden("/dev/shm/marker"); write("/dev/shm/probe")', "TemporaryFileSystem", {}),
]  # fmt: skip
"""In place of the promises of the same text, or beside them, where a unit has a root directory of its own."""

_STRICT = [
    ("there is no network", 'holds(os.readlink("/proc/self/ns/net") != facts["net"])', "PrivateNetwork", {}),
]

_SEND = 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("{}", 9))'
_WITHOUT_NAMES: Changes = {"BindReadOnlyPaths": "/nix/store /usr /etc -/bin -/lib -/lib64"}
_WORKSPACE = [
    ("there is a network", 'holds(os.readlink("/proc/self/ns/net") == facts["net"])', {"PrivateNetwork": "true"}, {}),
    ("the world is reached", _SEND.format("192.0.2.1"), {"IPAddressDeny": "any"}, {}),
    ("names are looked up at the servers of systemd-resolved", 'holds(socket.getaddrinfo("probe.test", 80)[0][4][0] == "192.0.2.9")', _WITHOUT_NAMES, {}),
    ("names are looked up by nscd", 'socket.socket(socket.AF_UNIX).connect("/var/run/nscd/socket")', _WITHOUT_NAMES, {}),
    ("this machine's own services are out of reach", f"cannot(lambda: {_SEND.format('127.0.0.1')})", "IPAddressDeny", {}),
    ("the keys of a cloud are out of reach", f"cannot(lambda: {_SEND.format('169.254.169.254')})", "IPAddressDeny", {}),
]  # fmt: skip

_HOST = [
    ("this machine's own services are reached", _SEND.format("127.0.0.1"), {"IPAddressDeny": "localhost"}, {}),
    ("what everybody may read is read", 'open("/home/someone/secret")', {"ProtectHome": "true"}, {}),
    ("local sockets are there", 'open("/run/probe-secret")', {"TemporaryFileSystem": "/run:ro"}, {}),
    ("dynamic users' state is hidden", 'hidden("/var/lib/private/secret")', {"InaccessiblePaths": "-+/etc/hermes-agent"}, ROOT),
    ("namespaces can be made", "holds(libc.unshare(0x10000000) == 0)", {"RestrictNamespaces": "true"}, {}),
    ("the clock cannot be set", f"denied({CLOCK}, 0, 0)", "SystemCallFilter", {}),
    ("devices are there", 'os.close(os.open("/dev/probe", os.O_WRONLY))', {"DevicePolicy": "closed"}, {}),
    ("the agent's sockets are closed", 'cannot(lambda: os.listdir("/run/hermes-agent"))', {"Group": "hermes"}, {}),
]  # fmt: skip

_EXEC = [
    ("the agent's state is hidden", 'hidden("/var/lib/hermes/.hermes")', "TemporaryFileSystem", ROOT),
    ("the agent's configuration is hidden", 'hidden("/etc/hermes-agent/environment")', {"InaccessiblePaths": None}, ROOT),
    ("the workspace is writable", 'write("probe-exec")', "BindPaths", {}),
    ("it cannot signal the agent", 'cannot(lambda: os.kill(int(facts["agent"]), 0))', {"DynamicUser": None, "User": "hermes"}, {}),
    ("it does not see the agent", 'hidden("/proc/" + facts["agent"])', "ProtectProc", {}),
    ("processes are counted", "holds(max(resource.getrlimit(resource.RLIMIT_NPROC)) <= 512)", "LimitNPROC", {}),
    ("what it writes is for the agent, too", 'write("/tmp/mask"); holds(stat.S_IMODE(os.stat("/tmp/mask").st_mode) == 0o664)', "UMask", {}),
    ("it is in the group of the workspace", 'holds(os.getgid() == grp.getgrnam("hermes-work").gr_gid)', "Group", {"PrivateUsers": None}),
]  # fmt: skip

_APART = {
    "ProtectHome", "PrivateDevices", "DevicePolicy", "PrivateUsers", "ProtectProc", "ProcSubset", "RestrictAddressFamilies",
    "RestrictNamespaces", "SystemCallFilter", "SystemCallErrorNumber", "ProtectClock",
}  # fmt: skip
"""What the profile `host` does not have (`apart` of modules/hermes-agent/sandbox.nix)."""


def _of_host(kept_by: str | Changes) -> bool:
    return not _APART & ({kept_by} if isinstance(kept_by, str) else {*kept_by})


_OTHERWISE = {promise[0] for promise in _LISTED}
_LISTED += [promise for promise in (*_BOTH, *_EXEC) if promise[0] not in _OTHERWISE]

PROMISES = (
    *(_promise("agent", *promise) for promise in (*_BOTH, *_AGENT)),
    *(_promise("strict", *promise) for promise in (*_LISTED, *_STRICT)),
    *(_promise("workspace", *promise) for promise in (*_LISTED, *_WORKSPACE)),
    *(_promise("host", *promise) for promise in (*(p for p in (*_BOTH, *_EXEC) if _of_host(p[2])), *_HOST)),
)
SAMPLE = tuple(p for n, p in enumerate(PROMISES) if n % 8 == 0)
"""For every run; the others with `make test-nix`."""

_NOT_OF_A_PROBE = (
    "ExecStart", "ExecStartPre", "ExecReload", "Type", "NotifyAccess", "Restart", "RestartSec", "WatchdogSec",
    "RestartPreventExitStatus", "StandardInput", "RuntimeMaxSec", "CollectMode", "After", "Wants", "WantedBy",
)  # fmt: skip


def variant(unit: str, name: str, program: str, *changes: Changes) -> str:
    """Return the text of `unit` with another program, and with `changes`; NAME in them is `name`."""
    # Its own, as one that ends takes its directory away.
    runtime: Changes = {"RuntimeDirectory": "NAME"} if "RuntimeDirectory=" in unit else {}
    changed = {
        key: value and value.replace("NAME", name) for each in (runtime, *changes) for key, value in each.items()
    }
    lines = []
    for line in unit.splitlines():
        key = line.partition("=")[0]
        if key not in changed and key not in _NOT_OF_A_PROBE and not key.startswith("X-"):
            lines.append(line)
        if line == "[Service]":
            lines += ["Type=oneshot", "RemainAfterExit=yes", f"ExecStart=/usr/bin/python3 -I -S {program}"]
            lines += [f"{key}={value}" for key, value in changed.items() if value is not None]
            if "\nRootDirectory=" in unit:
                lines.append("BindReadOnlyPaths=/srv/probes")
    return "\n".join(lines) + "\n"
