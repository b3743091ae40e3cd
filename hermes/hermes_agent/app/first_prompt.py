"""The prompt of a chat, shown before the agent is loaded.

The terminal takes keys at once, also while a worker imports modules. Plugins are loaded in the main thread without a
running event loop, as in every other command. What the user sends meanwhile waits for the console.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_agent.config import Config
from hermes_agent.console import skins
from hermes_agent.console.screen import Screen, pick_screen
from hermes_agent.console.styled import Theme, line, printable

if TYPE_CHECKING:
    from hermes_agent.commands import HelpRow
    from hermes_agent.console.console import Console
    from hermes_agent.console.input import PasteStore
    from hermes_agent.console.live_screen import LiveScreen

WAITS = "a message for the agent that is loaded"
"""Shown in place of an early message: its secrets are not known yet."""
LOADED = "hermes_agent.app.chat"
"""The module that imports everything else that a chat needs."""
T = TypeVar("T")


class ChatSources:
    """Completions and pastes of a chat's screen: of the console, once there is one.

    Args:
        directory: the working directory.
    """

    def __init__(self, directory: Path) -> None:
        self.console: Console | None = None
        self._after_load: list[Callable[[], None]] = []
        self.directory = directory
        self._pastes: PasteStore | None = None

    def attach(self, console: Console) -> None:
        """Set the console, when the agent is loaded."""
        self.console = console
        for action in self._after_load:
            action()
        self._after_load.clear()

    def after_load(self, action: Callable[[], None]) -> None:
        """Call `action` when the agent is loaded; immediately if it is."""
        if self.console is None:
            self._after_load.append(action)
        else:
            action()

    @property
    def pastes(self) -> PasteStore:
        """The long pastes of the chat."""
        if self._pastes is None:
            from hermes_agent.console.input import PasteStore  # not before the first prompt

            self._pastes = PasteStore(self.directory)
        return self._pastes

    def commands(self) -> list[HelpRow]:
        """Return the commands and skills."""
        return [] if self.console is None else self.console.help_rows()

    def arguments(self, name: str) -> list[tuple[str, str]]:
        """Return the values that complete the argument of a command; in a worker."""
        from hermes_agent.console.slash_commands import argument_values

        return [] if self.console is None else argument_values(self.console, self.console.slash.commands, name)

    def sessions(self) -> list[tuple[str, str]]:
        """Return the sessions that `@session:` completes; in a worker."""
        from hermes_agent.console.slash_commands import known_sessions

        return [] if self.console is None else known_sessions(self.console)

    def fold_paste(self, text: str) -> str:
        """Return what is inserted for a paste."""
        return self.pastes.fold(text)


def make_screen(config: Config, home: Path, sources: ChatSources, *, reads: bool = True) -> Screen:
    """Return the screen that fits the terminal and the config."""
    display = config.settings.display

    def make_live(theme: Theme) -> Screen:
        # prompt_toolkit costs 60 ms to import
        from hermes_agent.console.line_editor import CompletionSource, hint_for, input_buffer
        from hermes_agent.console.live_screen import LiveScreen

        source = CompletionSource(sources.commands, sources.arguments, sources.sessions, lambda: sources.directory)
        return LiveScreen(
            theme,
            partial(input_buffer, home / "history", sources.after_load, source),
            lambda text: hint_for(text, sources.commands),
            editing_mode=display.editing_mode,
            fold_paste=sources.fold_paste,
        )

    def make_theme(has_colour: bool) -> Theme:
        return skins.make_theme(home, display.skin, has_colour=has_colour)

    return pick_screen(make_theme, screen_reader=display.screen_reader, make_live=make_live, reads=reads)


class EarlyInput:
    """What the user sends before the console reads (`screen.InputHandler`)."""

    def __init__(self, screen: Screen) -> None:
        self.status: int | None = None
        """The exit status, once the user has left."""
        self._screen = screen
        self._lines: list[str] = []

    def on_line(self, text: str) -> None:
        """Keep a text for the console."""
        self._lines.append(text)
        self._show_queue()

    def on_interrupt(self) -> None:
        """Leave."""
        self.leave(128 + signal.SIGINT)

    def on_end(self) -> None:
        """Leave."""
        self.leave(0)

    def take_back(self) -> str:
        """Remove the last text and return it."""
        text = self._lines.pop() if self._lines else ""
        self._show_queue()
        return text

    def steer_queued(self) -> None:
        """Do nothing: no turn runs."""

    def paste_image(self) -> None:
        """Do nothing: nothing reads the clipboard yet."""

    def toggle_verbose(self) -> None:
        """Do nothing: nothing is shown yet."""

    def leave(self, status: int) -> None:
        """Leave as soon as the event loop runs."""
        self.status = status

    def _show_queue(self) -> None:
        self._screen.set_queue([WAITS] * len(self._lines))

    def hand_over(self, console: Console) -> None:
        """Give the console what it would have got."""
        self._screen.set_queue(())
        for text in self._lines:
            console.on_line(text)
        if self.status is not None:
            console.leave(self.status)


class OpenedScreen:
    """A live screen that already reads, and its input so far."""

    def __init__(self, screen: LiveScreen, sources: ChatSources) -> None:
        self.screen = screen
        self.sources = sources
        self.early = EarlyInput(screen)

    async def show_prompt(self) -> None:
        """Show the prompt, and import in a worker what the chat needs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the console handles more of them
            loop.add_signal_handler(number, self.early.leave, 128 + number)
        self.screen.show_status(line("  loading the agent …", "status"))
        await self.screen.begin(self.early)
        await asyncio.to_thread(importlib.import_module, LOADED)
        await asyncio.sleep(0)  # keys that came meanwhile

    async def close(self) -> None:
        """Give the terminal back."""
        self.screen.stop()
        await self.screen.run(self.early)


def run_with_prompt(opened: OpenedScreen, load: Callable[[], T], chat: Callable[[T], Coroutine[Any, Any, int]]) -> int:
    """Show the prompt, load the agent, run the chat; return the exit status.

    Args:
        load: loads the agent; what it writes to stdout and stderr is shown above the prompt.

    Raises:
        UserError: the agent cannot be loaded, or the chat failed. The terminal is restored before.
    """
    with asyncio.Runner() as runner:
        runner.run(opened.show_prompt())
        held = _HeldOutput()
        try:
            if opened.early.status is None:
                with held, _spare_loop():
                    loaded = load()
        except BaseException:
            runner.run(opened.close())
            sys.stderr.write(held.text)
            raise
        if opened.early.status is not None:
            runner.run(opened.close())
            return opened.early.status
        if held.text:
            opened.screen.print([line(printable(each)) for each in held.text.rstrip("\n").split("\n")])
        opened.screen.show_status(())
        return runner.run(chat(loaded))


@contextlib.contextmanager
def _spare_loop() -> Iterator[None]:
    """Set an event loop for code that takes the current one, runs and even closes it."""
    own, spare = asyncio.get_event_loop_policy().get_event_loop(), asyncio.new_event_loop()
    asyncio.set_event_loop(spare)
    try:
        yield
    finally:
        asyncio.set_event_loop(own)
        spare.close()


class _HeldOutput:
    """Text that is written to `sys.stdout` and `sys.stderr` while the block lasts."""

    def __init__(self) -> None:
        self.text = ""
        self._streams: list[_HeldStream] = []

    def __enter__(self) -> None:
        self._streams = [_HeldStream(self, sys.stdout), _HeldStream(self, sys.stderr)]
        sys.stdout, sys.stderr = self._streams

    def __exit__(self, *error: object) -> None:
        for stream in self._streams:
            stream.holder = None  # a log handler may keep the stream
        sys.stdout, sys.stderr = (stream.real for stream in self._streams)


class _HeldStream:
    """A text stream that gives what is written to its holder, or to the real stream."""

    def __init__(self, holder: _HeldOutput, real: Any) -> None:
        self.holder: _HeldOutput | None = holder
        self.real = real

    def write(self, text: str) -> int:
        """Write text."""
        if self.holder is None:
            return int(self.real.write(text))
        self.holder.text += text
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
