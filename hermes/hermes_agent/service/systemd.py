"""systemd: notifications, the watchdog, and listening sockets that outlive the process.

Notifications are datagrams of sd_notify(3), sent with `sdnotify`. The watchdog is fed from the core loop, so systemd
restarts a daemon with a hanging loop. Sockets come from systemd or from the previous process, and go to the next one,
with the protocol of sd_listen_fds(3). A restart replaces the program in place (`execve`): pid, unit and sockets stay,
so no connection is refused meanwhile. Across `systemctl restart` systemd keeps the sockets (`FileDescriptorStoreMax=`)
and the directory of those with a path (`RuntimeDirectoryPreserve=restart`).
"""

from __future__ import annotations

import array
import asyncio
import faulthandler
import fcntl
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor

if TYPE_CHECKING:
    from sdnotify import SystemdNotifier


logger = logging.getLogger(__name__)

SEND_LIMIT_S = 0.5
"""Longest wait in seconds for a full socket, during which the core loop stands still."""


class ServiceNotifier:
    """The notification socket of this process; without one every method does nothing.

    Args:
        sender: None if no service manager listens.
        watchdog_s: seconds after which systemd considers a silent process hung; None without a watchdog.
        stores: systemd keeps sockets for the next start.
    """

    def __init__(
        self, sender: SystemdNotifier | None = None, *, watchdog_s: float | None = None, stores: bool = False
    ) -> None:
        self.watchdog_s = watchdog_s if sender else None
        self._sender = sender
        self._stores = stores
        self._failed = False

    @classmethod
    def open(cls) -> ServiceNotifier:
        """Connect, and remove the socket from the environment, so that no child notifies for the daemon."""
        usec, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        room = os.environ.pop("FDSTORE", "")
        meant = not pid or pid == str(os.getpid())
        watchdog_s = int(usec) / 1e6 if meant and usec.isdigit() and int(usec) > 0 else None
        try:
            sender = _connected() if os.environ.get("NOTIFY_SOCKET") else None
        finally:
            os.environ.pop("NOTIFY_SOCKET", None)
        return cls(sender, watchdog_s=watchdog_s, stores=room.isdigit() and int(room) > 0)

    @property
    def active(self) -> bool:
        """Whether a service manager listens."""
        return self._sender is not None

    @property
    def beat_interval_s(self) -> float | None:
        """Half of the watchdog's limit in seconds, as sd_watchdog_enabled(3) recommends.

        None without a watchdog.
        """
        return None if self.watchdog_s is None else self.watchdog_s / 2

    def ready(self, status: str = "") -> None:
        """Report that the daemon serves (or serves again, after `reloading`)."""
        self._send("READY=1", *_status(status))

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(*_status(text))

    def reloading(self, status: str = "") -> None:
        """Report the begin of a reload; `ready` ends it.

        Type=notify-reload needs the time in the same message.
        """
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", *_status(status))

    def keep(self, sockets: Sequence[socket.socket], name: str) -> bool:
        """Have the manager keep sockets for the next start, in place of earlier ones; return whether it does.

        `$FDSTORE` says whether it does (systemd 254; the packaged unit sets it for earlier versions).
        """
        if self._sender is None or not sockets or not self._stores:
            return False
        rights = array.array("i", [one.fileno() for one in sockets])
        self._send("FDSTOREREMOVE=1", f"FDNAME={name}")
        try:
            message = f"FDSTORE=1\nFDNAME={name}".encode()
            self._sender.socket.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError as exc:
            logger.warning("service manager: listening sockets are not kept: %s", exc)
            return False
        return True

    def stopping(self, status: str = "") -> None:
        """Report that the daemon is about to end."""
        self._send("STOPPING=1", *_status(status))

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def close(self) -> None:
        """Close the socket; later calls do nothing."""
        if self._sender is not None:
            self._sender.socket.close()
            self._sender = None

    def _send(self, *assignments: str) -> None:
        if self._sender is None or not assignments:
            return
        try:
            self._sender.notify(_for_latin_1("\n".join(assignments)))
            self._failed = False
        except OSError as exc:
            if not self._failed:
                logger.warning("cannot tell the service manager %s: %s", assignments[0], exc)
            self._failed = True


def _connected() -> SystemdNotifier | None:
    """Return a connection to NOTIFY_SOCKET; None, with a log line, if nothing listens there."""
    from sdnotify import SystemdNotifier  # only the daemon needs it

    try:
        sender = SystemdNotifier(debug=True)  # without `debug` it does not report errors
    except OSError as exc:
        logger.warning("cannot reach the service manager at %s: %s", os.environ["NOTIFY_SOCKET"], exc)
        return None
    sender.socket.settimeout(SEND_LIMIT_S)
    return sender


def _for_latin_1(text: str) -> str:
    """Return the UTF-8 bytes of `text` decoded as Latin-1, since the library encodes with that."""
    return text.encode("utf-8", "replace").decode("latin-1")


def _status(text: str) -> tuple[str, ...]:
    """Return the text in one line, since a line break would begin another assignment."""
    return (f"STATUS={redactor(' '.join(text.split()))}",) if text else ()


async def feed_watchdog(
    notifier: ServiceNotifier, interval_s: float | None, is_alive: Callable[[], bool] | None = None
) -> None:
    """Feed the watchdog until cancelled; return immediately without a watchdog.

    Args:
        interval_s: seconds between two pings: `notifier.beat_interval_s`; None without a watchdog.
        is_alive: called before each ping; while it returns False or raises, the watchdog is not fed. It must be fast.
            None takes the running loop as proof.
    """
    if interval_s is None:
        return
    fed = True
    while True:
        alive = _check_alive(is_alive)
        if alive:
            notifier.alive()
        if alive != fed:
            logger.log(
                logging.INFO if alive else logging.ERROR,
                "watchdog: progress again, it is fed" if alive else "watchdog: no progress, it is no longer fed",
            )
            fed = alive
        await asyncio.sleep(interval_s)


def trace_hangs() -> None:
    """Write the stacks of all threads to stderr when the watchdog's SIGABRT (or a crash) ends the process.

    They have names of functions and lines, no values.
    """
    if sys.stderr is not None:
        faulthandler.enable(sys.stderr, all_threads=True)


def _check_alive(is_alive: Callable[[], bool] | None) -> bool:
    if is_alive is None:
        return True
    try:
        return is_alive()
    except Exception:
        logger.exception("watchdog: check of progress failed, it is not fed")
        return False


FIRST_FD = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
RESTARTED_FOR = "HERMES_RESTARTED_FOR"
"""Variable with the target that the next process notifies of the restart."""


@lazy_dataclass
class _Kept:
    """Listening sockets for the next process."""

    sockets: Sequence[socket.socket]
    path: Path | None
    stored: bool = False
    """Whether the service manager keeps them, too."""


class SocketHandover:
    """The sockets from the previous process and for the next one; create it before any file is opened.

    Args:
        environ: loses the variables of the protocol, so that no child takes the sockets.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = dict(environ)
        """The environment at the start: later additions are secrets, which must not show in `/proc`."""
        self.restarted_for = environ.pop(RESTARTED_FOR, "")
        self.wanted = False
        """Whether the next process follows the end of this one."""
        self.tell = ""
        self._kept: dict[str, _Kept] = {}
        self._passed = _passed(environ)
        self.follows = bool(self._passed)
        """Whether there was a previous process."""

    @property
    def has_successor(self) -> bool:
        """Whether new connections at the end of this process wait for the next one."""
        return self.wanted or any(kept.stored for kept in self._kept.values())

    def take(self, fits: Callable[[socket.socket], bool]) -> socket.socket | None:
        """Return a listening socket of the previous process that fits, or None."""
        found = next((one for one in self._passed if fits(one)), None)
        if found is not None:
            self._passed.remove(found)
        return found

    def keep(self, name: str, sockets: Sequence[socket.socket], path: Path | None = None) -> None:
        """Keep listening sockets of this process for the next.

        Args:
            path: their path in the file system; removed if no process follows.
        """
        self._kept[name] = _Kept([one.dup() for one in sockets], path)

    def store(self, notifier: ServiceNotifier) -> None:
        """Have the service manager keep the sockets, too; close useless ones of the previous process.

        One with a path is useful to a next process if the manager keeps the directory of the unit.
        """
        for one in self._passed:
            one.close()
        self._passed.clear()
        own = self._environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
        for name, kept in self._kept.items():
            if kept.path is None or (own and kept.path.parent == Path(own)):
                kept.stored = notifier.keep(kept.sockets, name)

    def request_restart(self, tell: str = "") -> None:
        """Request the restart of the daemon (this process).

        Args:
            tell: the next process finds it as `restarted_for`.
        """
        self.tell = tell
        os.kill(os.getpid(), signal.SIGUSR1)

    def close(self) -> None:
        """Close the sockets: no process follows, except one that the manager starts."""
        for kept in self._kept.values():
            for one in kept.sockets:
                one.close()
            if kept.path is not None and not kept.stored:
                kept.path.unlink(missing_ok=True)
        self._kept.clear()

    def become_next(self) -> None:
        """Replace the program by its current version on disk; does not return.

        Raises:
            OSError: the program no longer exists.
        """
        logging.shutdown()
        sockets = [one for kept in self._kept.values() for one in kept.sockets]
        high = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for one in sockets]
        for number, fd in enumerate(high):
            os.dup2(fd, FIRST_FD + number, inheritable=True)
        os.execve(*_program(sys.orig_argv), self._next_environment(len(high)))

    def _next_environment(self, count: int) -> Mapping[str, str]:
        environ = {name: value for name, value in self._environ.items() if name not in (*_VARIABLES, RESTARTED_FOR)}
        if count:
            environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)}
        return environ | ({RESTARTED_FOR: self.tell} if self.tell else {})


def _program(argv: list[str]) -> tuple[str, list[str]]:
    """Return the program of the next process and its arguments.

    A script is started by its name, so that the interpreter is the one that it names now: an update changes it.
    """
    script = argv[1] if len(argv) > 1 else ""
    if not script.startswith("-") and os.access(script, os.X_OK) and not Path(script).is_dir():
        return script, argv[1:]
    return sys.executable, argv


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
            logger.warning("inherited descriptor %d: no socket: %s", fd, exc)
            continue
        if one.type == socket.SOCK_STREAM and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            one.setblocking(False)
            found.append(one)
        else:
            one.close()
    return found
