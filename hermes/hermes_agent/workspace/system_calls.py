"""The filter of system calls that commands in bubblewrap's sandbox have (seccomp).

A network namespace holds off neither virtual sockets between machines (`AF_VSOCK`) nor some others, so that only
the families of a list can be opened: Unix, IPv4, IPv6 and netlink. `io_uring` opens sockets past such a filter; it
counts as missing, and programs do without. All other calls are free.

The filter is a program of classic BPF: instructions of 8 bytes, one after another.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
import sys
from typing import NamedTuple

__all__ = ["MACHINES", "Abi", "seccomp_filter"]

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
