"""What the events of a turn look like in a terminal. Writes to one stream; colour only where it may be coloured.

Asking the person at the terminal.

One question: the answer on stdout, everything else on stderr.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from hermes_agent.agent import Agent
from hermes_agent.agent.command_router import CommandCall, CommandRouter, RunSkill, UnknownCommand
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from hermes_agent.core.messages import (
    Event,
    Notice,
    StopSentence,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    new_session_id,
)
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import has_colour, nearest_name, shorten
from hermes_agent.policy import Approver, Choice, NoApprover, Refusal

LINE_LIMIT = 160

_DIM, _BOLD, _YELLOW, _RED, _CYAN, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[33m", "\x1b[31m", "\x1b[36m", "\x1b[0m"
_CLEAR = "\x1b[H\x1b[2J"


def printable(text: str) -> str:
    """Return `text` without control characters: what a model or a tool wrote must not steer the terminal."""
    return "".join(
        c if c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def tool_line(name: str, arguments: dict[str, Any]) -> str:
    """Return `name {"arg": …}` on one line."""
    return _one_line(f"{name} {json.dumps(arguments, ensure_ascii=False)}")


def _one_line(text: str) -> str:
    return shorten(" ".join(printable(text).split()), LINE_LIMIT)


class Renderer:
    """Shows events as they come.

    Args:
        answers: where the answer goes.
        notes: where tool lines and notices go; the same stream in a conversation.
    """

    def __init__(self, answers: TextIO, notes: TextIO) -> None:
        self._answers = answers
        self._notes = notes
        self._coloured = has_colour(notes)
        self._at_line_start = True
        self._wrote_text = False

    def show(self, event: Event) -> None:
        """Write one event."""
        match event:
            case TextDelta(text):
                self._text(printable(text))
            case ToolStarted(_, name, arguments):
                self._note(f"⚡ {tool_line(name, arguments)}", _CYAN)
            case ToolFinished(_, _, result, status, duration_ms):
                mark = "→" if status == "ok" else f"✗ {status}:"
                self._note(f"  {mark} {_one_line(result)}  ({duration_ms} ms)", _DIM if status == "ok" else _RED)
            case Notice(text, level):
                self._note(text, _YELLOW if level == "warning" else _DIM)
            case TurnFinished(text, reason, _, _):
                if not self._wrote_text and text:
                    self._text(printable(text))
                self._end_line()
                if reason == "interrupted":
                    self._note("(interrupted)", _DIM)

    def note(self, text: str) -> None:
        """Write a line that is not part of an answer."""
        self._note(text, "")

    def error(self, text: str) -> None:
        """Write an error."""
        self._note(text, _RED)

    def clear(self) -> None:
        """Clear the screen, where there is one."""
        if self._answers.isatty():
            self._answers.write(_CLEAR)
            self._answers.flush()
            self._at_line_start = True

    def _text(self, text: str) -> None:
        if not self._wrote_text:
            text = text.lstrip("\n")
        if not text:
            return
        self._answers.write(text)
        self._answers.flush()
        self._wrote_text = True
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._answers.write("\n")
            self._answers.flush()
            self._at_line_start = True

    def _note(self, text: str, colour: str) -> None:
        text = redactor.mask_known(text)
        if self._notes is self._answers or self._notes.isatty():
            self._end_line()
        line = f"{colour}{text}{_RESET}" if colour and self._coloured else text
        self._notes.write(line + "\n")
        self._notes.flush()


PromptReader = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns the line that was typed; raises EOFError when the person left."""

ANSWERS: dict[str, Choice] = {
    "o": "once",
    "once": "once",
    "y": "once",
    "yes": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
    "d": "deny",
    "deny": "deny",
    "n": "deny",
    "no": "deny",
    "": "deny",
}
LABELS = {"once": "[o]nce", "session": "for this [s]ession", "always": "[a]lways", "deny": "[d]eny"}


class TerminalApprover:
    """Shows what a tool wants to do and waits for `once`, `session`, `always` (where it is offered) or `deny`."""

    def __init__(self, ask: PromptReader, show: Callable[[str], None]) -> None:
        self._ask = ask
        self._show = show

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Ask until the answer is one of those; end of input denies."""
        offered = request.answers
        words = ", ".join(LABELS[answer] for answer in offered)
        who = f"plugin `{request.plugin}`: {request.tool}" if request.plugin else request.tool
        self._show(f"\n{who} wants to {request.summary}:")
        for line in printable(request.detail).splitlines() or [""]:
            self._show(f"    {line}")
        while True:
            try:
                line = await self._ask(f"Allow? {words}: ")
            except (EOFError, KeyboardInterrupt, asyncio.CancelledError):
                return "deny"
            choice = ANSWERS.get(line.strip().lower())
            if choice in offered:
                return choice
            self._show(f"{line.strip()!r} is none of {', '.join(offered)}.")

    async def clarify(self, question: str, choices: Sequence[str] = ()) -> str | Refusal:
        """Show a question of the agent; the answer is a choice, by its number or its words, or something else."""
        self._show(f"\n{printable(question)}")
        for number, choice in enumerate(choices, 1):
            self._show(f"    {number}. {printable(choice)}")
        try:
            line = (await self._ask("Answer: ")).strip()
        except (EOFError, KeyboardInterrupt):
            line = ""
        if line.isdecimal() and 0 < int(line) <= len(choices):
            return choices[int(line) - 1]
        return line or Refusal("the person gave no answer")


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
    meaning = await slash.resolve(question, where="terminal", session_id=session_id, platform=PLATFORM)
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
