"""A program that exchanges JSON objects, one a line, on its standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from hermes_agent.system.process_tree import ProcessTree
from hermes_agent.system.processes import MARK, tool_environment

MOST_LINE = 16_000_000
"""Longest message, in bytes."""
MOST_GARBAGE = 50
"""Lines that are no messages, after which the program counts as broken."""
KEPT_ERRORS = 20
"""Pieces of the program's errors that are kept for a message."""
TICK_S = 0.05
GRACE_TICKS = 20
"""Ticks in which the program may end after SIGTERM."""


class ProgramEnded(Exception):
    """The program sends no further message; the text says why."""


class ProgramPipe:
    """A running program; made by `opened`, on the loop that uses it."""

    def __init__(self, process: subprocess.Popen[bytes], tree: ProcessTree) -> None:
        self._process = process
        self._tree = tree
        self._reader = asyncio.StreamReader(limit=MOST_LINE)
        self._writer: asyncio.StreamWriter
        self._errors: deque[str] = deque(maxlen=KEPT_ERRORS)
        self._garbage = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls, command: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[ProgramPipe]:
        """Start a program with a listed environment, and end it with all its processes.

        Args:
            env: variables in addition to those that every tool gets.

        Raises:
            OSError: the program cannot be started.
        """
        pipe = cls(*_start(command, cwd, env or {}))
        try:
            async with pipe._streams():
                yield pipe
        finally:
            await asyncio.shield(pipe._end())

    @contextlib.asynccontextmanager
    async def _streams(self) -> AsyncIterator[None]:
        loop, process = asyncio.get_running_loop(), self._process
        errors = asyncio.StreamReader()
        async with contextlib.AsyncExitStack() as stack:
            for reader, pipe in ((self._reader, process.stdout), (errors, process.stderr)):
                protocol = asyncio.StreamReaderProtocol(reader)
                transport, _ = await loop.connect_read_pipe(lambda protocol=protocol: protocol, pipe)  # type: ignore[misc]
                stack.callback(transport.close)
            flow = asyncio.streams.FlowControlMixin(loop)
            out, _ = await loop.connect_write_pipe(lambda: flow, process.stdin)
            stack.callback(out.close)
            self._writer = asyncio.StreamWriter(out, flow, None, loop)
            reading = asyncio.create_task(self._read_errors(errors))
            stack.callback(reading.cancel)
            yield

    async def _read_errors(self, errors: asyncio.StreamReader) -> None:
        while piece := await errors.read(4096):
            self._errors.append(piece.decode("utf-8", "replace"))

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send one object. Raise ProgramEnded if the program reads no more."""
        try:
            self._writer.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            await self._writer.drain()
        except OSError:
            raise await self._ended() from None

    async def receive(self) -> dict[str, Any]:
        """Return the next object; other lines are skipped. Raise ProgramEnded after the last one."""
        while self._garbage < MOST_GARBAGE:
            try:
                line = await self._reader.readline()
            except ValueError:
                raise ProgramEnded(f"it sent a line of more than {MOST_LINE:,} bytes") from None
            if not line:
                raise await self._ended()
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if isinstance(value, dict):
                return value
            self._garbage += bool(line.strip())
            await asyncio.sleep(0)  # other tasks run even during a flood of such lines
        raise ProgramEnded(f"what it prints is not the protocol: {MOST_GARBAGE} lines were no messages")

    async def _ended(self) -> ProgramEnded:
        for _ in range(GRACE_TICKS):  # its status and its errors come after the end of its output
            if self._status() is not None:
                break
            await asyncio.sleep(TICK_S)
        status = self._status()
        how = "it closed its output" if status is None else f"it ended with status {status}"
        said = "".join(self._errors).strip()
        return ProgramEnded(f"{how}: {said[-500:]}" if said else how)

    def _status(self) -> int | None:
        """Return the exit status without reaping the program, or None while it runs."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if ended is None else ended.si_status

    async def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            if not self._tree.signal(number):
                break
            for _ in range(GRACE_TICKS):
                if not self._tree.members():
                    break
                await asyncio.sleep(TICK_S)
        if not self._tree.members():
            self._process.wait()
        self._tree.reap()


def _start(command: Sequence[str], cwd: str, env: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], ProcessTree]:
    mark = secrets.token_hex(8)
    process = subprocess.Popen(
        list(command),
        env={**tool_environment(os.environ), **env, MARK: mark},
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    return process, ProcessTree(process.pid, f"{MARK}={mark}".encode())
