"""The conversation in a terminal: prompt, streaming answer, tool lines, slash commands."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.agent import Agent, Conversation
from hermes_agent.commands import CommandRegistry, parse, run_command
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.core.registry import BUILTIN
from hermes_agent.policy import NobodyThere
from hermes_agent.terminal.approver import TerminalApprover
from hermes_agent.terminal.render import Renderer
from hermes_agent.tools import current_scope

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

__all__ = ["Chat"]

PROMPT = "❯ "

HELP = (
    ("help", "", "what can be typed here"),
    ("new", "", "start a new session"),
    ("model", "[NAME]", "show the model, or go on with another"),
    ("quit", "", "leave (also Ctrl-D)"),
)


class Chat:
    """One conversation at a terminal, until the person leaves.

    Args:
        banner: lines that are shown at the start.
    """

    def __init__(
        self,
        agent: Agent,
        commands: CommandRegistry,
        *,
        home: Path,
        banner: Sequence[str],
        session_id: str | None = None,
        model: str | None = None,
    ) -> None:
        self._agent = agent
        self._commands = commands
        self._home = home
        self._banner = banner
        self._session_id = session_id
        self._model = model
        self._prompt: PromptSession[str] | None = None
        self._leaving = False
        self._talk: Conversation | None = None
        self._register_commands()

    async def run(self, *, first_question: str | None = None, prompt: bool = True) -> int:
        """Converse and return the exit status.

        Args:
            first_question: asked before the prompt is shown.
            prompt: whether to go on with the prompt.

        Raises:
            UserError: no model can be had.
        """
        renderer = Renderer(sys.stdout, sys.stdout)
        self._talk = await self._open(self._session_id)
        for line in self._lines_at_start():
            renderer.note(line)
        status = EXIT_OK
        # while the person reads and types; the first answer need not wait for it
        warming = asyncio.ensure_future(self._agent.warm_up(self._talk.chosen.client))
        try:
            if first_question is not None:
                renderer.note(f"\n{PROMPT}{first_question}")
                status = await self._turn(first_question, renderer)
            if prompt:
                await self._loop(renderer)
                status = EXIT_OK
        finally:
            warming.cancel()
            await asyncio.gather(warming, return_exceptions=True)
            await self._talk.close("cli_close")
        return status

    async def _loop(self, renderer: Renderer) -> None:
        while not self._leaving:
            try:
                line = await self._read(PROMPT)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if not line.strip():
                continue
            if (command := parse(line)) is not None:
                await self._command(*command, renderer)
            else:
                await self._turn(line, renderer)

    async def _turn(self, text: str, renderer: Renderer) -> int:
        assert self._talk is not None
        with _sigint(self._talk):
            try:
                async for event in self._talk.turn(text):
                    renderer.show(event)
            except UserError as error:
                renderer.error(str(error))
                return EXIT_FAILED
        return EXIT_OK

    async def _command(self, name: str, arguments: str, renderer: Renderer) -> None:
        command = self._find(name)
        if command is None:
            renderer.error(f"There is no command /{name}. /help lists them.")
            return
        assert self._talk is not None
        await self._talk.announce(command.name, arguments)
        if self._commands.owner(command.name) == BUILTIN and _is_async(command.handler):
            try:
                answer = await command.handler(arguments)
            except UserError as error:
                renderer.error(str(error))
                return
        else:
            token = current_scope.set(self._talk.scope())  # a command that calls a tool asks this person
            try:
                answer = await run_command(command, arguments, self._agent.bridge)
            finally:
                current_scope.reset(token)
        if answer:
            renderer.note(answer)

    def _find(self, name: str) -> SlashCommand | None:
        """Return the command of that name, or the only one that begins so."""
        exact = self._commands.get(name)
        if exact is not None:
            return exact
        fits = [n for n in self._commands.names() if n.startswith(name)]
        return self._commands.get(fits[0]) if len(fits) == 1 else None

    async def _read(self, prompt: str) -> str:
        if self._prompt is None:
            from hermes_agent.terminal.line_editor import line_editor  # prompt_toolkit costs 100 ms to import

            self._prompt = line_editor(self._home / "history", self._commands)
        return await self._prompt.prompt_async(prompt)

    async def _ask(self, prompt: str) -> str:
        from prompt_toolkit import PromptSession  # as above; an answer must not land in the history

        return await PromptSession[str]().prompt_async(prompt)

    async def _open(self, session_id: str | None) -> Conversation:
        interactive = sys.stdin.isatty()
        approver = TerminalApprover(self._ask, print) if interactive else NobodyThere("without a terminal")
        return await self._agent.open(session_id, platform="cli", approver=approver, model=self._model)

    def _lines_at_start(self) -> list[str]:
        assert self._talk is not None
        lines = [*self._banner, f"model: {self._talk.model} ({self._talk.provider})"]
        if self._talk.history:
            count = len(self._talk.history)
            lines.append(f"session {self._talk.session_id}, {count} messages so far")
        return lines

    def _register_commands(self) -> None:
        handlers: dict[str, Any] = {"help": self._help, "new": self._new, "model": self._use_model, "quit": self._quit}
        for name, hint, text in HELP:
            self._commands.register(name, handlers[name], description=text, args_hint=hint)

    def _help(self, arguments: str) -> str:
        rows = [(f"/{c.name} {c.args_hint}".rstrip(), c.description) for _, c in sorted(self._commands.items())]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)

    async def _new(self, arguments: str) -> str:
        assert self._talk is not None
        fresh = await self._open(None)
        await fresh.take_over(self._talk)
        self._talk = fresh
        return f"New session {self._talk.session_id}."

    async def _use_model(self, arguments: str) -> str:
        assert self._talk is not None
        if arguments:
            self._talk.use_model(shlex.split(arguments)[0])
            self._model = self._talk.model
        return f"model: {self._talk.model} ({self._talk.provider})"

    async def _quit(self, arguments: str) -> None:
        self._leaving = True


def _is_async(handler: Any) -> bool:
    """Say whether a handler of ours runs on the core loop."""
    return asyncio.iscoroutinefunction(handler)


@contextlib.contextmanager
def _sigint(talk: Conversation) -> Iterator[None]:
    """Ctrl-C interrupts the turn, not the program."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, talk.interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
