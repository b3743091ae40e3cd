"""An MCP server that is a program: its environment, its streams, and the end of all its processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

from hermes_agent.mcp import sdk
from hermes_agent.mcp.settings import McpServerSettings
from hermes_agent.system.process_tree import ProcessTree
from hermes_agent.system.processes import MARK, tool_environment

logger = logging.getLogger(__name__)
STDERR = logging.getLogger("hermes_agent.mcp.stderr")
"""Errors that servers print; they have a file of their own if the log is in files (`logs.setup`)."""

MOST_LINE = 16_000_000
"""Longest message, in bytes."""
MOST_GARBAGE = 50
"""Lines that are no messages, after which the connection fails."""
STDERR_LINE = 2_000
STDERR_LINES_S = 100
"""Lines of errors that are logged in a second."""
TICK_S = 0.05
LAST_TICKS = 10
GRACE_TICKS = 40
"""Ticks in which the program may end after its input is closed, and again after SIGTERM."""


class StdioServer:
    """The program of a server. Used on the loop that creates it.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self, settings: McpServerSettings) -> None:
        self._name = settings.name
        mark = secrets.token_hex(8)
        self._process = subprocess.Popen(
            [settings.command, *settings.args],
            env={**tool_environment(os.environ), **settings.env, MARK: mark},
            cwd=Path(settings.cwd).expanduser() if settings.cwd else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._tree = ProcessTree(self._process.pid, f"{MARK}={mark}".encode())
        self._failure = ""
        self._has_ended = False

    @property
    def failure(self) -> str:
        """Why the connection ended: an error of the program, or its exit status; "" while it works."""
        if self._failure or self._has_ended:
            return self._failure
        status = self._status()
        return "" if status is None else f"its program ended with status {status}"

    def _status(self) -> int | None:
        """Return the exit status without reaping the program, or None while it runs."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if ended is None else ended.si_status

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield the two streams for the SDK."""
        import anyio  # with the SDK

        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        to_session, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, from_session = anyio.create_memory_object_stream[Any](0)
        async with contextlib.AsyncExitStack() as stack:
            out, err = [await _reader(stack, pipe) for pipe in (process.stdout, process.stderr)]
            writer = await _writer(stack, process.stdin)
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

        garbage = 0
        with messages, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while garbage < MOST_GARBAGE:
                try:
                    line = await reader.readline()
                except ValueError:
                    self._failure = f"it sent a line of more than {MOST_LINE:,} bytes"
                    return
                if not line:
                    break
                try:
                    message = sdk.decode(line)
                except ValueError:
                    garbage += bool(line.strip())
                    await asyncio.sleep(0)  # other tasks run even during a flood of such lines
                    continue
                await messages.send(message)
            if garbage == MOST_GARBAGE:
                self._failure = f"what it prints is not the protocol: {MOST_GARBAGE} lines were no messages"
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
        process = self._process
        self._failure, self._has_ended = self.failure, True
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        for _ in range(GRACE_TICKS):
            if self._status() is None:
                await asyncio.sleep(TICK_S)
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            if not self._tree.signal(number):
                break
            for _ in range(GRACE_TICKS):
                if not self._tree.members():
                    break
                await asyncio.sleep(TICK_S)
        if remaining := self._tree.members():
            logger.warning("MCP server %s: processes could not be ended: %s", self._name, sorted(remaining))
        else:
            process.wait()
        self._tree.reap()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


async def _reader(stack: contextlib.AsyncExitStack, pipe: IO[bytes]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MOST_LINE)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    stack.callback(transport.close)
    return reader


async def _writer(stack: contextlib.AsyncExitStack, pipe: IO[bytes]) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    protocol = asyncio.streams.FlowControlMixin(loop)
    transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
    stack.callback(transport.close)
    return asyncio.StreamWriter(transport, protocol, None, loop)
