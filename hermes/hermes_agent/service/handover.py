"""Listening sockets that outlive a process: from systemd, from the process before this one, to the one after it.

The protocol is that of sd_listen_fds(3) both times. A restart replaces the program in place (`execve`): pid, unit and
sockets stay, so that nobody who connects meanwhile is refused. Across `systemctl restart` systemd keeps the sockets
(`FileDescriptorStoreMax=`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, MutableMapping, Sequence

__all__ = ["TOLD", "Handover"]

logger = logging.getLogger(__name__)

FIRST_FD = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
TOLD = "HERMES_RESTARTED_FOR"
"""Variable in which a restart tells the next process who waits to hear of it."""


class Handover:
    """What this process got, and what the next one gets. Make it before anything opens a file.

    Args:
        environ: loses the variables of the protocol, so that no child takes the sockets for its own.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = dict(environ)
        """As the process was started: what is added later are secrets, which must not show in `/proc`."""
        self.told = environ.pop(TOLD, "")
        self.wanted = False
        """Whether the end of this process is to be the begin of the next."""
        self.tell = ""
        self.sockets: list[socket.socket] = []
        """Those that listen; kept open for the next process."""
        self._passed = _passed(environ)

    def listening_at(self, family: socket.AddressFamily, address: str, port: int) -> socket.socket | None:
        """Return a socket that was passed on and listens there (`port` 0: anywhere at the address)."""
        for one in self._passed:
            name = one.getsockname()
            if one.family == family and name[0] == address and port in (0, name[1]):
                self._passed.remove(one)
                return one
        return None

    def keep(self, sockets: Sequence[socket.socket]) -> None:
        """Keep the sockets of this process for the next; those that were passed on and are of no use are closed."""
        for one in self._passed:
            one.close()
        self._passed.clear()
        self.sockets = [one.dup() for one in sockets]

    def begin(self, tell: str = "") -> None:
        """Ask the running daemon (this process) to end and to begin anew.

        Args:
            tell: the next process finds it as `told`.
        """
        self.tell = tell
        os.kill(os.getpid(), signal.SIGUSR1)

    def close(self) -> None:
        """Let the sockets go: nobody comes after."""
        for one in self.sockets:
            one.close()
        self.sockets.clear()

    def become_next(self) -> None:
        """Replace the program by itself, as it is on disk now; does not return.

        Raises:
            OSError: the program is not there any more.
        """
        logging.shutdown()
        high = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for one in self.sockets]
        for number, fd in enumerate(high):
            os.dup2(fd, FIRST_FD + number, inheritable=True)
        os.execve(sys.executable, sys.orig_argv, self._next_environment(len(high)))

    def _next_environment(self, count: int) -> Mapping[str, str]:
        environ = {name: value for name, value in self._environ.items() if name not in (*_VARIABLES, TOLD)}
        if count:
            environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)}
        return environ | ({TOLD: self.tell} if self.tell else {})


def _passed(environ: MutableMapping[str, str]) -> list[socket.socket]:
    pid, count, _ = (environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    found = []
    for fd in range(FIRST_FD, FIRST_FD + int(count)):
        os.set_inheritable(fd, False)
        try:
            one = socket.socket(fileno=fd)
        except OSError as exc:
            logger.warning("file descriptor %d, which was passed on, is no socket: %s", fd, exc)
            continue
        if one.type == socket.SOCK_STREAM and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            one.setblocking(False)
            found.append(one)
        else:
            one.close()
    return found
