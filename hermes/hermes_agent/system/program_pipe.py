"""Programs that exchange messages, one a line, on their standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from hermes_agent.system.process_tree import ProcessTree
from hermes_agent.system.processes import MARK, tool_environment

T = TypeVar("T")
MOST_LINE = 16_000_000
"""Longest message, in bytes."""
MOST_GARBAGE = 50
"""Lines that are no messages, after which the program counts as broken."""
KEPT_ERRORS = 20
"""Pieces of the program's errors that are kept for a message."""
TICK_S = 0.05
GRACE_TICKS = 40
"""Ticks in which a program may end after SIGTERM, and in which its status comes after the end of its output."""


class ProgramEnded(Exception):
    """The program sends no further message; the text says why."""


class PipedProgram:
    """A program with its pipes and all processes that it starts; used on one loop.

    Args:
        env: variables in addition to those that every tool gets.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        mark = secrets.token_hex(8)
        self._process = subprocess.Popen(
            list(command),
            env={**tool_environment(os.environ), **(env or {}), MARK: mark},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._tree = ProcessTree(self._process.pid, f"{MARK}={mark}".encode())
        self._garbage = 0

    @property
    def status(self) -> int | None:
        """The exit status, without reaping the program; None while it runs."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if ended is None else ended.si_status

    async def open(
        self, stack: contextlib.AsyncExitStack
    ) -> tuple[asyncio.StreamReader, asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of its output, errors and input, which the stack closes."""
        process, loop = self._process, asyncio.get_running_loop()
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        out, errors = [await _reader(stack, pipe) for pipe in (process.stdout, process.stderr)]
        protocol = asyncio.streams.FlowControlMixin(loop)
        transport, _ = await loop.connect_write_pipe(lambda: protocol, process.stdin)
        stack.callback(transport.close)
        return out, errors, asyncio.StreamWriter(transport, protocol, None, loop)

    async def receive(self, out: asyncio.StreamReader, decode: Callable[[bytes], T]) -> T | None:
        """Return the next message, or None at the end of the output.

        Args:
            decode: raises ValueError for a line that is no message, which is skipped.

        Raises:
            ProgramEnded: what it prints is not the protocol.
        """
        while self._garbage < MOST_GARBAGE:
            try:
                line = await out.readline()
            except ValueError:
                raise ProgramEnded(f"it sent a line of more than {MOST_LINE:,} bytes") from None
            if not line:
                return None
            try:
                return decode(line)
            except ValueError:
                self._garbage += bool(line.strip())
                await asyncio.sleep(0)  # other tasks run even during a flood of such lines
        raise ProgramEnded(f"what it prints is not the protocol: {MOST_GARBAGE} lines were no messages")

    def close_input(self) -> None:
        """Close its input, which tells it to end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    async def end(self) -> list[int]:
        """End the program with all its processes, within a limited time; return those that could not be ended."""
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            if not self._tree.signal(number):
                break
            for _ in range(GRACE_TICKS):
                if not self._tree.members():
                    break
                await asyncio.sleep(TICK_S)
        if not (remaining := sorted(self._tree.members())):
            self._process.wait()
        self._tree.reap()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        return remaining


async def _reader(stack: contextlib.AsyncExitStack, pipe: IO[bytes]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MOST_LINE)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    stack.callback(transport.close)
    return reader


class ProgramPipe:
    """A running program that exchanges JSON objects; made by `opened`."""

    def __init__(self, program: PipedProgram, out: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._program, self._out, self._writer = program, out, writer
        self._errors: deque[str] = deque(maxlen=KEPT_ERRORS)

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
        program = PipedProgram(command, cwd=cwd, env=env)
        try:
            async with contextlib.AsyncExitStack() as stack:
                out, errors, writer = await program.open(stack)
                pipe = cls(program, out, writer)
                reading = asyncio.create_task(pipe._read_errors(errors))
                stack.callback(reading.cancel)
                yield pipe
        finally:
            await asyncio.shield(program.end())

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
        message = await self._program.receive(self._out, _decode_object)
        if message is None:
            raise await self._ended()
        return message

    async def _ended(self) -> ProgramEnded:
        for _ in range(GRACE_TICKS):  # its status and its errors come after the end of its output
            if self._program.status is not None:
                break
            await asyncio.sleep(TICK_S)
        status = self._program.status
        how = "it closed its output" if status is None else f"it ended with status {status}"
        said = "".join(self._errors).strip()
        return ProgramEnded(f"{how}: {said[-500:]}" if said else how)


def _decode_object(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
