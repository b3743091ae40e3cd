"""The live screen: finished lines scroll away above the growing part, the input and the status bar.

Finished lines are written once, into the scrollback of the terminal. Only the region below them is drawn again, and
only its rows that changed. One frame is one write, between the marks of a synchronized update, so nothing flickers.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

from hermes_agent.console.frame_output import FrameOutput, color_depth
from hermes_agent.console.live_keys import InputKeys, MenuKeys
from hermes_agent.console.menus import Menu, MenuAnswer
from hermes_agent.console.screen import PROMPT, InputHandler
from hermes_agent.console.styled import Line, Theme, cells, crop, line, wrap

KEPT_LINES = 400
"""Finished lines that are written again after the terminal was resized."""
RESIZE_DELAY_S = 0.05
MAX_COMPLETION_ROWS = 7


class LiveScreen:
    """The screen of a terminal that can move its cursor.

    Args:
        make_buffer: makes the input for a function that is called with it when a text is submitted.
        hint: returns what is shown in the status bar for the text of the input, or "".
        editing_mode: `emacs` or `vi`.
    """

    is_live = True
    echoes_input = False

    def __init__(
        self,
        theme: Theme,
        make_buffer: Callable[[Callable[[Buffer], bool]], Buffer],
        hint: Callable[[str], str],
        *,
        editing_mode: str = "emacs",
        fold_paste: Callable[[str], str] = str,
    ) -> None:
        self.theme = theme
        self._fold_paste = fold_paste
        self.is_busy = False
        self.menu: Menu | None = None
        self.has_menu_focus = False
        """Whether keys go to the menu: not while the user was typing as it opened."""
        self.handler: InputHandler | None = None
        self.queue: Sequence[str] = ()
        self._hint = hint
        self._menu_answer: asyncio.Future[MenuAnswer | None] | None = None
        self._line_answer: asyncio.Future[str | None] | None = None
        self._question = ""
        self._pending: list[Line] = []
        self._finished: deque[Line] = deque(maxlen=KEPT_LINES)
        self._live: Sequence[Line] = ()
        self._status: Line = ()
        self._background: Sequence[Line] = ()
        self._output = FrameOutput.of_terminal(theme)
        self.buffer = make_buffer(self._accept)
        self.answer_buffer = Buffer(multiline=False, accept_handler=self._accept_answer, name="answer")
        self._reading: asyncio.Task[None] | None = None
        self._app: Application[None] = self._application(EditingMode.VI if editing_mode == "vi" else EditingMode.EMACS)

    # -- Screen ------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Columns."""
        return max(self._output.get_size().columns, 10)

    @property
    def rows(self) -> int:
        """Rows of the terminal."""
        return self._output.get_size().rows

    def print(self, lines: Iterable[Line]) -> None:
        """Append finished lines above the live region."""
        self._pending += lines
        self.draw()

    def show(self, finished: Sequence[Line], live: Sequence[Line]) -> None:
        """Append finished lines and replace the live ones, in one frame."""
        self._pending += finished
        self._live = live
        self.draw()

    def show_live(self, lines: Sequence[Line]) -> None:
        """Replace the live lines."""
        self._live = lines
        self.draw()

    def show_status(self, line: Line) -> None:
        """Replace the status bar."""
        if line != self._status:
            self._status = line
            self.draw()

    def show_background(self, lines: Sequence[Line]) -> None:
        """Replace the rows of background work."""
        if list(lines) != list(self._background):
            self._background = lines
            self.draw()

    def set_busy(self, is_busy: bool) -> None:
        """Say whether a turn runs."""
        self.is_busy = is_busy
        self.draw()

    def clear(self) -> None:
        """Clear the terminal's screen."""
        self._finished.clear()
        with self._output.frame():
            self._app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw("\x1b[H\x1b[2J")
            self._redraw()

    def write_escape(self, sequence: str) -> bool:
        """Write an escape sequence that shows nothing."""
        with self._output.frame():
            self._output.write_raw(sequence)
        return True

    async def choose(self, menu: Menu) -> MenuAnswer | None:
        """Show a menu and return the answer."""
        self._menu_answer = asyncio.get_running_loop().create_future()
        self.menu, self.has_menu_focus = menu, not self.buffer.text
        if len(menu.lines(self.width - 1)) > self._menu_room():  # all of it can be read above
            self._pending += menu.title[:-1]
            menu.title = menu.title[-1:]
        self.draw()
        try:
            return await self._menu_answer
        finally:
            self.menu = self._menu_answer = None
            self._focus_input()

    def close_menu(self, answer: MenuAnswer | None) -> None:
        """MenuAnswer the open menu."""
        if self._menu_answer is not None and not self._menu_answer.done():
            self._menu_answer.set_result(answer)

    async def ask(self, prompt: str) -> str | None:
        """Show a prompt in place of the input and return the answer."""
        self._line_answer = asyncio.get_running_loop().create_future()
        self._question = prompt
        self.answer_buffer.reset()
        self._app.layout.focus(self.answer_buffer)
        self.draw()
        try:
            return await self._line_answer
        finally:
            self._line_answer, self._question = None, ""
            self._focus_input()

    def close_question(self, answer: str | None) -> bool:
        """MenuAnswer the open question; return whether there was one."""
        if self._line_answer is None or self._line_answer.done():
            return False
        self._line_answer.set_result(answer)
        return True

    async def begin(self, handler: InputHandler) -> None:
        """Begin to read keys, and return when the prompt is shown; `run` goes on."""
        self.handler = handler
        self._reading = asyncio.ensure_future(self._read_keys())
        shown = asyncio.Event()
        self._app.after_render += lambda _: shown.set()
        waiting = asyncio.ensure_future(shown.wait())
        await asyncio.wait((waiting, self._reading), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def run(self, handler: InputHandler) -> None:
        """Read keys until `stop` is called; the terminal's mode is restored afterwards."""
        self.handler = handler
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_keys())
        await self._reading

    async def _read_keys(self) -> None:
        fd = sys.stdin.fileno()
        mode = termios.tcgetattr(fd)
        try:
            await self._app.run_async(handle_sigint=False, set_exception_handler=False)
        finally:
            self._flush_plain()
            with contextlib.suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSADRAIN, mode)

    def stop(self) -> None:
        """End `run`."""
        self.close_menu(None)
        self.close_question(None)
        if self._app.is_running and not self._app.is_done:
            self._live, self._status, self.queue, self._background = (), (), (), ()
            self._app.exit()

    def set_theme(self, theme: Theme) -> None:
        """Use another theme from now on."""
        with self._output.frame():
            if self._app.is_running and not self._app.is_done:
                self._app.renderer.erase(leave_alternate_screen=False)  # what it drew is forgotten by `reset`
            self.theme = theme
            self._app.style = Style(theme.rules())
            self._output.depth = color_depth(theme)
            self._app.renderer.reset()
            self.draw()

    def set_editing_mode(self, name: str) -> None:
        """Use the keys of `emacs` or `vi` from now on."""
        self._app.editing_mode = EditingMode.VI if name == "vi" else EditingMode.EMACS
        self._app.vi_state.input_mode = InputMode.INSERT  # a search leaves another one behind

    def set_queue(self, texts: Sequence[str]) -> None:
        """Show the messages that wait."""
        self.queue = texts
        self.draw()

    def fill_input(self, text: str) -> None:
        """Put a text into the input."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    def insert_input(self, text: str) -> None:
        """Insert a text at the cursor."""
        self.buffer.insert_text(text)
        self._app.invalidate()

    def on_paste(self, text: str, /) -> str:
        """Return what a paste inserts."""
        return self._fold_paste(text)

    # -- drawing -----------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Write the finished lines that wait, and draw the live region."""
        app = self._app
        if not app.is_running or app.is_done:
            if not self._app.is_running:
                self._flush_plain()
            return
        if app._running_in_terminal:  # an editor has the terminal
            return
        with self._output.frame():
            if self._pending or self._is_shrinking():
                app.renderer.erase(leave_alternate_screen=False)
                self._write_pending()
            self._redraw()

    def _redraw(self) -> None:
        self._app._redraw()

    def _is_shrinking(self) -> bool:
        """Return whether the region becomes lower: its rows that are not needed any more are removed."""
        last = self._app.renderer.last_rendered_screen
        if last is None:
            return False
        size = self._output.get_size()
        wanted = self._app.layout.container.preferred_height(size.columns, size.rows).preferred
        return wanted < last.height

    def _write_pending(self) -> None:
        for each in self._pending:
            self._output.write_raw(self.theme.ansi(each) + "\r\n")
        self._finished.extend(self._pending)
        self._pending = []

    def _flush_plain(self) -> None:
        if self._pending:
            with self._output.frame():
                self._write_pending()

    def on_resize(self) -> None:
        """Write the last finished lines again: terminals differ in what a resize leaves of them."""
        app = self._app
        if not app.is_running or app.is_done or app._running_in_terminal:
            return
        size, drawn = self._output.get_size(), app.renderer.last_rendered_screen
        with self._output.frame():
            app.renderer.reset()
            # row by row: tmux moves a screen that is cleared as a whole into the scrollback
            self._output.write_raw("\x1b[H\x1b[2K" + "\x1b[B\x1b[2K" * (size.rows - 1) + "\x1b[H")
            # All rows that were visible are written again: what does not fit above a higher region scrolls away.
            height = self._region_height(size)
            room = max(size.rows - (height if drawn is None else min(height, drawn.height)), 0)
            shown: list[Line] = []
            for each in reversed(self._finished):
                if len(shown) >= room:
                    break
                shown += reversed(wrap(each, size.columns) if cells(each) > size.columns else [each])
            for each in reversed(shown[:room]):
                self._output.write_raw(self.theme.ansi(each) + "\r\n")
            self._write_pending()
            self._redraw()

    def _region_height(self, size: Size) -> int:
        return self._app.layout.container.preferred_height(size.columns, size.rows).preferred

    # -- input -------------------------------------------------------------------------------------------------

    def _accept(self, buffer: Buffer) -> bool:
        text = buffer.text
        if self.handler is not None and text.strip():
            asyncio.get_running_loop().call_soon(self.handler.on_line, text)
        return False

    def _accept_answer(self, buffer: Buffer) -> bool:
        self.close_question(buffer.text)
        return False

    def _focus_input(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.layout.focus(self.buffer)
            self.draw()

    # -- layout ------------------------------------------------------------------------------------------------

    def _application(self, mode: EditingMode) -> Application[None]:
        search = SearchToolbar(ignore_case=True)
        self._input_window = Window(
            BufferControl(self.buffer, search_buffer_control=search.control, preview_search=True),
            height=lambda: Dimension(min=1, max=max(self.rows // 3, 3)),
            get_line_prefix=self._prefix,
            wrap_lines=True,
            dont_extend_height=True,
        )
        answer_window = Window(
            BufferControl(self.answer_buffer),
            height=1,
            get_line_prefix=lambda number, wrapped: [("class:prompt", self._question)] if not number else [],
        )
        is_choosing = Condition(lambda: self.menu is not None)
        is_asking = Condition(lambda: bool(self._question))
        body = HSplit(
            [
                _rows(self._live_rows),
                _rows(self._queue_rows),
                ConditionalContainer(_rows(self._menu_rows), is_choosing & ~is_asking),
                ConditionalContainer(answer_window, is_asking),
                ConditionalContainer(self._input_window, ~is_asking),
                ConditionalContainer(_rows(self._completion_rows), has_completions & ~is_choosing & ~is_asking),
                ConditionalContainer(search, is_searching),
                _rows(lambda: self._background),
                _rows(self._status_rows),
            ],
            align=VerticalAlign.TOP,
        )
        keys = KeyBindings()
        InputKeys(self).bind(keys)
        MenuKeys(self).bind(keys)
        return _ChatApplication(
            self,
            layout=Layout(body, focused_element=self._input_window),
            key_bindings=keys,
            style=Style(self.theme.rules()),
            editing_mode=mode,
            output=self._output,
            enable_page_navigation_bindings=False,
            erase_when_done=True,
            include_default_pygments_style=False,
        )

    def _prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", PROMPT if not number and not wrapped else " " * get_cwidth(PROMPT))]

    def _live_rows(self) -> list[Line]:
        others = len(self._menu_rows()) + len(self._completion_rows()) + len(self._queue_rows()) + len(self._background)
        room = max(self.rows - 8 - others, 1)
        return [crop(each, self.width - 1) for each in self._live[-room:]] or [()]

    def _queue_rows(self) -> list[Line]:
        width = self.width - 1
        rows = [crop(line(f"  queued: {' '.join(text.split())}", "queued"), width) for text in self.queue[:5]]
        if len(self.queue) > 5:
            rows.append(line(f"  … {len(self.queue) - 5} more", "queued"))
        if rows:
            rows.append(crop(line("  Enter gives them to the running turn, Up takes the last one back", "dim"), width))
        return rows

    def _menu_rows(self) -> list[Line]:
        if self.menu is None:
            return []
        rows = self.menu.lines(self.width - 1)[-self._menu_room() :]
        if not self.has_menu_focus:
            rows[-1] = line("Tab answers the question; you are typing a message", "alert")
        return rows

    def _menu_room(self) -> int:
        """Return the rows that a menu may have: what does not fit into the terminal would hide all of it."""
        return max(self.rows - 4 - len(self._queue_rows()) - len(self._background), 3)

    def _completion_rows(self) -> list[Line]:
        state = self.buffer.complete_state
        if state is None:
            return []
        index = state.complete_index
        first = max(0, min((index or 0) - MAX_COMPLETION_ROWS // 2, len(state.completions) - MAX_COMPLETION_ROWS))
        shown = state.completions[first : first + MAX_COMPLETION_ROWS]
        column = max((get_cwidth(each.display_text) for each in shown), default=0)
        rows = []
        for number, each in enumerate(shown, first):
            space = " " * (column - get_cwidth(each.display_text))
            style = "selected" if number == index else ""
            texts = [*line(f"  {each.display_text}", style), *line(f"{space}  {each.display_meta_text}", "dim")]
            rows.append(crop(texts, self.width - 1))
        if len(state.completions) > MAX_COMPLETION_ROWS:
            rows.append(line(f"  {(index or 0) + 1} of {len(state.completions)}", "dim"))
        return rows

    def _status_rows(self) -> list[Line]:
        hint = self._hint(self.buffer.text) if self.buffer.text.startswith("/") else ""
        shown = line(f"  {hint}", "dim") if hint else self._status
        return [crop(shown, self.width - 1)] if shown else []


def _rows(lines: Callable[[], Sequence[Line]]) -> Window:
    """Return a window of as many rows as `lines` returns."""

    def text() -> StyleAndTextTuples:
        found: StyleAndTextTuples = []
        for number, each in enumerate(lines()):
            if number:
                found.append(("", "\n"))
            found += [(" ".join(f"class:{name}" for name in piece.style.split()), piece.text) for piece in each]
        return found

    return Window(
        FormattedTextControl(text, show_cursor=False),
        height=lambda: Dimension.exact(len(lines())),
        dont_extend_height=True,
        always_hide_cursor=True,
    )


class _ChatApplication(Application[None]):
    """An application that writes the transcript again after a resize."""

    def __init__(self, screen: LiveScreen, **options: Any) -> None:
        super().__init__(**options)
        self._screen = screen
        self._resizing: asyncio.TimerHandle | None = None
        self.ttimeoutlen = 0.05

    def _on_resize(self) -> None:
        if self._resizing is not None:
            self._resizing.cancel()
        self._resizing = asyncio.get_running_loop().call_later(RESIZE_DELAY_S, self._screen.on_resize)
