"""Bytes from one connection to another, both ways, until both have ended or nothing moves any more."""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["IDLE_S", "Ends", "relay"]

IDLE_S = 900.0
"""How long a connection may be silent."""
PIECE = 65_536

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def relay(command: Ends, server: Ends, moved: list[int]) -> None:
    """Pass bytes on; `moved` counts those that were sent and received.

    Raises:
        OSError: one side broke off.
        TimeoutError: nothing moved for `IDLE_S`.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE_S) as limit:

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: int) -> None:
            while piece := await source.read(PIECE):
                moved[way] += len(piece)
                limit.reschedule(loop.time() + IDLE_S)
                sink.write(piece)
                await sink.drain()
            with contextlib.suppress(OSError):
                sink.write_eof()

        async with asyncio.TaskGroup() as both:
            both.create_task(pump(command[0], server[1], 0))
            both.create_task(pump(server[0], command[1], 1))
