"""What the console shows and reads: the interface of a screen, and the plain screen of lines.

The plain screen only appends lines. It serves dumb terminals, screen readers and output that is no terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TextIO

from hermes_agent.console.menus import Menu, MenuAnswer
from hermes_agent.console.styled import Line, Theme, line, plain

PROMPT = "❯ "
READ_BYTES = 64 * 1024


class InputHandler(Protocol):
    """What a screen calls with the user's input, on the event loop."""

    def on_line(self, text: str) -> None:
        """Take what was submitted."""
        ...

    def on_interrupt(self) -> None:
        """Take Ctrl-C."""
        ...

    def on_end(self) -> None:
        """Take the end of the input: Ctrl-D, or a terminal that is gone."""
        ...

    def take_back(self) -> str:
        """Remove the last message from the queue and return it."""
        ...

    def steer_queued(self) -> None:
        """Give the messages that wait to the running turn."""
        ...

    def paste_image(self) -> None:
        """Insert the image of the clipboard."""
        ...

    def toggle_verbose(self) -> None:
        """Show tool results and reasoning, or hide them."""
        ...


class Screen(Protocol):
    """Where the console writes and reads. For the event loop alone."""

    theme: Theme
    is_live: bool
    """Whether it redraws; otherwise it only appends."""
    echoes_input: bool
    """Whether what the user types stays on it."""

    @property
    def width(self) -> int:
        """Columns."""
        ...

    def print(self, lines: Iterable[Line]) -> None:
        """Append finished lines."""
        ...

    def show(self, finished: Sequence[Line], live: Sequence[Line]) -> None:
        """Append finished lines, and replace the lines below them, in one frame."""
        ...

    def show_live(self, lines: Sequence[Line]) -> None:
        """Replace the lines below the finished ones."""
        ...

    def show_status(self, line: Line) -> None:
        """Show the status bar."""
        ...

    def show_background(self, lines: Sequence[Line]) -> None:
        """Show what works in the background, above the status bar."""
        ...

    def set_busy(self, is_busy: bool) -> None:
        """Say whether a turn runs."""
        ...

    def set_queue(self, texts: Sequence[str]) -> None:
        """Show the messages that wait for the end of the turn."""
        ...

    def set_theme(self, theme: Theme) -> None:
        """Use another theme from now on."""
        ...

    def set_editing_mode(self, name: str) -> None:
        """Use the keys of `emacs` or `vi` from now on."""
        ...

    def fill_input(self, text: str) -> None:
        """Put a text into the input."""
        ...

    def insert_input(self, text: str) -> None:
        """Insert a text into the input."""
        ...

    def clear(self) -> None:
        """Clear what is shown."""
        ...

    def write_escape(self, sequence: str) -> bool:
        """Write an escape sequence that shows nothing; return False where there is no terminal for it."""
        ...

    async def choose(self, menu: Menu) -> MenuAnswer | None:
        """Return the answer of the user, or None when the menu was cancelled."""
        ...

    async def ask(self, prompt: str) -> str | None:
        """Return a line that answers a question; it is kept out of the history. None when it was cancelled."""
        ...

    async def run(self, handler: InputHandler) -> None:
        """Read input until `stop` is called."""
        ...

    def stop(self) -> None:
        """End `run`."""
        ...


class PlainScreen:
    """Appends lines to a stream and reads whole lines from the terminal.

    Args:
        reads: whether input is read; otherwise `run` returns when `stop` is called.
    """

    is_live = False

    def __init__(self, out: TextIO, theme: Theme, *, reads: bool) -> None:
        self.theme = theme
        self._out = out
        self._reads = self.echoes_input = reads and sys.stdin.isatty()
        self._handler: InputHandler | None = None
        self._answer: asyncio.Future[str | None] | None = None
        self._stopped = asyncio.Event()
        self._is_busy = False
        self._has_prompt = False
        self._half = ""

    @property
    def width(self) -> int:
        """Columns; 80 where the output is no terminal."""
        return shutil.get_terminal_size().columns if self._out.isatty() else 80

    def print(self, lines: Iterable[Line]) -> None:
        """Append lines."""
        coloured = self.theme.has_colour and self._out.isatty()
        text = "".join(f"{self.theme.ansi(each) if coloured else plain(each)}\n" for each in lines)
        self._end_prompt()
        self._out.write(text)
        self._out.flush()
        self._show_prompt()

    def show(self, finished: Sequence[Line], live: Sequence[Line]) -> None:
        """Append the finished lines."""
        self.print(finished)

    def show_live(self, lines: Sequence[Line]) -> None:
        """Show nothing: what changes is not repeated here."""

    def show_status(self, line: Line) -> None:
        """Show nothing: `/usage` and `/context` say it."""

    def show_background(self, lines: Sequence[Line]) -> None:
        """Show nothing, as for the status."""

    def set_busy(self, is_busy: bool) -> None:
        """Show the prompt between turns."""
        self._is_busy = is_busy
        if is_busy:
            self._end_prompt()
        self._show_prompt()

    def set_queue(self, texts: Sequence[str]) -> None:
        """Show nothing: the console says when a message is queued."""

    def set_theme(self, theme: Theme) -> None:
        """Use another theme from now on."""
        self.theme = theme

    def set_editing_mode(self, name: str) -> None:
        """Do nothing: the terminal edits the line."""

    def fill_input(self, text: str) -> None:
        """Show the text: the terminal's own line cannot be changed."""
        self.print([line(each) for each in text.split("\n")])

    def insert_input(self, text: str) -> None:
        """Show the text, as `fill_input`."""
        self.fill_input(text)

    def clear(self) -> None:
        """Clear the terminal's screen, where there is one."""
        if self._out.isatty() and os.environ.get("TERM") not in ("dumb", None):
            self._out.write("\x1b[H\x1b[2J")

    def write_escape(self, sequence: str) -> bool:
        """Write an escape sequence, where there is a terminal that knows some."""
        if not self._out.isatty() or os.environ.get("TERM") in ("dumb", None):
            return False
        self._out.write(sequence)
        self._out.flush()
        return True

    async def choose(self, menu: Menu) -> MenuAnswer | None:
        """Ask by numbers and letters."""
        options = list(menu.options)
        self.print(menu.title)
        for number, option in enumerate(options, 1):
            key = option.key or str(number)
            details = f"  {option.details}" if option.details else ""
            self.print([line(f"  [{key}] {option.label}{details}")])
        while True:
            typed = await self.ask("Answer: ")
            if typed is None or not typed.strip():
                return None
            found = Menu((), options).find(typed.strip()) or next(
                (o for o in options if o.value == typed.strip()), None
            )
            if found is None:
                self.print([line(f"{typed.strip()!r} is none of the answers.")])
            elif found.asks:
                return MenuAnswer(found.value, await self.ask(found.asks) or "")
            else:
                return MenuAnswer(found.value)

    async def ask(self, prompt: str) -> str | None:
        """Ask for a line."""
        if not self._reads:
            return None
        self._end_prompt()
        self._out.write(prompt)
        self._out.flush()
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    async def run(self, handler: InputHandler) -> None:
        """Read lines until `stop` is called."""
        self._handler = handler
        loop = asyncio.get_running_loop()
        if self._reads:
            loop.add_reader(sys.stdin.fileno(), self._read)
            self._show_prompt()
        try:
            await self._stopped.wait()
        finally:
            if self._reads:
                loop.remove_reader(sys.stdin.fileno())
            self._end_prompt()

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def cancel_question(self) -> bool:
        """Cancel the open question; return whether there was one."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(None)
        return True

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the terminal is gone
            data = b""
        self._has_prompt = False
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._end()
            return
        self._half += data.decode("utf-8", "replace")
        *lines, self._half = self._half.split("\n")
        for each in lines:
            self._take(each)

    def _take(self, text: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)
        elif self._handler is not None:
            self._handler.on_line(text)

    def _end(self) -> None:
        self.cancel_question()
        if self._handler is not None:
            self._handler.on_end()

    def _show_prompt(self) -> None:
        wanted = self._reads and self._handler is not None and not self._is_busy and not self._stopped.is_set()
        if wanted and not self._has_prompt and self._answer is None:
            self._out.write(PROMPT)
            self._out.flush()
            self._has_prompt = True

    def _end_prompt(self) -> None:
        if self._has_prompt:
            self._has_prompt = False
            with contextlib.suppress(ValueError):
                self._out.write("\n")


@contextlib.contextmanager
def handled_signals(interrupt: Callable[[], None], leave: Callable[[int], None]) -> Iterator[None]:
    """Let SIGINT interrupt, and signals that end a program leave with 128 and their number, in the block."""
    loop = asyncio.get_running_loop()
    handled = [signal.SIGINT, *ending_signals()]
    for number in handled:
        if number == signal.SIGINT:
            loop.add_signal_handler(number, interrupt)
        else:
            loop.add_signal_handler(number, leave, 128 + number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGXCPU")


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a program and that can be caught, without those that a plugin handles."""
    always = (signal.SIGTERM, signal.SIGHUP)
    found = [signal.Signals[name] for name in ENDING]
    return [each for each in found if each in always or signal.getsignal(each) == signal.SIG_DFL]


def pick_screen(
    make_theme: Callable[[bool], Theme],
    *,
    screen_reader: bool,
    make_live: Callable[[Theme], Screen],
    reads: bool = True,
) -> Screen:
    """Return the screen for this process's terminal.

    Args:
        make_theme: returns the theme, with or without colours.
        screen_reader: whether the user asked for lines that are only appended.
        make_live: makes the live screen, where the terminal can redraw.
    """
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    can_redraw = os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    theme = make_theme(can_redraw and not os.environ.get("NO_COLOR"))
    if reads and is_terminal and can_redraw and not screen_reader:
        return make_live(theme)
    return PlainScreen(sys.stdout, theme, reads=reads)
