"""Keys of the live screen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, emacs_mode, has_focus, is_searching, vi_insert_mode, vi_navigation_mode
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import stop_search

from hermes_agent.console.menus import Menu, MenuAnswer, MenuOption
from hermes_agent.console.screen import InputHandler

for _sequence in ("\x1b[13;2u", "\x1b[27;2;13~", "\x1b[13;3u", "\x1b[27;3;13~"):
    ANSI_SEQUENCES[_sequence] = (Keys.Escape, Keys.ControlM)  # Shift-Enter and Alt-Enter, where the terminal tells


LETTER_S = 0.25
"""Time after a letter in which another key shows that the user is typing."""


class KeyedScreen(Protocol):
    """The parts of the live screen that its keys use."""

    buffer: Buffer
    menu: Menu | None
    has_menu_focus: bool
    handler: InputHandler | None
    queue: Sequence[str]
    is_busy: bool

    def on_paste(self, text: str, /) -> str: ...
    def close_menu(self, answer: MenuAnswer | None) -> None: ...
    def close_question(self, answer: str | None) -> bool: ...
    async def ask(self, prompt: str) -> str | None: ...
    def clear(self) -> None: ...


class InputKeys:
    """Handlers of the keys of the input."""

    def __init__(self, screen: KeyedScreen) -> None:
        self._screen = screen
        self._has_asked = False
        """Whether Tab was pressed before the completions were known."""
        screen.buffer.on_completions_changed += self._on_completions
        screen.buffer.on_text_changed += self._on_text

    def bind(self, keys: KeyBindings) -> None:
        """Bind the keys."""
        screen = self._screen
        in_input = has_focus("input") & ~Condition(lambda: screen.has_menu_focus and screen.menu is not None)
        is_typing = in_input & ~is_searching
        in_answer = has_focus("answer")
        is_inserting = emacs_mode | vi_insert_mode
        is_empty = Condition(lambda: not screen.buffer.text)
        keys.add("enter", filter=is_typing & is_inserting)(self._submit)
        keys.add("enter", filter=is_typing & vi_navigation_mode)(self._submit)
        keys.add("escape", "enter", filter=in_input)(self._new_line)
        keys.add("c-j", filter=in_input & is_inserting)(self._new_line)
        keys.add("tab", filter=is_typing)(self._complete)
        keys.add("s-tab", filter=is_typing)(self._complete_backwards)
        keys.add("up", filter=in_input & is_empty & Condition(lambda: bool(screen.queue)))(self._take_back)
        keys.add(Keys.BracketedPaste, filter=in_input)(self._paste)
        keys.add("c-v", filter=in_input & is_inserting)(self._paste_image)
        for key in ("c-c", "<sigint>"):
            keys.add(key, filter=~in_answer)(self._interrupt)
        for key in ("c-c", "<sigint>", "c-d", "escape"):
            keys.add(key, filter=in_answer)(self._cancel_answer)
        keys.add("c-d", filter=in_input & is_empty)(self._leave)
        keys.add("c-z", filter=in_input)(self._suspend)
        keys.add("c-x", "c-e", filter=in_input & emacs_mode)(self._edit)
        keys.add("v", filter=in_input & vi_navigation_mode)(self._edit)
        keys.add("c-l")(self._clear)
        keys.add("c-o")(self._toggle)

    def _submit(self, event: KeyPressEvent) -> None:
        buffer, screen = event.current_buffer, self._screen
        if not buffer.text.strip() and screen.queue and screen.is_busy and screen.handler is not None:
            screen.handler.steer_queued()
            return
        if buffer.document.current_line_before_cursor.endswith("\\") and not buffer.document.text_after_cursor:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None
            if not buffer.text.startswith("/"):
                buffer.insert_text(" ")
                return
        event.app.vi_state.input_mode = InputMode.INSERT
        buffer.validate_and_handle()

    def _new_line(self, event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def _complete(self, event: KeyPressEvent) -> None:
        if self._screen.menu is not None:
            self._screen.has_menu_focus = True
            return
        buffer = event.current_buffer
        if buffer.complete_state is None:
            self._has_asked = True
            buffer.start_completion()
        elif not buffer.complete_state.completions:  # they are being looked up
            self._has_asked = True
        else:
            self._insert_completion(buffer)

    def _insert_completion(self, buffer: Buffer) -> None:
        if buffer.complete_state is None:
            return
        if len(buffer.complete_state.completions) == 1:
            buffer.apply_completion(buffer.complete_state.completions[0])
        else:
            buffer.complete_next()

    def _on_completions(self, buffer: Buffer) -> None:
        if self._has_asked and buffer.complete_state is not None and buffer.complete_state.completions:
            self._has_asked = False
            self._insert_completion(buffer)

    def _on_text(self, buffer: Buffer) -> None:
        self._has_asked = False

    def _complete_backwards(self, event: KeyPressEvent) -> None:
        event.current_buffer.complete_previous()

    def _take_back(self, event: KeyPressEvent) -> None:
        if self._screen.handler is not None:
            event.current_buffer.insert_text(self._screen.handler.take_back())

    def _paste(self, event: KeyPressEvent) -> None:
        if event.data:
            text, before = self._screen.on_paste(event.data), event.current_buffer.document.char_before_cursor
            is_mention = text != event.data and text.startswith("@")  # it begins a word
            event.current_buffer.insert_text(f" {text}" if is_mention and before.strip() else text)
        else:  # some terminals paste nothing when the clipboard has an image
            self._paste_image(event)

    def _paste_image(self, event: KeyPressEvent) -> None:
        if self._screen.handler is not None:
            self._screen.handler.paste_image()

    def _interrupt(self, event: KeyPressEvent) -> None:
        screen = self._screen
        if get_app().layout.is_searching:
            stop_search()
        elif not screen.is_busy and screen.buffer.text:
            screen.buffer.append_to_history()
            screen.buffer.reset()
        elif screen.handler is not None:
            screen.handler.on_interrupt()

    def _cancel_answer(self, event: KeyPressEvent) -> None:
        self._screen.close_question(None)

    def _leave(self, event: KeyPressEvent) -> None:
        if self._screen.handler is not None:
            self._screen.handler.on_end()

    def _suspend(self, event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    def _edit(self, event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()  # it comes back into the input: a closed editor sends nothing

    def _clear(self, event: KeyPressEvent) -> None:
        self._screen.clear()

    def _toggle(self, event: KeyPressEvent) -> None:
        if self._screen.handler is not None:
            self._screen.handler.toggle_verbose()


class MenuKeys:
    """Handlers of the keys of an open menu; while it has the focus, no other key has an effect.

    A letter chooses an option only if no other key follows at once: a user who is typing a message as the menu opens
    must not approve something by it. The text goes into the input, then, and the menu waits for Tab.
    """

    def __init__(self, screen: KeyedScreen) -> None:
        self._screen = screen
        self._letter: tuple[str, asyncio.TimerHandle] | None = None
        """The letter that was pressed last, and the timer that makes it an answer."""

    def bind(self, keys: KeyBindings) -> None:
        """Bind the keys."""
        screen, in_answer = self._screen, has_focus("answer")
        has_menu = Condition(lambda: screen.menu is not None and screen.has_menu_focus) & ~in_answer
        keys.add("<any>", filter=has_menu, eager=True)(self._type)
        for key in ("up", "c-p", "s-tab"):
            keys.add(key, filter=has_menu, eager=True)(self._up)
        for key in ("down", "c-n", "tab"):
            keys.add(key, filter=has_menu, eager=True)(self._down)
        keys.add("backspace", filter=has_menu, eager=True)(self._erase)
        keys.add("enter", filter=has_menu, eager=True)(self._choose)
        for key in ("escape", "c-d", "c-c", "<sigint>"):
            keys.add(key, filter=has_menu, eager=True)(self._cancel)
        keys.add(Keys.BracketedPaste, filter=has_menu, eager=True)(self._ignore)

    def _type(self, event: KeyPressEvent) -> None:
        menu = self._screen.menu
        if menu is None or not event.data.isprintable():
            return
        if menu.has_search:
            menu.type(event.data)
            return
        typed, option = self._withdraw_letter() + event.data, menu.find(event.data)
        if option is None or len(typed) > 1:  # the user is typing a message
            self._screen.has_menu_focus = False
            self._screen.buffer.insert_text(typed)
        else:
            loop = asyncio.get_running_loop()
            self._letter = event.data, loop.call_later(LETTER_S, self._choose_letter, option)

    def _choose_letter(self, option: MenuOption) -> None:
        self._letter = None
        self._answer(option)

    def _withdraw_letter(self) -> str:
        """Return the letter that was to choose an option, which it now does not, or ""."""
        if self._letter is None:
            return ""
        (letter, timer), self._letter = self._letter, None
        timer.cancel()
        return letter

    def _up(self, event: KeyPressEvent) -> None:
        if self._screen.menu is not None:
            self._screen.menu.move(-1)

    def _down(self, event: KeyPressEvent) -> None:
        if self._screen.menu is not None:
            self._screen.menu.move(1)

    def _erase(self, event: KeyPressEvent) -> None:
        if self._screen.menu is not None:
            self._screen.menu.erase()

    def _choose(self, event: KeyPressEvent) -> None:
        menu = self._screen.menu
        if menu is not None:
            letter = self._withdraw_letter()
            self._answer(menu.find(letter) if letter else menu.selected)

    def _cancel(self, event: KeyPressEvent) -> None:
        self._screen.close_menu(None)

    def _ignore(self, event: KeyPressEvent) -> None:
        """Ignore a paste: it must not answer a question."""

    def _answer(self, option: MenuOption | None) -> None:
        if option is None:
            return
        if option.asks:
            get_app().create_background_task(self._ask_for(option))
        else:
            self._screen.close_menu(MenuAnswer(option.value))

    async def _ask_for(self, option: MenuOption) -> None:
        text = await self._screen.ask(option.asks)
        if text is not None:
            self._screen.close_menu(MenuAnswer(option.value, text))
