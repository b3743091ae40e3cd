"""An MCP server that is a program: its environment, its streams, and the end of all its processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hermes_agent.mcp import sdk
from hermes_agent.mcp.settings import McpServerSettings
from hermes_agent.system.program_pipe import GRACE_TICKS, TICK_S, PipedProgram, ProgramEnded

logger = logging.getLogger(__name__)
STDERR = logging.getLogger("hermes_agent.mcp.stderr")
"""Errors that servers print; they have a file of their own if the log is in files (`logs.setup`)."""

STDERR_LINE = 2_000
STDERR_LINES_S = 100
"""Lines of errors that are logged in a second."""
LAST_TICKS = 10


class StdioServer:
    """The program of a server. Used on the loop that creates it.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self, settings: McpServerSettings) -> None:
        self._name = settings.name
        cwd = Path(settings.cwd).expanduser() if settings.cwd else None
        self._program = PipedProgram([settings.command, *settings.args], cwd=cwd, env=settings.env)
        self._failure = ""
        self._has_ended = False

    @property
    def failure(self) -> str:
        """Why the connection ended: an error of the program, or its exit status; "" while it works."""
        if self._failure or self._has_ended:
            return self._failure
        status = self._program.status
        return "" if status is None else f"its program ended with status {status}"

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield the two streams for the SDK."""
        import anyio  # with the SDK

        to_session, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, from_session = anyio.create_memory_object_stream[Any](0)
        async with contextlib.AsyncExitStack() as stack:
            out, err, writer = await self._program.open(stack)
            work = (self._read(out, to_session), self._write(writer, from_session), self._log(err))
            tasks = [asyncio.create_task(each) for each in work]
            try:
                yield incoming, outgoing
            finally:
                for task in tasks:
                    task.cancel()
                for stream in (to_session, incoming, outgoing, from_session):
                    stream.close()

    async def _read(self, reader: asyncio.StreamReader, messages: Any) -> None:
        import anyio

        with messages, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                while (message := await self._program.receive(reader, sdk.decode)) is not None:
                    await messages.send(message)
            except ProgramEnded as exc:
                self._failure = str(exc)
                return
            for _ in range(LAST_TICKS):  # the session ends now, and its error needs the reason
                if not self.failure:
                    await asyncio.sleep(TICK_S)

    async def _write(self, writer: asyncio.StreamWriter, messages: Any) -> None:
        with contextlib.suppress(OSError):  # it reads no more; the end of its output ends the session
            async for message in messages:
                writer.write(sdk.encode(message))
                await writer.drain()

    async def _log(self, reader: asyncio.StreamReader) -> None:
        level = logging.DEBUG if STDERR.handlers else logging.INFO  # they have a file of their own
        loop = asyncio.get_running_loop()
        second, lines = 0, 0
        while data := await reader.read(65_536):
            if second != int(loop.time()):
                second, lines = int(loop.time()), 0
            for line in data.decode("utf-8", "replace").splitlines()[: max(0, STDERR_LINES_S - lines)]:
                lines += 1
                STDERR.log(level, "%s: %s", self._name, line[:STDERR_LINE])

    async def end(self) -> None:
        """End the program and all processes that it started, within a limited time."""
        self._failure, self._has_ended = self.failure, True
        self._program.close_input()
        for _ in range(GRACE_TICKS):
            if self._program.status is None:
                await asyncio.sleep(TICK_S)
        if remaining := await self._program.end():
            logger.warning("MCP server %s: processes could not be ended: %s", self._name, remaining)
