"""Lines that are typed while the agent works: the terminal stays in its ordinary mode, and gives whole lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator

__all__ = ["TypedLines"]

READ_BYTES = 64 * 1024


class TypedLines:
    """Reads lines from a terminal while the block lasts. What is half typed at its end is left to the prompt.

    Args:
        on_line: called on the loop with each line; with None when the person ended the input (Ctrl-D).
    """

    def __init__(self, fd: int, on_line: Callable[[str | None], None]) -> None:
        self._fd = fd
        self._on_line = on_line
        self._depth = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read while the block lasts."""
        self._depth += 1
        self._listen()
        try:
            yield
        finally:
            self._depth -= 1
            self._loop.remove_reader(self._fd)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to somebody else, a question for instance, while the block lasts."""
        depth, self._depth = self._depth, 0
        if depth:
            self._loop.remove_reader(self._fd)
        try:
            yield
        finally:
            self._depth = depth
            if depth:
                self._listen()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _listen(self) -> None:
        self._loop.add_reader(self._fd, self._ready)

    def _ready(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
            self._on_line(None)
            return
        for line in data.decode("utf-8", "replace").splitlines():
            self._on_line(line)
