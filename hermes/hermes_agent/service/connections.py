"""Limits on open connections, and on open files of the process.

If there are too many connections, a waiting one gives way to a new one, first those without a valid key. A connection
with a key and a request in progress never does. So a peer that only opens connections takes no slot from one that sends
requests.
"""

from __future__ import annotations

import logging
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

logger = logging.getLogger(__name__)

Stage = Literal["head", "answered", "body", "kept", "busy"]
"""What a connection waits for.

Without a key: `head` has sent no request yet, `answered` sends no other, `body` still sends one. With a key: `kept`
waits for the next request, `busy` has one in progress.
"""
GIVES_WAY: tuple[Stage, ...] = ("head", "answered", "body", "kept")
"""In this order."""
LOG_EVERY_S = 60.0


class CountedConnection(Protocol):
    """A connection that is counted."""

    peer: str
    """The user or address at its other end."""

    def stage(self) -> Stage:
        """Return what it waits for."""
        ...

    def give_way(self) -> None:
        """Close it immediately."""
        ...


class Connections:
    """The open connections, oldest first.

    Args:
        most: largest number of connections.
        most_of_peer: largest number of connections of one peer.
        door, hint: name of the listener in the log, and what to do about a full one.
        clock: seconds, for the log.
    """

    def __init__(
        self,
        most: int,
        most_of_peer: int,
        *,
        door: str,
        hint: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._most_of_peer = most_of_peer
        self._open: dict[str, dict[CountedConnection, None]] = {}
        self._count = 0
        self._log = _Summary(door, hint, clock)

    def __len__(self) -> int:
        return self._count

    def admit(self, one: CountedConnection) -> bool:
        """Count a new connection; return False if there is no slot and no connection gives way."""
        of_peer = self._open.get(one.peer, {})
        if len(of_peer) >= self._most_of_peer and not self._make_room([one.peer]):
            self._log.refused(one.peer, f"at most {self._most_of_peer} of one peer")
            return False
        if self._count >= self._most and not self._make_room(self._by_number()):
            self._log.refused(one.peer, f"at most {self._most} connections")
            return False
        self._open.setdefault(one.peer, {})[one] = None
        self._count += 1
        return True

    def remove(self, one: CountedConnection) -> None:
        """Remove a connection; no effect if it was not counted."""
        of_peer = self._open.get(one.peer, {})
        if one in of_peer:
            del of_peer[one]
            self._count -= 1
            if not of_peer:
                del self._open[one.peer]

    def _by_number(self) -> list[str]:
        return sorted(self._open, key=lambda peer: len(self._open[peer]), reverse=True)

    def _make_room(self, peers: Sequence[str]) -> bool:
        """Close the connection of least use; of several the oldest of the first peer."""
        least: dict[Stage, tuple[str, CountedConnection]] = {}
        for peer in peers:
            for one in self._open[peer]:
                least.setdefault(one.stage(), (peer, one))
            if GIVES_WAY[0] in least:
                break
        found = next((least[stage] for stage in GIVES_WAY if stage in least), None)
        if found is None:
            return False
        peer, one = found
        self.remove(one)
        self._log.closed(peer)
        one.give_way()
        return True


class _Summary:
    """One log line for many rejected connections."""

    def __init__(self, door: str, hint: str, clock: Callable[[], float]) -> None:
        self._door = door
        self._hint = hint
        self._clock = clock
        self._next = 0.0
        self._closed: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def closed(self, peer: str) -> None:
        self._closed[peer] += 1
        self._log("they gave way")

    def refused(self, peer: str, why: str) -> None:
        self._refused[peer] += 1
        self._log(why)

    def _log(self, why: str) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LOG_EVERY_S
        (peer, number), *_ = (self._closed + self._refused).most_common(1)
        logger.warning(
            "%s: too many connections: %d that waited were closed, %d were refused (%s); most from %s (%d). %s",
            *(self._door, self._closed.total(), self._refused.total(), why, peer, number, self._hint),
        )
        self._closed.clear()
        self._refused.clear()


ENOUGH = 65536
"""With a hard limit of millions, programs that close all possible descriptors take minutes to start."""


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one (at most `ENOUGH`), and return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as exc:
        logger.warning("open files: the limit stays at %d: %s", soft, exc)
        return soft
    return wanted


def limit_connections(connections: int) -> int:
    """Return how many of these connections may be open: half of the descriptors stay for other uses."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or connections <= soft // 2:
        return connections
    logger.warning(
        "http: at most %d connections instead of %d (server.max_connections): the limit of open files is %d; "
        "raise LimitNOFILE= in the unit, or `ulimit -Hn`",
        *(max(1, soft // 2), connections, soft),
    )
    return max(1, soft // 2)
