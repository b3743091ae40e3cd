"""Tell systemd how the daemon is doing: the datagrams of sd_notify(3), sent with `sdnotify`."""

from __future__ import annotations

import array
import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes_agent.core.redact import redactor

if TYPE_CHECKING:
    from sdnotify import SystemdNotifier

__all__ = ["ServiceNotifier"]

logger = logging.getLogger(__name__)

SEND_LIMIT_S = 0.5
"""Longest wait for a full socket; the core loop stands still meanwhile."""


class ServiceNotifier:
    """The notification socket of this process; every method does nothing when there is none.

    Args:
        sender: None means that no service manager listens.
        watchdog_s: seconds after which systemd takes a silent process for hung; None means no watchdog.
        stores: it keeps sockets from one start to the next.
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
        """Connect, and take the socket out of the environment, so that no child process can speak for the daemon."""
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
        """Half of the watchdog's limit, as sd_watchdog_enabled(3) recommends; None without a watchdog."""
        return None if self.watchdog_s is None else self.watchdog_s / 2

    def ready(self, status: str = "") -> None:
        """Say that the daemon serves (or serves again, after `reloading`)."""
        self._send("READY=1", *_status(status))

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(*_status(text))

    def reloading(self, status: str = "") -> None:
        """Say that a reload has begun; `ready` ends it. Type=notify-reload needs the time in the same message."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", *_status(status))

    def keep(self, sockets: Sequence[socket.socket], name: str) -> bool:
        """Have the manager keep sockets for the next start, in place of former ones; false when it does not.

        It tells with `$FDSTORE` that it does (systemd 254; the packaged unit sets it for older ones).
        """
        if self._sender is None or not sockets or not self._stores:
            return False
        rights = array.array("i", [one.fileno() for one in sockets])
        self._send("FDSTOREREMOVE=1", f"FDNAME={name}")
        try:
            message = f"FDSTORE=1\nFDNAME={name}".encode()
            self._sender.socket.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError as exc:
            logger.warning("the service manager does not keep the listening sockets: %s", exc)
            return False
        return True

    def stopping(self, status: str = "") -> None:
        """Say that the daemon is about to end."""
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
    """Return a connection to NOTIFY_SOCKET; None, with a line in the log, when nobody answers there."""
    from sdnotify import SystemdNotifier  # only the daemon needs it

    try:
        sender = SystemdNotifier(debug=True)  # without `debug` it keeps its errors to itself
    except OSError as exc:
        logger.warning("cannot reach the service manager at %s: %s", os.environ["NOTIFY_SOCKET"], exc)
        return None
    sender.socket.settimeout(SEND_LIMIT_S)
    return sender


def _for_latin_1(text: str) -> str:
    """Return a text whose Latin-1 bytes are the UTF-8 bytes of `text`: the library encodes so, systemd wants UTF-8."""
    return text.encode("utf-8", "replace").decode("latin-1")


def _status(text: str) -> tuple[str, ...]:
    """A line break would begin another assignment."""
    return (f"STATUS={redactor(' '.join(text.split()))}",) if text else ()
