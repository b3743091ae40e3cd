"""Connections and ends of pipes that are never waited for, and two connections that are made one. Imports little."""

from __future__ import annotations

import contextlib
import os
import select
import socket

__all__ = ["READ_BYTES", "JoinedConnections", "BufferedPipe", "wait_ready"]

READ_BYTES = 65_536
MAX_BUFFERED = 1_000_000


class BufferedPipe:
    """A connection, or one end of a pipe, that is never waited for: what cannot be written yet is kept."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()
        self.open = True
        os.set_blocking(fd, False)

    @property
    def is_full(self) -> bool:
        """Whether no more should be added."""
        return len(self.waiting) > MAX_BUFFERED

    def read(self) -> bytes | None:
        """Return what came; nothing at the end, None when there is nothing now."""
        try:
            return os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # a terminal whose other end is closed says EIO
            return b""

    def write(self) -> None:
        """Write what can be written now; to who does not listen any more nothing is."""
        try:
            del self.waiting[: os.write(self.fd, self.waiting)]
        except BlockingIOError:
            return
        except OSError:
            self.open = False
            self.waiting.clear()


def wait_ready(
    reading: list[BufferedPipe], writing: list[BufferedPipe], others: tuple[int, ...] = (), limit_s: float | None = None
) -> set[int]:
    """Wait until one of them can go on, at most `limit_s`; return the descriptors that can be read."""
    poll = select.poll()
    wanted: dict[int, int] = dict.fromkeys(others, select.POLLIN)
    for line in reading:
        wanted[line.fd] = wanted.get(line.fd, 0) | select.POLLIN
    for line in writing:
        if line.waiting:
            wanted[line.fd] = wanted.get(line.fd, 0) | select.POLLOUT
    for fd, events in wanted.items():
        poll.register(fd, events)
    ready = dict(poll.poll(None if limit_s is None else max(limit_s, 0) * 1000))
    for line in writing:
        if line.waiting and ready.get(line.fd, 0) & ~select.POLLIN:
            line.write()
    return {fd for fd, events in ready.items() if events & ~select.POLLOUT}


class JoinedConnections:
    """Two connections that are one: what comes at either goes to the other."""

    def __init__(self, one: socket.socket, other: socket.socket) -> None:
        self._ends = (one, other)
        self._lines = (BufferedPipe(one.fileno()), BufferedPipe(other.fileno()))
        self._ended = [False, False]
        """By end: nothing more comes from it."""
        self._passed = [False, False]
        """By end: the end of its data was passed on."""

    @property
    def reading(self) -> list[BufferedPipe]:
        """The ends to read from now."""
        return [self._lines[at] for at in (0, 1) if not self._ended[at] and not self._lines[1 - at].is_full]

    @property
    def writing(self) -> list[BufferedPipe]:
        """The ends to write to."""
        return list(self._lines)

    def step(self, ready: set[int]) -> bool:
        """Pass on what came; false when both have ended, or one broke off."""
        for at in (0, 1):
            line, to = self._lines[at], self._lines[1 - at]
            if not self._ended[at] and line.fd in ready and (data := line.read()) is not None:
                to.waiting += data
                self._ended[at] = not data
            if self._ended[at] and not to.waiting and not self._passed[at]:
                self._passed[at] = True
                with contextlib.suppress(OSError):
                    self._ends[1 - at].shutdown(socket.SHUT_WR)
        return not all(self._passed) and all(line.open for line in self._lines)

    def close(self) -> None:
        """Close both."""
        for end in self._ends:
            end.close()
