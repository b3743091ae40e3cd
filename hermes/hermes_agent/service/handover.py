"""Listening sockets that outlive a process: from systemd, from the process before this one, to the one after it.

The protocol is that of sd_listen_fds(3) both times. A restart replaces the program in place (`execve`): pid, unit and
sockets stay, so that nobody who connects meanwhile is refused. Across `systemctl restart` systemd keeps the sockets
(`FileDescriptorStoreMax=`), and the directory of those that have a path (`RuntimeDirectoryPreserve=restart`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.service.notify import ServiceNotifier

__all__ = ["RESTARTED_FOR", "SocketHandover"]

logger = logging.getLogger(__name__)

FIRST_FD = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
RESTARTED_FOR = "HERMES_RESTARTED_FOR"
"""Variable in which a restart tells the next process who waits to hear of it."""


@dataclass
class _Kept:
    sockets: Sequence[socket.socket]
    path: Path | None
    stored: bool = False
    """Whether the service manager has them, too."""


class SocketHandover:
    """What this process got, and what the next one gets. Make it before anything opens a file.

    Args:
        environ: loses the variables of the protocol, so that no child takes the sockets for its own.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = dict(environ)
        """As the process was started: what is added later are secrets, which must not show in `/proc`."""
        self.told = environ.pop(RESTARTED_FOR, "")
        self.wanted = False
        """Whether the end of this process is to be the begin of the next."""
        self.tell = ""
        self._kept: dict[str, _Kept] = {}
        self._passed = _passed(environ)
        self.follows = bool(self._passed)
        """Whether there was a process before this one."""

    @property
    def has_successor(self) -> bool:
        """Whether who connects while this process ends waits for the next one."""
        return self.wanted or any(kept.stored for kept in self._kept.values())

    def take(self, fits: Callable[[socket.socket], bool]) -> socket.socket | None:
        """Return a listening socket that was passed on and fits."""
        found = next((one for one in self._passed if fits(one)), None)
        if found is not None:
            self._passed.remove(found)
        return found

    def keep(self, name: str, sockets: Sequence[socket.socket], path: Path | None = None) -> None:
        """Keep listening sockets of this process for the next.

        Args:
            path: where they are in the file system; removed when nobody comes after.
        """
        self._kept[name] = _Kept([one.dup() for one in sockets], path)

    def store(self, notifier: ServiceNotifier) -> None:
        """Have the service manager keep the sockets, too; what was passed on and is of no use is closed.

        One with a path is of use to a next process where the manager keeps the directory: the unit's own.
        """
        for one in self._passed:
            one.close()
        self._passed.clear()
        own = self._environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
        for name, kept in self._kept.items():
            if kept.path is None or (own and kept.path.parent == Path(own)):
                kept.stored = notifier.keep(kept.sockets, name)

    def request_restart(self, tell: str = "") -> None:
        """Ask the running daemon (this process) to end and to begin anew.

        Args:
            tell: the next process finds it as `told`.
        """
        self.tell = tell
        os.kill(os.getpid(), signal.SIGUSR1)

    def close(self) -> None:
        """Let the sockets go: nobody comes after, but for whom the manager starts."""
        for kept in self._kept.values():
            for one in kept.sockets:
                one.close()
            if kept.path is not None and not kept.stored:
                kept.path.unlink(missing_ok=True)
        self._kept.clear()

    def become_next(self) -> None:
        """Replace the program by itself, as it is on disk now; does not return.

        Raises:
            OSError: the program is not there any more.
        """
        logging.shutdown()
        sockets = [one for kept in self._kept.values() for one in kept.sockets]
        high = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for one in sockets]
        for number, fd in enumerate(high):
            os.dup2(fd, FIRST_FD + number, inheritable=True)
        os.execve(sys.executable, sys.orig_argv, self._next_environment(len(high)))

    def _next_environment(self, count: int) -> Mapping[str, str]:
        environ = {name: value for name, value in self._environ.items() if name not in (*_VARIABLES, RESTARTED_FOR)}
        if count:
            environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)}
        return environ | ({RESTARTED_FOR: self.tell} if self.tell else {})


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
