"""Tell systemd how the daemon is doing: the datagrams of sd_notify(3).

Own code, because the `sdnotify` package encodes as Latin-1 (systemd drops a STATUS that is not UTF-8) and leaves
the variables in the environment for every child.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping

from hermes_agent.core.redact import redactor

__all__ = ["Notifier"]

logger = logging.getLogger(__name__)

SEND_LIMIT_S = 0.5
"""Longest wait for a full socket; the core loop stands still meanwhile."""


class Notifier:
    """The notification socket of this process; every method does nothing when there is none.

    Args:
        address: value of NOTIFY_SOCKET: a path, or `@name` for an abstract socket; empty means no service manager.
        watchdog_s: seconds after which systemd takes a silent process for hung; None means no watchdog.
    """

    def __init__(self, address: str = "", *, watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s if address else None
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._failed = False
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(SEND_LIMIT_S)

    @classmethod
    def open(cls, environ: MutableMapping[str, str] | None = None) -> Notifier:
        """Take the socket out of the environment, so that no child process can speak for the daemon.

        Args:
            environ: read and changed; None means the process's own.
        """
        env = os.environ if environ is None else environ
        address = env.pop("NOTIFY_SOCKET", "")
        usec, pid = env.pop("WATCHDOG_USEC", ""), env.pop("WATCHDOG_PID", "")
        meant = not pid or pid == str(os.getpid())
        watchdog_s = int(usec) / 1e6 if meant and usec.isdigit() and int(usec) > 0 else None
        return cls(address, watchdog_s=watchdog_s)

    @property
    def active(self) -> bool:
        """Whether a service manager listens."""
        return self._socket is not None

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

    def stopping(self, status: str = "") -> None:
        """Say that the daemon is about to end."""
        self._send("STOPPING=1", *_status(status))

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def close(self) -> None:
        """Close the socket; later calls do nothing."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *assignments: str) -> None:
        if self._socket is None or not assignments:
            return
        try:
            # Not connected: the address stays valid when systemd re-executes itself.
            self._socket.sendto("\n".join(assignments).encode("utf-8", "replace"), self._address)
            self._failed = False
        except OSError as exc:
            if not self._failed:
                logger.warning("cannot tell the service manager %s: %s", assignments[0], exc)
            self._failed = True


def _status(text: str) -> tuple[str, ...]:
    """A line break would begin another assignment."""
    return (f"STATUS={redactor(' '.join(text.split()))}",) if text else ()
