"""The prompt: a line that the person types, given up for a while when something else comes first.

Lines that are typed while the agent works: the terminal stays in its ordinary mode, and gives whole lines.

What is said next: lines that were typed while the agent worked, and what plugins push. From any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from hermes_agent.commands import HelpRow


class PromptCancelled(Exception):
    """The prompt was taken away; what was typed is kept for the next one."""


class LinePrompt:
    """Reads lines with history and completion. For the core loop.

    Args:
        entries: what can be completed.
    """

    def __init__(self, history: Path, entries: Callable[[], list[HelpRow]]) -> None:
        self._history = history
        self._entries = entries
        self._session: PromptSession[str] | None = None
        self._draft = ""

    async def read(self, prompt: str, *, is_wanted: Callable[[], bool]) -> str:
        """Return the line.

        Args:
            is_wanted: asked once the prompt can be given up: whether it is still to be shown.

        Raises:
            PromptCancelled: `give_up` was called, or it was not wanted.
            EOFError: the person left.
            KeyboardInterrupt: Ctrl-C.
        """
        if self._session is None:
            from hermes_agent.console.line_editor import line_editor  # prompt_toolkit costs 100 ms to import

            self._session = line_editor(self._history, self._entries)
        kept, self._draft = self._draft, ""

        def look_again() -> None:
            if not is_wanted():
                self.cancel()

        return await self._session.prompt_async(prompt, default=kept, pre_run=look_again)

    async def print_above(self, show: Callable[[], None]) -> None:
        """Write something, above the prompt if it is there."""
        app: Any = None if self._session is None else self._session.app
        if app is None or not app.is_running or app.is_done:
            show()
            return
        from prompt_toolkit.application import run_in_terminal  # loaded with the session
        from prompt_toolkit.application.current import set_app

        with set_app(app):
            await run_in_terminal(show)

    def cancel(self) -> None:
        """Take the prompt away, if it is there."""
        app: Any = None if self._session is None else self._session.app
        if app is not None and app.is_running and not app.is_done:
            assert self._session is not None
            self._draft = self._session.default_buffer.text
            app.exit(exception=PromptCancelled())


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


MAX_QUEUED = 32


class QueuedInput(NamedTuple):
    """One input."""

    text: str
    is_typed: bool = True
    """By the person; a plugin's text is never taken for a command."""


class InputQueue:
    """A bounded queue.

    Args:
        on_plugin: called, in the thread that pushes, when a plugin has pushed something.
    """

    def __init__(self, on_plugin: Callable[[], None]) -> None:
        self._on_plugin = on_plugin
        self._items: deque[QueuedInput] = deque()
        self._lock = threading.Lock()

    def add_typed(self, line: str) -> bool:
        """Let a line of the person wait; false when too much waits."""
        with self._lock:
            if len(self._items) >= MAX_QUEUED:
                return False
            self._items.append(QueuedInput(line))
            return True

    def add_injected(self, text: str) -> bool:
        """Let a plugin's text come next, after those of plugins that wait already; false when too much waits."""
        with self._lock:
            if len(self._items) >= MAX_QUEUED:
                return False
            place = next((i for i, said in enumerate(self._items) if said.is_typed), len(self._items))
            self._items.insert(place, QueuedInput(text, is_typed=False))
        self._on_plugin()
        return True

    def take(self) -> QueuedInput | None:
        """Return what comes next, or None."""
        with self._lock:
            return self._items.popleft() if self._items else None

    def __len__(self) -> int:
        return len(self._items)
