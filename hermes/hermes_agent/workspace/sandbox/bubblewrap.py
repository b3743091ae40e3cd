"""The filter of system calls that commands in bubblewrap's sandbox have (seccomp).

A network namespace holds off neither virtual sockets between machines (`AF_VSOCK`) nor some others, so that only
the families of a list can be opened: Unix, IPv4, IPv6 and netlink. `io_uring` opens sockets past such a filter; it
counts as missing, and programs do without. All other calls are free.

The filter is a program of classic BPF: instructions of 8 bytes, one after another.

A box for commands, made with bubblewrap: they can harm the working directory and nothing else.

In it is what the table of `view` lists, read-only but for the working directory and empty, private `/tmp`, `/run` and
`~/.cache`; the agent's home and its processes are out of reach; the network is the task's (`egress`).
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import shutil
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.workspace.egress.networks import PROXY, RESOLVER, Networks
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.file_rules import is_inside, is_of_home, steering_reason
from hermes_agent.workspace.sandbox.mounts import Mounts, find_outer_sockets
from hermes_agent.workspace.sandbox.sandbox import Sandbox, probe_sandbox, run_probe

FAMILIES = (int(socket.AF_UNIX), int(socket.AF_INET), int(socket.AF_INET6), int(socket.AF_NETLINK))

IO_URING_SETUP = 425
"""The same number everywhere."""


class Abi(NamedTuple):
    """Numbers of one way to call the kernel."""

    audit: int
    """`AUDIT_ARCH_…`."""
    socket: int
    socketcall: int = -1
    """An older call whose arguments lie in memory, where a filter cannot look; -1 where there is none."""


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
"""By the machine's name (`uname -m`)."""

_LOAD, _EQUAL, _MASK, _RETURN = 0x20, 0x15, 0x54, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in what the filter is given
_FIRST_ARGUMENT = 16 if sys.byteorder == "little" else 20  # its lower half
_X32 = 0x40000000
"""A further way to call an x86-64 kernel: this bit in the number."""
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def seccomp_filter(machine: str = "") -> bytes | None:
    """Return the filter for a machine, by default this one; None where its numbers are not known."""
    abis = MACHINES.get(machine or platform.machine())
    if abis is None:
        return None
    code = [_instruction(_LOAD, _ARCHITECTURE)]
    for abi in abis:
        block = _abi_filter(abi)
        code += [_instruction(_EQUAL, abi.audit, 0, len(block)), *block]
    return b"".join([*code, _instruction(_RETURN, _FAIL | errno.ENOSYS)])


def _abi_filter(abi: Abi) -> list[bytes]:
    """Return the instructions for one way to call the kernel; they end with an answer."""
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
    """Return an instruction; `when` and `otherwise` are how many instructions a comparison skips."""
    return struct.pack("=HBBI", code, when, otherwise, value)


logger = logging.getLogger(__name__)

_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""The kernel's settings; user 0 may change them without any capability."""


class BubblewrapSandbox(Sandbox):
    """Made anew for each command.

    Args:
        networks: the networks of tasks; None: each command has one of its own.
        path: where `bwrap` is looked for.
        tmp_mb: size of each empty directory in the box; 0 is no limit.
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
        beside: str = "",
    ) -> tuple[list[str], dict[str, str]]:
        given = {name: value for name, value in env.items() if name not in ("TMPDIR", "TMP", "TEMP")}
        space = self._networks.namespace(network) if self._networks is not None and network else None
        joined, way_out = ([], False) if space is None else (space.enter_command(), space.names is not None)
        words = [
            *self._filtered(),
            *joined,
            self._program,
            *("--seccomp", "9"),
            *self._options(root, keep, way_out=way_out, beside=beside),
            *self._without_sockets(
                root, sockets, inside=0 if space is None else os.fstat(space.net).st_ino, beside=beside
            ),
            *self._mounts.final_options(),
            *(["--share-net"] if joined else []),
        ]
        if way_out:
            given |= PROXY
        return [*words, "--chdir", cwd, "--", *argv], given

    def probe(self) -> str:
        program = shutil.which("bwrap", path=self._path)
        if program is None:
            return "the program bwrap (package bubblewrap) is not there"
        self._program = program
        if self._size != "0" and not _has_sizes(program):
            logger.warning("`terminal.sandbox_tmp_mb` has no effect: %s is older than 0.7 and knows no --size", program)
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
        )

    def _filtered(self) -> list[str]:
        """Return the words that open the filter of system calls as descriptor 9, for the words after them."""
        code = seccomp_filter()
        if code is None:
            raise OSError(f"no numbers of system calls are known for {platform.machine()}")
        path = Path(self._places.hermes_home, "cache", "sandbox", "system-calls.bpf")
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, code, mode=PRIVATE)
        return ["/bin/sh", "-c", 'exec "$@" 9<"$0"', str(path)]

    def _options(
        self, root: str, keep: Sequence[str] = (), *, way_out: bool = False, beside: str = ""
    ) -> Iterator[str]:
        yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        yield from ("--dev", "/dev", *self._empty("/dev/shm"), "--remount-ro", "/dev")
        yield from ("--proc", "/proc")
        for path in _KERNEL:
            yield from ("--ro-bind-try", path, path)
        credentials = list(self._places.secret_files())
        yield from self._mounts.system_options(credentials)
        if way_out:
            yield from _resolver()
        yield from self._mounts.user_options()
        if beside and not self._mounts.is_shown(beside, root):
            yield from ("--ro-bind", beside, beside)
        if self.is_writable(root):
            yield from ("--bind", root, root)
            yield from self._read_only(root, keep)
        elif self._places.for_cwd(root) is not self._places and root != "/":
            yield from ("--ro-bind", root, root)
        yield from self._hidden(root, keep, credentials)

    def _without_sockets(self, root: str, sockets: Sequence[str], *, inside: int, beside: str) -> Iterator[str]:
        """Cover the sockets of programs outside.

        Args:
            inside: the network namespace of the session: what its commands listen on stays.
        """
        for path in find_outer_sockets(root, sockets, inside):
            seen = self._mounts.is_shown(path, root) or (beside and is_inside(path, beside))
            if path not in self._places.opened and seen:
                yield from ("--ro-bind", os.devnull, path)

    def _empty(self, place: str) -> Iterator[str]:
        """Yield an empty directory that holds no more than it may."""
        yield from (*(() if self._size == "0" else ("--size", self._size)), "--tmpfs", place)

    def checks(self) -> Iterator[tuple[bool, str, str]]:
        yield from self._mounts.checks()

    def network_problem(self) -> str:
        return "" if self._networks is None else self._networks.probe()

    def is_hidden(self, cwd: str, root: str, beside: str = "") -> bool:
        return not (self._mounts.is_shown(cwd, root) or (beside and is_inside(cwd, beside)))

    def is_writable(self, cwd: str) -> bool:
        """Say whether commands may write to the working directory: not when it is a home, or the system's."""
        from hermes_agent.policy.shell.paths import is_home, is_root, is_system_directory  # for the first command

        above = is_inside(self._places.user_home, cwd)
        return not (
            above or cwd == self._places.hermes_home or is_root(cwd) or is_system_directory(cwd) or is_home(cwd)
        ) and not (is_of_home(cwd, self._places.user_home) or steering_reason(f"{cwd}/_", self._places.user_home))

    def _read_only(self, cwd: str, keep: Sequence[str]) -> Iterator[str]:
        """Protect the steering files that are there."""
        yield from _repository(Path(cwd, ".git"))
        steering = [f"{cwd}/{path}" for path in keep]
        for path in dict.fromkeys(steering):
            if Path(path).exists() and not Path(path).is_symlink():
                yield from ("--ro-bind", path, path)

    def _hidden(self, cwd: str, keep: Sequence[str], credentials: Sequence[str]) -> Iterator[str]:
        """Cover credentials, and of the agent's home everything but the way to the work."""
        for home in self._places.agent_homes:
            if Path(home).is_dir() and self._mounts.is_shown(home, cwd):
                yield from self._empty(home)
                if cwd != home and is_inside(cwd, home):
                    yield from ("--bind", cwd, cwd)
                    yield from self._read_only(cwd, keep)  # the mounts before are below this one
        for tree in self._places.secret_trees():
            if Path(tree).is_dir() and self._mounts.is_shown(tree, cwd):
                yield from self._empty(os.path.realpath(tree))
        for file in credentials:
            if Path(file).is_file() and self._mounts.is_shown(file, cwd):
                yield from ("--ro-bind", os.devnull, file)


def _has_sizes(program: str) -> bool:
    try:
        done = run_probe([program, "--help"], os.environ)
    except OSError:
        return True  # the trial says what is wrong
    return b"--size" in done.stdout + done.stderr


def _repository(git: Path) -> Iterator[str]:
    """Protect hooks and settings of a repository, also those that are not there yet."""
    if git.is_symlink():
        return
    if git.is_file():  # it says where the repository is
        yield from ("--ro-bind", str(git), str(git))
    elif git.is_dir():
        yield from ("--bind", str(git), str(git))  # a mount cannot be renamed, so that no copy takes its place
        hooks, config = git / "hooks", git / "config"
        if hooks.exists():
            yield from ("--ro-bind", str(hooks), str(hooks))
        elif os.access(git, os.W_OK):
            yield from ("--tmpfs", str(hooks), "--remount-ro", str(hooks))
        if config.exists() or os.access(git, os.W_OK):
            yield from ("--ro-bind", str(config) if config.exists() else os.devnull, str(config))


def _resolver() -> Iterator[str]:
    """Have names asked of the broker; on many systems resolv.conf leads into `/run`, which is empty."""
    target = os.path.realpath("/etc/resolv.conf")
    if target.startswith("/run/") or Path(target).exists():
        yield from ("--ro-bind", RESOLVER, target)
