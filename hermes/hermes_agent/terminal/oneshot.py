"""One question: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hermes_agent.agent import Agent
from hermes_agent.agent.slash import CommandCall, CommandRouter, RunSkill, UnknownCommand
from hermes_agent.config.nearness import nearest_name
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from hermes_agent.core.events import StopSentence, TextDelta, TurnFinished
from hermes_agent.core.ids import new_session_id
from hermes_agent.policy import Approver, NoApprover
from hermes_agent.terminal.approver import TerminalApprover
from hermes_agent.terminal.render import Renderer, printable

__all__ = ["answer_once", "incomplete_reason", "without_sentence"]

PLATFORM = "cli"


async def answer_once(
    agent: Agent, slash: CommandRouter, question: str, *, session_id: str | None = None, model: str | None = None
) -> int:
    """Ask, print the answer, and return the exit status; a line `/name …` runs a command as everywhere.

    The status is 0 when the question is answered or the command ran, 1 when the turn was interrupted or a limit ended
    it, 2 when there is no such command.

    Raises:
        UserError: no model can be had, or it failed.
    """
    session_id = session_id or new_session_id()
    meaning = await slash.resolve(question, session_id=session_id, platform=PLATFORM)
    match meaning:
        case CommandCall():
            return await _command(agent, slash, meaning, session_id, model)
        case UnknownCommand(name, known):
            near = nearest_name(name, known)
            hint = f" Did you mean /{near}?" if near else f" There are: {', '.join(f'/{n}' for n in known)}."
            print(f"hermes: There is no command /{printable(name)}.{hint}", file=sys.stderr)
            return EXIT_USAGE
        case RunSkill(message):
            question = message
    return await _turn(agent, question, session_id, model)


class _InjectedTexts:
    """What plugins say into the session while a command runs (`agent.inbox.Front`)."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.texts: list[str] = []

    def push(self, text: str) -> bool:
        """Keep it for after the command."""
        self.texts.append(text)
        return True


async def _command(agent: Agent, slash: CommandRouter, called: CommandCall, session_id: str, model: str | None) -> int:
    """Run a command, and answer what it says into the session."""
    spoken = agent.injected.front_end = _InjectedTexts(session_id)
    try:
        scope = slash.scope(session_id, PLATFORM, _approver())
        with _on_sigint(scope.cancelled.set):
            await slash.announce(called, scope)
            answer = await slash.run(called, scope)
    finally:
        agent.injected.front_end = None
    if answer:
        print(printable(answer) if sys.stdout.isatty() else answer)
    statuses = [await _turn(agent, text, session_id, model) for text in spoken.texts]
    return max(statuses, default=EXIT_OK)


async def _turn(agent: Agent, question: str, session_id: str, model: str | None) -> int:
    renderer = Renderer(sys.stdout, sys.stderr)
    talk = await agent.open(session_id, platform=PLATFORM, approver=_approver(), model=model)
    streamed, sentence, why = sys.stdout.isatty(), "", ""
    try:
        with _on_sigint(talk.interrupt):
            async for event in talk.turn(question):
                if isinstance(event, StopSentence):
                    sentence = event.text.strip()
                elif isinstance(event, TurnFinished):
                    why = sentence or incomplete_reason(event)
                    if streamed:
                        renderer.show(event)
                    elif (text := without_sentence(event.text, sentence)) or not sentence:
                        print(text)
                elif streamed or not isinstance(event, TextDelta):
                    renderer.show(event)
    finally:
        await talk.close("cli_close")
    if why:
        print(f"hermes: {printable(why)}", file=sys.stderr)
    return EXIT_FAILED if why else EXIT_OK


def incomplete_reason(end: TurnFinished) -> str:
    """Return what is to be said of a reply that is not whole; empty when it is."""
    match end.reason, end.reply_finish_reason:
        case "interrupted", _:
            return "The turn was interrupted."
        case (("budget" | "stopped"), _):
            return "A limit ended the turn: the answer above is the last word, not the whole."
        case _, "length":
            return "The answer ends where its limit of tokens was reached (`model.max_tokens`, or the model's own)."
        case _, "content_filter":
            return "The rest of the answer was withheld by the provider's content filter."
    return ""


def without_sentence(text: str, sentence: str) -> str:
    """Return a reply without the agent's own sentence at its end."""
    return text.removesuffix(sentence).rstrip() if sentence else text


@contextmanager
def _on_sigint(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _approver() -> Approver:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return NoApprover("without a terminal")

    def show(text: str) -> None:
        print(text, file=sys.stderr)

    async def ask(prompt: str) -> str:
        from prompt_toolkit import PromptSession  # 100 ms to import, needed only for a question
        from prompt_toolkit.output.defaults import create_output

        return await PromptSession[str](output=create_output(stdout=sys.stderr)).prompt_async(prompt)

    return TerminalApprover(ask, show)
