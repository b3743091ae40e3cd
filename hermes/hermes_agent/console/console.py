"""The console: prompt, streamed answer, tool lines, and the slash commands that only a terminal has."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from hermes_agent.agent import Agent
from hermes_agent.agent.command_router import CommandCall, CommandRouter, RunSkill, UnknownCommand
from hermes_agent.agent.conversation import Conversation
from hermes_agent.agent.session_commands import find_session, set_title
from hermes_agent.commands import HelpRow, help_text, parse_command
from hermes_agent.console.input import InputQueue, LinePrompt, PromptCancelled, QueuedInput, TypedLines
from hermes_agent.console.output import Renderer, TerminalApprover, printable
from hermes_agent.contracts.command import SlashCommand, Where
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.policy import NoApprover
from hermes_agent.sessions import LOCAL

PROMPT = "❯ "
PLATFORM = "cli"

TERMINAL: frozenset[Where] = frozenset({"terminal"})
LEAVE = ("exit", "quit")
"""Lines that leave without a slash, too: no question consists of them."""


class Console:
    """One conversation in a terminal, until the user leaves.

    Args:
        banner: lines that are shown at the start.
    """

    def __init__(
        self,
        agent: Agent,
        slash: CommandRouter,
        *,
        home: Path,
        banner: Sequence[str],
        session_id: str | None = None,
        model: str | None = None,
    ) -> None:
        self._agent = agent
        self._slash = slash
        self._commands = slash.commands
        self._banner = banner
        self._session_id = session_id
        self._model = model
        self._prompt = LinePrompt(home / "history", self._help_rows)
        self._queue = InputQueue(self._on_injected)
        self._typed_lines = TypedLines(sys.stdin.fileno(), self._on_typed_line) if sys.stdin.isatty() else None
        self._renderer = Renderer(sys.stdout, sys.stdout)
        self._running: set[asyncio.Task[None]] = set()
        """Commands that were typed while the agent worked."""
        self._skill_rows: list[HelpRow] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self._busy = False
        self._screen = asyncio.Lock()
        """Held by whoever reads from the terminal: the prompt, or a question."""
        self._conversation: Conversation | None = None
        for command in self._declarations():
            self._commands.register(command)

    # -- what plugins see of it (`agent.inbox.Front`) ----------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session that is in front now."""
        return "" if self._conversation is None else self._conversation.session_id

    def push(self, text: str) -> bool:
        """Say this next, and stop the running turn for it; from any thread. False when too much waits."""
        return self._queue.add_injected(text)

    def _on_injected(self) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has just ended, and the conversation with it
            self._loop.call_soon_threadsafe(self._yield_to_injected)

    def _yield_to_injected(self) -> None:
        if self._busy and self._conversation is not None:
            self._conversation.interrupt()
        else:
            self._prompt.cancel()

    # -- the conversation --------------------------------------------------------------------------------------

    async def run(self, *, first_question: str | None = None, prompt: bool = True) -> int:
        """Converse and return the exit status.

        Args:
            first_question: asked before the prompt is shown.
            prompt: whether to go on with the prompt.

        Raises:
            UserError: no model can be had.
        """
        renderer = self._renderer
        self._loop = asyncio.get_running_loop()
        self._conversation = await self._open(self._session_id)
        for line in self._start_lines():
            renderer.note(line)
        status = EXIT_OK
        self._agent.injected.front_end = self
        # while the person reads and types; the first answer need not wait for it
        warming = asyncio.ensure_future(self._agent.warm_up(self._conversation.model_state.chosen.client))
        try:
            if first_question is not None:
                renderer.note(f"\n{PROMPT}{first_question}")
                status = await self._turn(first_question)
            elif self._session_id and await self._agent.unfinished_turns(self._session_id):
                renderer.note("The last turn was cut off; it goes on.")
                status = await self._turn(None)
            while not prompt and (said := self._queue.take()) is not None:
                status = await self._turn(self._echo(said))
            if prompt:
                await self._converse()
                status = EXIT_OK
        finally:
            self._agent.injected.front_end = None
            for task in (warming, *self._running):
                task.cancel()
            await asyncio.gather(warming, *self._running, return_exceptions=True)
            await self._conversation.close("cli_close")
        return status

    async def _converse(self) -> None:
        while not self._leaving:
            said = self._queue.take()
            if said is not None:
                self._echo(said)
            else:
                try:
                    await self._load_skills()
                    async with self._screen:
                        said = QueuedInput(await self._prompt.read(PROMPT, is_wanted=lambda: not self._queue))
                except (PromptCancelled, KeyboardInterrupt):
                    continue
                except EOFError:
                    return
            if not said.text.strip():
                continue
            await self._submit(said)

    def _echo(self, said: QueuedInput) -> str:
        self._renderer.note(f"\n{PROMPT}{printable(said.text)}")
        return said.text

    async def _submit(self, said: QueuedInput) -> None:
        assert self._conversation is not None
        if not said.is_typed:
            await self._turn(said.text)
            return
        if is_leaving(said.text):
            await self._quit("")
            return
        meaning = await self._slash.resolve(
            said.text, where="terminal", session_id=self.session_id, platform=PLATFORM, prefixes=True
        )
        match meaning:
            case CommandCall():
                await self._command(meaning)
            case RunSkill(message):
                await self._turn(message)
            case UnknownCommand():
                self._renderer.error(meaning.reply())
            case None:
                await self._turn(said.text)

    async def _turn(self, text: str | None) -> int:
        """Say something; None goes on with the turn that was cut off."""
        assert self._conversation is not None
        self._busy = True
        with (
            _sigint(self._conversation),
            self._typed_lines.reading() if self._typed_lines else contextlib.nullcontext(),
        ):
            try:
                async for event in self._conversation.resume_turn() if text is None else self._conversation.turn(text):
                    self._renderer.show(event)
            except UserError as error:
                self._renderer.error(str(error))
                return EXIT_FAILED
            finally:
                self._busy = False
        return EXIT_OK

    def _on_typed_line(self, line: str | None) -> None:
        """Take a line that was typed while the agent works: a command runs at once, anything else is said next."""
        if line is None:
            self._leaving = True
            return
        if not line.strip():
            return
        parsed = parse_command("/quit" if is_leaving(line) else line)
        command = None if parsed is None else self._commands.find(parsed[0], "terminal")
        if command is not None and parsed is not None and command.during_turn:
            task = asyncio.ensure_future(self._command(CommandCall(command, parsed[1])))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        elif self._queue.add_typed(line):
            self._renderer.note(f"(after this: {printable(line)})")
        else:
            self._renderer.error("Too much waits already; this line is dropped.")

    async def _command(self, called: CommandCall) -> None:
        command = called.command
        assert self._conversation is not None
        await self._slash.announce(called, self._conversation.scope())
        if command.is_of_one_front_end:
            try:
                answer = await command.handler(called.arguments)
            except UserError as error:
                self._renderer.error(str(error))
                return
        else:
            answer = await self._slash.run(called, self._conversation.scope())
        if answer:
            await self._prompt.print_above(lambda: self._renderer.note(answer))

    async def _ask(self, prompt: str) -> str:
        from prompt_toolkit import PromptSession  # 100 ms to import; an answer must not land in the history

        self._prompt.cancel()  # a command that is not done yet may ask while the person types the next line
        async with self._screen:
            with self._typed_lines.paused() if self._typed_lines else contextlib.nullcontext():
                return await PromptSession[str]().prompt_async(prompt)

    async def _open(self, session_id: str | None, after: str = "") -> Conversation:
        interactive = sys.stdin.isatty()
        approver = TerminalApprover(self._ask, print) if interactive else NoApprover("without a terminal")
        return await self._agent.open(session_id, platform=PLATFORM, approver=approver, model=self._model, after=after)

    def _start_lines(self) -> list[str]:
        assert self._conversation is not None
        lines = [*self._banner, f"model: {self._conversation.model} ({self._conversation.provider})"]
        if self._conversation.history:
            count = len(self._conversation.history)
            lines.append(f"session {self._conversation.session_id}, {count} messages so far")
        return lines

    # -- commands ----------------------------------------------------------------------------------------------

    async def _load_skills(self) -> None:
        """Read which skills there are, for completion and `/help`."""
        found = await self._agent.bridge.run(self._slash.skills.offered, PLATFORM)
        self._skill_rows = [
            HelpRow(name, "[what to do]", skill.document.description)
            for name, skill in found.items()
            if self._commands.find(name, "terminal") is None
        ]

    def _help_rows(self) -> list[HelpRow]:
        return [*self._commands.help_rows("terminal"), *self._skill_rows]

    def _declarations(self) -> tuple[SlashCommand, ...]:
        during_turn = partial(SlashCommand, where=TERMINAL)
        between_turns = partial(SlashCommand, where=TERMINAL, during_turn=False)
        return (
            during_turn("help", self._help, "List the commands"),
            between_turns("new", self._new, "Start a new session"),
            between_turns("clear", self._clear, "Clear the screen and start a new session"),
            between_turns("model", self._use_model, "Show the model, or use another", "[NAME]"),
            between_turns("resume", self._resume, "List your sessions, or resume one", "[ID or TITLE]"),
            between_turns("title", self._title, "Show or set the session's title", "[TEXT]"),
            during_turn("stop", self._stop, "Stop the agent; so does Ctrl-C"),
            during_turn("quit", self._quit, "Leave; so do exit and Ctrl-D", aliases=("exit",)),
        )

    async def _help(self, arguments: str) -> str:
        return help_text(row._replace(description=printable(row.description)) for row in self._help_rows())

    async def _new(self, arguments: str) -> str:
        assert self._conversation is not None
        fresh = await self._open(None, self.session_id)
        await fresh.replace(self._conversation)
        self._conversation = fresh
        return f"New session {self._conversation.session_id}."

    async def _clear(self, arguments: str) -> str:
        await self._prompt.print_above(self._renderer.clear)
        return await self._new(arguments)

    async def _resume(self, arguments: str) -> str:
        assert self._conversation is not None
        chosen = await find_session(self._agent, arguments, LOCAL)
        if isinstance(chosen, str):
            return chosen
        if chosen.id == self.session_id:
            return "You are in it."
        fresh = await self._open(chosen.id)
        await self._conversation.close("resumed_other", successor=chosen.id)
        self._conversation = fresh
        self._renderer.note(f"Going on with {chosen.id}" + (f": {printable(chosen.title)}" if chosen.title else "."))
        if await self._agent.unfinished_turns(chosen.id):
            self._renderer.note("The last turn was cut off; it goes on.")
            await self._turn(None)
        return ""

    async def _title(self, arguments: str) -> str:
        return await set_title(self._agent, self.session_id, arguments)

    async def _use_model(self, arguments: str) -> str:
        assert self._conversation is not None
        if arguments:
            self._conversation.use_model(arguments.split()[0].strip("'\""))
            self._model = self._conversation.model
        return f"model: {self._conversation.model} ({self._conversation.provider})"

    async def _stop(self, arguments: str) -> str:
        if not self._busy or self._conversation is None:
            return "Nothing runs."
        self._conversation.interrupt()
        return ""

    async def _quit(self, arguments: str) -> None:
        self._leaving = True
        if self._busy and self._conversation is not None:
            self._conversation.interrupt()


def is_leaving(line: str) -> bool:
    """Return whether a typed line asks to leave without being a command."""
    return line.strip().lower() in LEAVE


@contextlib.contextmanager
def _sigint(talk: Conversation) -> Iterator[None]:
    """Ctrl-C interrupts the turn, not the program."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, talk.interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
