"""The console: one conversation in a terminal, until the user leaves."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from hermes_agent.agent import Agent
from hermes_agent.agent.command_router import CommandCall, CommandRouter, RunSkill, UnknownCommand
from hermes_agent.agent.conversation import Conversation
from hermes_agent.commands import HelpRow, parse_command
from hermes_agent.console.approver import MenuApprover, ask_at_start
from hermes_agent.console.clipboard import paste_from_clipboard
from hermes_agent.console.dependencies import ConsoleDeps
from hermes_agent.console.input import (
    InputQueue,
    PasteStore,
    QueuedInput,
    UserCommand,
    content_with_images,
    mention_of,
    mentioned_images,
    session_notes,
)
from hermes_agent.console.overview import Banner, banner_lines
from hermes_agent.console.screen import Screen, handled_signals
from hermes_agent.console.slash_commands import ConsoleCommands, known_sessions
from hermes_agent.console.status_bar import StatusBar
from hermes_agent.console.styled import printable
from hermes_agent.console.transcript_view import TranscriptView
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, ToolFailed, UserError
from hermes_agent.core.messages import fold
from hermes_agent.policy import NoApprover

PLATFORM = "cli"
LEAVE = ("exit", "quit")
"""Lines that leave without a slash, too: no question consists of them."""
LEAVE_AGAIN_S = 2.0
"""Time in which a second Ctrl-C between turns leaves."""


class Console:
    """One conversation in a terminal.

    Args:
        make_screen: makes the screen; called once, when the console runs.
        pastes: the long pastes of the screen.
        begin: called as the console begins to read: it gives the console what the user sent before.
    """

    def __init__(
        self,
        agent: Agent,
        slash: CommandRouter,
        deps: ConsoleDeps,
        *,
        banner: Banner,
        make_screen: Callable[[Console], Screen],
        pastes: PasteStore,
        begin: Callable[[Console], None] = lambda console: None,
        session_id: str | None = None,
        model: str | None = None,
    ) -> None:
        self.agent = agent
        self.slash = slash
        self.deps = deps
        self.model = model
        self.pastes = pastes
        self.skill_rows: list[HelpRow] = []
        self.conversation: Conversation | None = None
        self.screen: Screen
        self.view: TranscriptView
        self._status: StatusBar
        self._make_screen = make_screen
        self._begin = begin
        self._banner = banner
        self._session_id = session_id
        self._queue = InputQueue(self._on_injected)
        self._wakeup = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        """Commands that run in parallel with a turn."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_leaving = False
        self._depth = 0
        """Number of `_working` blocks."""
        self._is_interrupted = False
        self._interrupted_at = 0.0
        self._exit_status = EXIT_OK
        self._shell: UserCommand | None = None
        self._shell_outputs: list[str] = []
        self._last_sent: tuple[str, str, list[str]] = ("", "", [])  # as sent, as typed, with these outputs of `!`
        """Output of the user's own commands, for the next message."""
        ConsoleCommands(self, slash.commands).bind()

    # -- injected messages (`agent.injected_messages.PromptedFrontEnd`) ------------------------------------------

    @property
    def session_id(self) -> str:
        """The session of the conversation."""
        return "" if self.conversation is None else self.conversation.session_id

    def push(self, text: str) -> bool:
        """Interrupt the running turn and start one with this message; return False if the queue is full.

        Safe for threads."""
        return self._queue.add_injected(text)

    def _on_injected(self) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has just ended, and the conversation with it
            self._loop.call_soon_threadsafe(self._yield_to_injected)

    def _yield_to_injected(self) -> None:
        if self._is_busy and self.conversation is not None:
            self.conversation.interrupt()
        self._wakeup.set()

    # -- the conversation --------------------------------------------------------------------------------------

    async def run(self, *, first_question: str | None = None, prompt: bool = True) -> int:
        """Converse and return the exit status.

        Args:
            first_question: asked before input is read.
            prompt: whether input is read.

        Raises:
            UserError: no model is available.
        """
        self._loop = asyncio.get_running_loop()
        self.screen = self._make_screen(self)
        self._status = StatusBar(self.screen, self.agent, self.deps)
        is_raw = not sys.stdout.isatty()
        deps = self.deps
        self.view = TranscriptView(
            self.screen,
            deps.directory,
            has_local_files=deps.has_local_files,
            is_raw=is_raw,
            shows_reasoning=deps.shows_reasoning,
        )
        self.conversation = await self.open(self._session_id)
        await self.load_skills()
        self._show_banner()
        self.agent.injected.front_end = self
        # while the user reads and types; the first answer need not wait for it
        warming = asyncio.ensure_future(self.agent.warm_up(self.conversation.model_state.chosen.client))
        reading = asyncio.ensure_future(self._read_input())
        try:
            with handled_signals(self.on_interrupt, self.leave):
                await self._converse(first_question, reading, prompt=prompt)
        finally:
            self.agent.injected.front_end = None
            self.screen.stop()
            for task in (warming, *self._tasks):
                task.cancel()
            await asyncio.gather(warming, reading, *self._tasks, return_exceptions=True)
            await self.conversation.close("cli_close")
        if not reading.cancelled() and (error := reading.exception()) is not None:
            raise error
        return self._exit_status

    async def _read_input(self) -> None:
        try:
            self._begin(self)  # at once before the screen gives its input to the console
            await self.screen.run(self)
        finally:
            self._is_leaving = True
            self._wakeup.set()

    async def _converse(self, first_question: str | None, reading: asyncio.Task[None], *, prompt: bool) -> None:
        status = EXIT_OK
        if sys.stdin.isatty():
            await ask_at_start(self.screen, self.view, self.agent.bridge, self.deps.questions)
        if first_question is not None:
            self.view.user_message(first_question)
            status = await self.run_turn(first_question)
        elif self._session_id and await self.agent.unfinished_turns(self._session_id):
            self.view.note("The last turn was interrupted by a crash; it resumes.")
            status = await self.run_turn(None)
        if prompt:
            self._start_background(self._prepare())
            if self.screen.is_live:
                self._start_background(self._status.watch_background(lambda: self.conversation, lambda: self._is_busy))
        while not self._is_leaving:
            self._wakeup.clear()
            item = self._queue.take()
            self._show_queue()
            if item is not None:
                status = await self._submit(item)
            elif not prompt:
                self._exit_status = status
                return
            else:
                await self._wakeup.wait()
        if not prompt:
            self._exit_status = status

    async def _prepare(self) -> None:
        """Load what the first answer and the completion need, while the user reads and types."""
        from hermes_agent.console.markdown_view import load_renderer

        await self.agent.bridge.run(load_renderer)
        await self.refresh_status()

    async def _submit(self, item: QueuedInput) -> int:
        """Run a message or a command; return the exit status of its turn."""
        async with self._working():
            return await self._run_input(item)

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Show that the agent works while the block lasts; blocks may be nested."""
        self._depth += 1
        if self._depth == 1:
            self._is_interrupted = False
            self.view.begin_turn()
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._return_steered()
                await self.view.end_turn()
                self._start_background(self.refresh_status())

    @property
    def _is_busy(self) -> bool:
        return self._depth > 0

    async def _run_input(self, item: QueuedInput) -> int:
        text = item.text
        if not item.is_typed:
            self.view.user_message(text)
            return await self.run_turn(text)
        if not text.strip():
            return EXIT_OK
        if not self.screen.echoes_input:
            self.view.user_message(text)
        if is_leaving(text):
            self.leave()
            return EXIT_OK
        if text.startswith("!") and text[1:].strip():
            await self._run_shell(text[1:].strip())
            return EXIT_OK
        if text.startswith("#") and "\n" not in text and text.strip("# "):
            await self._add_note(text.lstrip("#").strip())
            return EXIT_OK
        line = self.pastes.expand(text)
        found = await self.slash.resolve(
            line, where="terminal", session_id=self.session_id, platform=PLATFORM, prefixes=True
        )
        match found:
            case CommandCall(command):
                self.view.command = f"Running /{command.name}"
                try:
                    await self._run_command(found)
                finally:
                    self.view.command = ""
            case RunSkill(message):
                return await self.run_turn(message)
            case UnknownCommand():
                self.view.error(found.reply())
            case None:
                return await self.send(line)
        return EXIT_OK

    async def send(self, text: str) -> int:
        """Run a turn for a message of the user, with what it names and earlier output of `!`."""
        typed = text
        if "@session:" in text:
            known = await self.agent.bridge.run(known_sessions, self)
            text = "\n\n".join([text, *session_notes(text, [session_id for session_id, _ in known])])
        outputs, self._shell_outputs = self._shell_outputs, []
        whole = "\n\n".join([*outputs, text])
        self._last_sent = whole, typed, outputs
        images = mentioned_images(text, self.deps.directory)
        if not images:
            return await self.run_turn(whole)
        content, warnings = await self.agent.bridge.run(content_with_images, whole, images)
        for warning in warnings:
            self.view.note(warning, "warning")
        return await self.run_turn(content)

    async def run_turn(self, content: Any) -> int:
        """Run a turn and return its exit status; None resumes the turn that a crash interrupted."""
        assert self.conversation is not None
        conversation = self.conversation
        self.view.command = ""
        async with self._working():
            try:
                await fold(conversation.resume_turn() if content is None else conversation.turn(content), self.view)
            except UserError as error:
                await self.view.show_waiting()
                self.view.error(str(error))
                return EXIT_FAILED
        return EXIT_OK

    # -- input (`screen.InputHandler`) ---------------------------------------------------------------------------

    def on_line(self, text: str) -> None:
        """Take a submitted text: during a turn, a command runs at once; a message waits, steers or interrupts."""
        if self._is_busy and (parsed := parse_command("/quit" if is_leaving(text) else text)) is not None:
            command = self.slash.commands.find(parsed[0], "terminal")
            if command is not None and command.during_turn:
                self._start_background(self._run_command(CommandCall(command, parsed[1])))
                return
        if self._is_busy and self.deps.busy_mode == "steer" and self.steer(text):
            return
        self.enqueue(text)
        if self._is_busy and self.deps.busy_mode == "interrupt" and not self._is_command(text):
            self.stop_turn()

    def enqueue(self, text: str) -> None:
        """Add a text to the queue."""
        if not self._queue.add_typed(text):
            self.view.error("The input queue is full; this message was ignored.")
            return
        if self._is_busy and not self.screen.is_live:
            self.view.note(f"(queued: {printable(text)})", "dim")
        self._show_queue()
        self._wakeup.set()

    def on_interrupt(self) -> None:
        """Stop what runs; the second time, leave."""
        now = time.monotonic()
        if self._shell is not None:
            self._shell.stop()
        elif self._is_busy and self.conversation is not None and not self._is_interrupted:
            self._is_interrupted = True
            self.view.waits_for = ""
            self.conversation.interrupt()
        elif now - self._interrupted_at < LEAVE_AGAIN_S or self._is_busy:
            self.leave()
        else:
            self.view.note("Press Ctrl-C again to leave.", "dim")
            self._interrupted_at = now

    def on_end(self) -> None:
        """Leave."""
        self.leave()

    def steer(self, text: str) -> bool:
        """Give a message to the running turn; return False for what must wait: a command, or one with images."""
        if not self._is_busy or self.conversation is None or not self.conversation.running_turn:
            return False
        whole = self.pastes.expand(text)
        if self._is_command(text) or mentioned_images(whole, self.deps.directory):
            return False
        if self.agent.injected.add(whole, self.session_id) != "taken":
            return False
        self.view.user_message(text)
        self.view.note("(given to the running turn)", "dim")
        return True

    def steer_queued(self) -> None:
        """Give the messages that wait to the running turn."""
        for item in self._queue.take_typed():
            if not self.steer(item):
                self._queue.add_typed(item)
        self._show_queue()

    def _is_command(self, text: str) -> bool:
        return text.startswith(("!", "#")) or is_leaving(text) or parse_command(text) is not None

    def _return_steered(self) -> None:
        """Put messages that the turn did not take before its end into the queue."""
        for text in self.agent.injected.take(self.session_id):
            self._queue.add_typed(text)

    def paste_image(self) -> None:
        """Insert the image of the clipboard, or its text."""
        self._start_background(self._paste_image())

    async def _paste_image(self) -> None:
        try:
            found = await self.agent.bridge.run(paste_from_clipboard, self.deps.home / "images")
        except (UserError, OSError) as error:
            self.view.note(str(error), "warning")
            return
        text = self.pastes.fold(found) if isinstance(found, str) else mention_of(found, self.deps.directory)
        self.screen.insert_input(text)

    def take_back(self) -> str:
        """Remove the last message from the queue and return it."""
        text = self._queue.take_back()
        self._show_queue()
        return text

    def toggle_verbose(self) -> None:
        """Show tool results, or hide them."""
        self.view.set_verbose(not self.view.verbose)

    def leave(self, status: int = EXIT_OK) -> None:
        """End the console after the running turn, which is interrupted."""
        self._is_leaving, self._exit_status = True, status
        self.stop_turn()
        if self._shell is not None:
            self._shell.stop()
        self._wakeup.set()

    def as_typed(self, sent: str) -> str:
        """Return what the user typed of a message that was removed; outputs of `!` go with the next one again."""
        whole, typed, outputs = self._last_sent  # another message is of an earlier process
        self._shell_outputs = [*(outputs if sent == whole else ()), *self._shell_outputs]
        return typed if sent == whole else sent

    def fill_input(self, text: str) -> None:
        """Put a text into the input."""
        self.screen.fill_input(text)

    def stop_turn(self) -> bool:
        """Interrupt the running turn; return whether there is one."""
        if not self._is_busy or self.conversation is None:
            return False
        self.conversation.interrupt()
        return True

    # -- parts -------------------------------------------------------------------------------------------------

    async def open(self, session_id: str | None, after: str = "") -> Conversation:
        """Open a session for this console; None opens a new one."""
        interactive = sys.stdin.isatty()
        approver = MenuApprover(self.screen, self.view) if interactive else NoApprover("without a terminal")
        conversation = await self.agent.open(
            session_id, platform=PLATFORM, approver=approver, model=self.model, after=after
        )
        conversation.streams_output = self.screen.is_live
        return conversation

    async def _run_command(self, called: CommandCall) -> None:
        command = called.command
        assert self.conversation is not None
        await self.slash.announce(called, self.conversation.scope())
        try:
            if command.is_bound:
                answer = await command.handler(called.arguments)
            else:
                answer = await self.slash.run(called, self.conversation.scope())
        except UserError as error:
            self.view.error(str(error))
            return
        if answer:
            self.view.note(answer)

    async def _run_shell(self, command: str) -> None:
        """Run a command of the user, and offer its output to the model with the next message."""
        self._shell = UserCommand(command, self.deps.directory)
        try:
            self._shell_outputs.append(await self._shell.run(lambda text: self.view.note(text, "dim")))
        finally:
            self._shell = None

    async def _add_note(self, text: str) -> None:
        try:
            await self.agent.bridge.run(self.deps.add_note, text)
        except (UserError, ToolFailed) as error:
            self.view.error(str(error))
        else:
            self.view.note(f"Noted: {text}", "dim")

    async def load_skills(self) -> None:
        """Read which skills there are, for completion and `/help`."""
        self.skill_rows = await self.agent.bridge.run(self.slash.rows, "terminal", PLATFORM)

    def help_rows(self) -> list[HelpRow]:
        """Return the commands and skills, for `/help` and completion."""
        return [*self.slash.commands.help_rows("terminal"), *self.skill_rows]

    async def refresh_status(self) -> None:
        """Show the status bar as it is now."""
        if self.conversation is not None and self.screen.is_live:
            await self._status.refresh(self.conversation)

    def _show_banner(self) -> None:
        assert self.conversation is not None
        conversation, width = self.conversation, self.screen.width
        address = str(getattr(conversation.model_state.chosen.client, "base_url", "") or "")
        banner = self._banner._replace(skills=sorted(row.name for row in self.skill_rows))
        lines = banner_lines(banner, conversation.model, conversation.provider, address, self.deps.directory, width)
        self.view.lines(lines)
        if conversation.history:
            self.view.note(f"session {conversation.session_id}, {len(conversation.history)} messages so far")

    def _show_queue(self) -> None:
        self.screen.set_queue(self._queue.texts() if self._is_busy else [])

    def _start_background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def is_leaving(line: str) -> bool:
    """Return whether a typed line asks to leave without being a command."""
    return line.strip().lower() in LEAVE
