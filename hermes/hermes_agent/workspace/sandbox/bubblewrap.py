"""The sandbox of bubblewrap, with its filter of system calls.

Commands see the files of the table (`workspace.sandbox.file_rules`), read-only except for the working directory, and
empty, private `/tmp`, `/run` and `~/.cache`. The home and the processes of the agent are not reachable. The network is
that of the session (`workspace.egress.networks`).

A network namespace does not stop virtual sockets between machines (`AF_VSOCK`) and some others. So a seccomp filter
allows only Unix, IPv4, IPv6 and netlink sockets. `io_uring` would bypass the filter and counts as missing; programs
work without it. All other calls are allowed.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.file_rules import is_inside, is_of_home, steering_reason
from hermes_agent.workspace.sandbox.mounts import Mounts, find_outer_sockets
from hermes_agent.workspace.sandbox.sandbox import Sandbox, probe_sandbox, run_probe

if TYPE_CHECKING:
    from hermes_agent.workspace.egress.networks import Networks

FAMILIES = (int(socket.AF_UNIX), int(socket.AF_INET), int(socket.AF_INET6), int(socket.AF_NETLINK))

IO_URING_SETUP = 425
"""Number of the system call on all machines."""


class Abi(LazyNamedTuple):
    """Numbers of one system call interface."""

    audit: int
    """`AUDIT_ARCH_…`."""
    socket: int
    socketcall: int = -1
    """An older call with arguments in memory, which a filter cannot read; -1 for none."""


_X86, _ARM = Abi(0x40000003, 359, 102), Abi(0x40000028, 281)
MACHINES = {
    "x86_64": (Abi(0xC000003E, 41), _X86),
    "i686": (_X86,),
    "aarch64": (Abi(0xC00000B7, 198), _ARM),
    "armv7l": (_ARM,),
    "riscv64": (Abi(0xC00000F3, 198),),
    "loongarch64": (Abi(0xC0000102, 198),),
    "ppc64le": (Abi(0xC0000015, 326, 102),),
    "s390x": (Abi(0x80000016, 359, 102),),
}
"""System call interfaces by machine (`uname -m`)."""

_LOAD, _EQUAL, _MASK, _RETURN = 0x20, 0x15, 0x54, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in the data of the filter
_FIRST_ARGUMENT = 16 if sys.byteorder == "little" else 20  # its lower half
_X32 = 0x40000000
"""Bit in the call number for the x32 interface of x86-64 kernels."""
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def seccomp_filter(machine: str = "") -> bytes | None:
    """Return the filter (classic BPF) for a machine, by default this one; None for an unknown machine."""
    abis = MACHINES.get(machine or os.uname().machine)
    if abis is None:
        return None
    code = [_instruction(_LOAD, _ARCHITECTURE)]
    for abi in abis:
        block = _abi_filter(abi)
        code += [_instruction(_EQUAL, abi.audit, 0, len(block)), *block]
    return b"".join([*code, _instruction(_RETURN, _FAIL | errno.ENOSYS)])


def _abi_filter(abi: Abi) -> list[bytes]:
    """Return the instructions for one interface; they end with a verdict."""
    missing, other = _instruction(_RETURN, _FAIL | errno.ENOSYS), _instruction(_RETURN, _FAIL | errno.EAFNOSUPPORT)
    code = [_instruction(_LOAD, _NUMBER)]
    if abi.socket == 41:
        code.append(_instruction(_MASK, ~_X32 & 0xFFFFFFFF))
    for number in (IO_URING_SETUP, abi.socketcall):
        if number >= 0:
            code += [_instruction(_EQUAL, number, 0, 1), missing]
    code += [
        _instruction(_EQUAL, abi.socket, 1, 0),
        _instruction(_RETURN, _ALLOW),
        _instruction(_LOAD, _FIRST_ARGUMENT),
    ]
    for family in FAMILIES:
        code += [_instruction(_EQUAL, family, 0, 1), _instruction(_RETURN, _ALLOW)]
    return [*code, other]


def _instruction(code: int, value: int, when: int = 0, otherwise: int = 0) -> bytes:
    """Return an instruction; a comparison skips `when` or `otherwise` instructions."""
    return struct.pack("=HBBI", code, when, otherwise, value)


logger = logging.getLogger(__name__)

_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""Settings of the kernel; user 0 may change them without a capability."""


class BubblewrapSandbox(Sandbox):
    """The sandbox of bubblewrap, made for each command.

    Args:
        places: the path rules.
        networks: the networks of sessions; None gives each command a network of its own.
        path: the PATH for `bwrap`.
        tmp_mb: size of each empty directory in the sandbox; 0 for no limit.
    """

    name = "bwrap"
    opens = keeps = True

    def __init__(
        self, places: PathRules, *, networks: Networks | None = None, path: str | None = None, tmp_mb: int = 0
    ) -> None:
        super().__init__()
        self._size = str(tmp_mb << 20)
        self._networks = networks
        if networks is not None:
            self.network = networks.description
            self.offline = networks.mode == "off"
        self._places = places
        self._mounts = Mounts(places, self._empty)
        self._path = path
        self._program = ""

    def wrap(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        *,
        root: str,
        tty: bool = False,
        network: str = "",
        keep: Sequence[str] = (),
        sockets: Sequence[str] = (),
        work_dir: str = "",
    ) -> tuple[list[str], dict[str, str]]:
        given = {name: value for name, value in env.items() if name not in ("TMPDIR", "TMP", "TEMP")}
        space = self._networks.namespace(network) if self._networks is not None and network else None
        joined, way_out = ([], False) if space is None else (space.enter_command(), space.names is not None)
        words = [
            *self._filtered(),
            *joined,
            self._program,
            *("--seccomp", "9"),
            *self._options(root, keep, way_out=way_out, work_dir=work_dir),
            *self._without_sockets(
                root,
                sockets,
                inside=0 if space is None else os.fstat(space.net).st_ino,
                work_dir=work_dir,
            ),
            *self._mounts.final_options(),
            *(["--share-net"] if joined else []),
        ]
        if way_out:
            from hermes_agent.workspace.egress.broker import PROXY  # for the first command with a network

            given |= PROXY
        return [*words, "--chdir", cwd, "--", *argv], given

    def probe(self) -> str:
        program = shutil.which("bwrap", path=self._path)
        if program is None:
            return "the program bwrap (package bubblewrap) is not installed"
        self._program = program
        self._mounts.sizes = _has_sizes(program, self.probe_limit_s)
        if self._size != "0" and not self._mounts.sizes:
            logger.warning("`terminal.sandbox_tmp_mb` has no effect: bubblewrap before 0.7 lacks --size: %s", program)
            self._size = "0"
        try:
            begin = self._filtered()
        except OSError as exc:
            return f"the filter of system calls cannot be written: {exc}"
        return probe_sandbox(
            [
                *begin,
                program,
                "--seccomp",
                "9",
                *self._options("/"),
                *self._mounts.final_options(),
                "--",
                "/bin/sh",
                "-c",
                "exit 0",
            ],
            name=program,
            limit_s=self.probe_limit_s,
        )

    def _filtered(self) -> list[str]:
        """Return the words that open the filter of system calls as descriptor 9 for the program after them."""
        code = seccomp_filter()
        if code is None:
            raise OSError(f"no numbers of system calls are known for {os.uname().machine}")
        path = Path(self._places.hermes_home, "cache", "sandbox", "system-calls.bpf")
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, code, mode=PRIVATE)
        return ["/bin/sh", "-c", 'exec "$@" 9<"$0"', str(path)]

    def _options(
        self, root: str, keep: Sequence[str] = (), *, way_out: bool = False, work_dir: str = ""
    ) -> Iterator[str]:
        yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        yield from ("--dev", "/dev", *self._empty("/dev/shm"), "--remount-ro", "/dev")
        yield from ("--proc", "/proc")
        for path in _KERNEL if os.geteuid() == 0 else ():
            yield from ("--ro-bind-try", path, path)
        credentials = list(self._places.secret_files())
        yield from self._mounts.system_options(credentials)
        if way_out:
            yield from _resolver()
        yield from self._mounts.user_options()
        if work_dir and not self._mounts.is_shown(work_dir, root):
            yield from ("--ro-bind", work_dir, work_dir)
        if self.is_writable(root):
            yield from ("--bind", root, root)
            yield from self._read_only(root, keep)
        elif self._places.for_cwd(root) is not self._places and root != "/":
            yield from ("--ro-bind", root, root)
        yield from self._hidden(root, keep, credentials)

    def _without_sockets(self, root: str, sockets: Sequence[str], *, inside: int, work_dir: str) -> Iterator[str]:
        """Yield options that cover the sockets of programs outside.

        Args:
            root: the writable directory.
            sockets: paths of the sockets below `root`.
            inside: the network namespace of the session; sockets of its commands stay.
            work_dir: an additional readable directory.
        """
        for path in find_outer_sockets(root, sockets, inside):
            seen = self._mounts.is_shown(path, root) or (work_dir and is_inside(path, work_dir))
            if path not in self._places.opened and seen:
                yield from ("--ro-bind", os.devnull, path)

    def _empty(self, place: str) -> Iterator[str]:
        """Yield options for an empty directory with a limited size."""
        yield from (*(() if self._size == "0" else ("--size", self._size)), "--tmpfs", place)

    def checks(self) -> Iterator[tuple[bool, str, str]]:
        yield from self._mounts.checks()

    def network_problem(self) -> str:
        return "" if self._networks is None else self._networks.probe()

    def is_hidden(self, cwd: str, root: str, work_dir: str = "") -> bool:
        return not (self._mounts.is_shown(cwd, root) or (work_dir and is_inside(cwd, work_dir)))

    def is_writable(self, cwd: str) -> bool:
        """Return whether commands may write to the working directory: not to a home or a system directory."""
        from hermes_agent.policy.shell.paths import is_home, is_root, is_system_directory  # for the first command

        above = is_inside(self._places.user_home, cwd)
        return not (
            above or cwd == self._places.hermes_home or is_root(cwd) or is_system_directory(cwd) or is_home(cwd)
        ) and not (is_of_home(cwd, self._places.user_home) or steering_reason(f"{cwd}/_", self._places.user_home))

    def _read_only(self, cwd: str, keep: Sequence[str]) -> Iterator[str]:
        """Yield options that protect the present steering files."""
        yield from _repository(Path(cwd, ".git"))
        steering = [f"{cwd}/{path}" for path in keep]
        for path in dict.fromkeys(steering):
            if Path(path).exists() and not Path(path).is_symlink():
                yield from ("--ro-bind", path, path)

    def _hidden(self, cwd: str, keep: Sequence[str], credentials: Sequence[str]) -> Iterator[str]:
        """Yield options that cover credentials and the agent's home, except for the working directory."""
        for home in self._places.agent_homes:
            if os.path.isdir(home) and self._mounts.is_shown(home, cwd):  # noqa: PTH112 - some fifty for each command
                yield from self._empty(home)
                if cwd != home and is_inside(cwd, home):
                    yield from ("--bind", cwd, cwd)
                    yield from self._read_only(cwd, keep)  # this mount covers the earlier ones
        for tree in self._places.secret_trees():
            if os.path.isdir(tree) and self._mounts.is_shown(tree, cwd):  # noqa: PTH112 - as above
                yield from self._empty(os.path.realpath(tree))
        for file in credentials:
            if os.path.isfile(file) and self._mounts.is_shown(file, cwd):  # noqa: PTH113 - as above
                yield from ("--ro-bind", os.devnull, file)


def _has_sizes(program: str, limit_s: float) -> bool:
    try:
        done = run_probe([program, "--help"], os.environ, limit_s)
    except OSError:
        return True  # the probe reports the error
    return b"--size" in done.stdout + done.stderr


def _repository(git: Path) -> Iterator[str]:
    """Yield options that protect hooks and config of a repository, also missing ones."""
    if git.is_symlink():
        return
    if git.is_file():  # it names the repository
        yield from ("--ro-bind", str(git), str(git))
    elif git.is_dir():
        yield from ("--bind", str(git), str(git))  # a mount cannot be renamed and replaced by a copy
        hooks, config = git / "hooks", git / "config"
        if hooks.exists():
            yield from ("--ro-bind", str(hooks), str(hooks))
        elif os.access(git, os.W_OK):
            yield from ("--tmpfs", str(hooks), "--remount-ro", str(hooks))
        if config.exists() or os.access(git, os.W_OK):
            yield from ("--ro-bind", str(config) if config.exists() else os.devnull, str(config))


def _resolver() -> Iterator[str]:
    """Yield options that send DNS queries to the broker; resolv.conf may be a link into the empty `/run`."""
    from hermes_agent.workspace.egress.broker import RESOLVER  # as above

    target = os.path.realpath("/etc/resolv.conf")
    if target.startswith("/run/") or Path(target).exists():
        yield from ("--ro-bind", RESOLVER, target)
