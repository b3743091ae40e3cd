"""The network of commands in units of systemd: each hands over a socket that listens in its unit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

from hermes_agent.io.unit_network import is_listening
from hermes_agent.workspace.egress.broker import Broker
from hermes_agent.workspace.egress.deciding import Deciding, Work

__all__ = ["Units"]

logger = logging.getLogger(__name__)

MOST_UNITS = 64
"""Units with a network at once; as many as `hermes-exec.socket` starts."""
HAND_OVER_S = 10.0
LONGEST_KEY = 1000


class Units:
    """On the broker's loop.

    Args:
        work: returns the call under way of a session.
    """

    def __init__(self, deciding: Deciding, work: Callable[[str], Work | None]) -> None:
        self._deciding, self._work = deciding, work
        self.path = ""
        """Where sockets are handed over; only the agent's user reaches it."""
        self._listening: socket.socket | None = None
        self._taking: asyncio.Task[None] | None = None
        self._served: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to take sockets."""
        self.path = str(Path(tempfile.mkdtemp(prefix="hermes-network-"), "socket"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen(MOST_UNITS)
        self._listening.setblocking(False)
        self._taking = asyncio.create_task(self._take(self._listening))

    async def close(self) -> None:
        """End all connections, and take no more."""
        tasks = [*self._served, *([self._taking] if self._taking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        shutil.rmtree(Path(self.path).parent, ignore_errors=True)

    async def _take(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listening)
            if len(self._served) >= MOST_UNITS:
                connection.close()
                continue
            task = asyncio.create_task(self._serve(connection))
            self._served.add(task)
            task.add_done_callback(self._served.discard)

    async def _serve(self, connection: socket.socket) -> None:
        """Lead one unit's commands out until its end of the connection is closed."""
        with connection, contextlib.ExitStack() as opened:
            try:
                key, fds = await asyncio.to_thread(_handed_over, connection)
            except OSError as exc:
                logger.debug("network: a unit hung up: %s", exc)
                return
            sockets = [opened.enter_context(socket.socket(fileno=fd)) for fd in fds]
            if len(sockets) != 1 or not is_listening(sockets[0]):
                logger.warning("network: what a unit handed over is no socket that takes connections")
                return
            sockets[0].setblocking(False)
            first = self._work(key)

            def work() -> tuple[Work | None, bool]:
                now = self._work(key)
                return (first, False) if now is None else (now, True)

            broker = Broker(sockets, None, self._deciding, work)
            await broker.open()
            try:
                connection.setblocking(False)
                await asyncio.get_running_loop().sock_recv(connection, 1)
            except OSError:
                logger.debug("network: a unit broke off")
            finally:
                await broker.close()


def _handed_over(connection: socket.socket) -> tuple[str, list[int]]:
    connection.settimeout(HAND_OVER_S)
    data, fds, _, _ = socket.recv_fds(connection, LONGEST_KEY, 4)
    for fd in fds:
        os.set_inheritable(fd, False)
    return data.decode("utf-8", "replace"), list(fds)
