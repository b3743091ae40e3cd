"""Program in a network namespace: sets up the loopback, opens sockets, passes them to the agent.

Its standard input is a Unix socket for the descriptors: the user namespace, the network namespace, and with the
argument `open` the sockets of `PORTS` and of the name server. The namespace exists as long as one of them is open.
With the arguments `at USER NET ADDRESS PORT` the program enters an existing namespace by its descriptors, and passes a
socket that listens there. Imports little, because it runs before the first command of a session.
"""

import fcntl
import os
import socket
import struct
import sys

LOOPBACK = ("127.0.0.1", "255.0.0.0")
FAKE = ("198.18.0.1", "255.254.0.0")
"""The address of the broker, and the mask of the range of addresses that stand for names."""
PORTS = (22, 80, 443)
"""Ports below 1024, which servers of commands cannot use."""
BACKLOG = 64

_SET_ADDRESS, _SET_MASK, _SET_FLAGS = 0x8916, 0x891C, 0x8914
_UP_AND_RUNNING = 0x41


def add_address(name: bytes, address: str, mask: str) -> None:
    """Set the address of a device; on the loopback, every address of its network is then local."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((_SET_ADDRESS, address), (_SET_MASK, mask)):
            given = struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(value))
            fcntl.ioctl(control, request, given)
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14x", name, _UP_AND_RUNNING))


def _listening(address: str, port: int) -> socket.socket:
    listening = socket.socket()
    listening.bind((address, port))
    listening.listen(BACKLOG)
    return listening


def _at(user: str, net: str, address: str, port: str) -> None:
    """Listen in an existing namespace; `setns` keeps the capabilities that a new program would lose."""
    import ctypes  # only here

    libc = ctypes.CDLL(None, use_errno=True)
    for space in (user, net):
        if libc.setns(int(space), 0):
            number = ctypes.get_errno()
            sys.exit(f"the namespace cannot be entered: {os.strerror(number)}")
    try:
        listening = _listening(address, int(port))
    except OSError as exc:
        sys.exit(exc.strerror)
    with listening, socket.socket(fileno=0) as agent:
        socket.send_fds(agent, [b"."], [listening.fileno()])


def main() -> None:
    """Run the program."""
    if sys.argv[1:2] == ["at"]:
        _at(*sys.argv[2:])
        return
    add_address(b"lo", *LOOPBACK)
    opened = []
    if "open" in sys.argv[1:]:
        add_address(b"lo:1", *FAKE)
        for port in PORTS:
            opened.append(_listening("0.0.0.0", port))
        opened.append(names := socket.socket(type=socket.SOCK_DGRAM))
        names.bind((LOOPBACK[0], 53))
    spaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
    with socket.socket(fileno=0) as agent:
        socket.send_fds(agent, [b"."], [*spaces, *(each.fileno() for each in opened)])


if __name__ == "__main__":
    main()
