"""The answer to one question: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_agent.agent import Agent
from hermes_agent.agent.command_router import CommandCall, CommandRouter, RunSkill, UnknownCommand
from hermes_agent.console.event_records import RecordSink
from hermes_agent.console.styled import Line, Piece, Theme, plain, printable, wrap
from hermes_agent.console.tool_lines import finished_line, result_lines, running_line
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import (
    Content,
    Notice,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnSink,
    fold,
    new_session_id,
)
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import has_colour, nearest_name
from hermes_agent.policy import Approver, Choice, NoApprover, Refusal

if TYPE_CHECKING:
    from hermes_agent.console.markdown_view import MarkdownView
    from hermes_agent.system.activity_line import ActivityLine

PLATFORM = "cli"
NOTE_WIDTH = 160
"""Columns of a line on stderr that is no terminal."""


class OneShotOptions(LazyNamedTuple):
    """How one question is asked and its answer written."""

    session_id: str | None = None
    model: str | None = None
    toolsets: Collection[str] | None = None
    """Toolsets that the model is shown; None allows all."""
    images: Sequence[Path] = ()
    form: Literal["text", "json", "jsonl"] = "text"
    quiet: bool = False
    """Whether stderr gets neither tool calls nor notices."""
    verbose: bool = False
    """Whether stderr gets tool results, too."""
    approve: bool = False
    """Whether approval requests are allowed unless the user must decide each time."""


class AnswerSink(TurnSink):
    """Writes the answer to stdout, and tool calls and notices to stderr.

    On a terminal the answer is rendered while it grows, block by block. Otherwise its whole text is written at the end.
    """

    def __init__(self, options: OneShotOptions) -> None:
        self.sentence = ""
        """The sentence of the agent that ended the turn, or ""."""
        self._options = options
        self._streams = options.form == "text" and sys.stdout.isatty()
        self._theme = Theme(has_colour=has_colour(sys.stdout))
        self._notes = Theme(has_colour=has_colour(sys.stderr))
        self._markdown = _markdown_view() if self._streams else None
        self._has_text = False
        self._calls: dict[str, ToolStarted] = {}
        self._activity: ActivityLine | None = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show on stderr what the agent does while the block lasts, if it is a terminal of its own lines."""
        if self._options.quiet or not sys.stderr.isatty() or (self._options.form == "jsonl" and sys.stdout.isatty()):
            yield
            return
        from hermes_agent.system.activity_line import activity_line  # only at a terminal

        with activity_line("thinking") as line:
            self._activity = line
            try:
                yield
            finally:
                self._activity = None

    def hidden(self) -> AbstractContextManager[None]:
        """Keep that line away while the block writes to the terminal or asks."""
        return nullcontext() if self._activity is None else self._activity.hidden()

    def text(self, delta: str) -> None:
        """Write what is finished of the answer."""
        if self._markdown is not None:
            self._has_text = self._has_text or bool(delta.strip())
            self._markdown.feed(delta if self._has_text else delta.lstrip("\n"))
            for lines in self._markdown.finished(_columns(sys.stdout)):
                self._write(lines)

    def stop_sentence(self, text: str) -> None:
        """Keep the sentence for stderr."""
        self.sentence = text.strip()

    def tool_started(self, event: ToolStarted) -> None:
        """Remember the arguments."""
        self._calls[event.call_id] = event
        self._say_activity()

    def tool_finished(self, event: ToolFinished) -> None:
        """Write the line of a call."""
        self._finish_text()
        started, width = self._calls.pop(event.call_id, None), _columns(sys.stderr)
        self._say_activity()
        arguments = started.arguments if started is not None else {}
        lines = [finished_line(event.name, arguments, event.result, event.status, event.duration_ms, width)]
        self.note([*lines, *(result_lines(event.result, width) if self._options.verbose else ())])

    def notice(self, event: Notice) -> None:
        """Write a notice."""
        self._finish_text()
        text = redactor.mask_known(printable(event.text))
        self.note(wrap([Piece("warning" if event.level == "warning" else "dim", text)], max(_columns(sys.stderr), 40)))

    def finished(self, event: TurnFinished) -> None:
        """Write the rest of the answer."""
        if self._markdown is not None:
            if event.text and not self._has_text:
                self._markdown.feed(without_sentence(event.text, self.sentence))
            self._finish_text()
        elif self._options.form == "text":
            text = without_sentence(event.text, self.sentence)
            if text or not self.sentence:
                with self.hidden():
                    print(text)

    def note(self, lines: Sequence[Line]) -> None:
        """Write lines to stderr, unless it is to be quiet."""
        if not self._options.quiet:
            with self.hidden():
                for each in lines:
                    print(self._notes.ansi(each) if self._notes.has_colour else plain(each), file=sys.stderr)

    def _say_activity(self) -> None:
        if self._activity is not None:
            running = next(iter(self._calls.values()), None)
            line = running_line(running.name, running.arguments, 0, _columns(sys.stderr)) if running else ()
            self._activity.say(plain(line) or "thinking")

    def _finish_text(self) -> None:
        if self._markdown is not None:
            for lines in self._markdown.finish(_columns(sys.stdout)):
                self._write(lines)
            self._markdown = _markdown_view()

    def _write(self, lines: Sequence[Line]) -> None:
        with self.hidden():
            for each in lines:
                print(self._theme.ansi(each) if self._theme.has_colour else plain(each))
            sys.stdout.flush()


class _BothSinks(TurnSink):
    """Gives each event to two sinks."""

    def __init__(self, first: TurnSink, second: TurnSink) -> None:
        self._sinks = first, second

    def event(self, event: TurnEvent) -> None:
        """Handle an event in both."""
        for sink in self._sinks:
            sink.event(event)


def _markdown_view() -> MarkdownView:
    from hermes_agent.console.markdown_view import MarkdownView  # only for a terminal

    return MarkdownView()


def _columns(stream: object) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or NOTE_WIDTH  # type: ignore[attr-defined]
    except (AttributeError, ValueError, OSError):
        return NOTE_WIDTH


PromptReader = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns the line that was typed; raises EOFError at the end of input."""

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
    """Asks for `once`, `session`, `always` or `deny` by a line of text."""

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
        return line or Refusal("the user gave no answer")


async def answer_once(
    agent: Agent,
    slash: CommandRouter,
    question: str,
    options: OneShotOptions = OneShotOptions(),  # noqa: B008 - frozen
) -> int:
    """Ask, print the answer, and return the exit status; a line `/name …` runs a command as everywhere.

    The status is 0 when the question is answered or the command ran, 1 when the command failed, the turn was
    interrupted or a limit ended it, 2 when there is no such command.

    Raises:
        UserError: no model is available, or it failed.
    """
    session_id = options.session_id or new_session_id()
    options = options._replace(session_id=session_id)
    found = await slash.resolve(question, where="terminal", session_id=session_id, platform=PLATFORM)
    match found:
        case CommandCall():
            return await _command(agent, slash, found, options)
        case UnknownCommand(name, known):
            near = nearest_name(name, known)
            hint = f" Did you mean /{near}?" if near else f" There are: {', '.join(f'/{n}' for n in known)}."
            print(f"hermes: There is no command /{printable(name)}.{hint}", file=sys.stderr)
            return EXIT_USAGE
        case RunSkill(message):
            question = message
    return await _turn(agent, question, options)


class _InjectedTexts:
    """Messages that plugins inject while a command runs (`agent.injected_messages.PromptedFrontEnd`)."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.texts: list[str] = []

    def push(self, text: str) -> bool:
        """Keep a message until the command has ended."""
        self.texts.append(text)
        return True


async def _command(agent: Agent, slash: CommandRouter, called: CommandCall, options: OneShotOptions) -> int:
    """Run a command, and answer the messages that it injects."""
    session_id = options.session_id or ""
    injected = agent.injected.front_end = _InjectedTexts(session_id)
    try:
        scope = slash.scope(session_id, PLATFORM, _approver(options))
        with _on_sigint(scope.cancelled.set):
            await slash.announce(called, scope)
            answer = await slash.try_run(called, scope)
    finally:
        agent.injected.front_end = None
    if answer.has_failed:
        print(f"hermes: {printable(answer.text or '')}", file=sys.stderr)
    elif answer.text:
        print(printable(answer.text) if sys.stdout.isatty() else answer.text)
    statuses = [await _turn(agent, text, options) for text in injected.texts]
    return max((EXIT_FAILED if answer.has_failed else EXIT_OK, *statuses))


async def _turn(agent: Agent, question: str, options: OneShotOptions) -> int:
    sink = AnswerSink(options)
    conversation = await agent.open(
        options.session_id,
        platform=PLATFORM,
        approver=_approver(options, sink.hidden),
        model=options.model,
        toolsets=options.toolsets,
    )
    records = RecordSink(conversation.session_id, print if options.form == "jsonl" else None)
    if options.form != "text":
        records.record(
            "session",
            session_id=conversation.session_id,
            model=conversation.model,
            provider=conversation.provider,
        )
    try:
        with _on_sigint(conversation.interrupt), sink.working():
            content = await agent.bridge.run(_content, question, options.images)
            end = await fold(conversation.turn(content), _BothSinks(sink, records))
    except UserError as error:
        records.record("error", message=error.message, hint=error.hint or "")
        raise
    finally:
        await conversation.close("cli_close")
    if options.form == "json" and end is not None:
        print(records.result())
    why = "" if end is None else sink.sentence or incomplete_reason(end)
    if why:
        print(f"hermes: {printable(why)}", file=sys.stderr)
    return EXIT_FAILED if why else EXIT_OK


def _content(question: str, images: Sequence[Path]) -> Content:
    """Return the content of the message. Raises UserError if an image cannot be sent."""
    from hermes_agent.console.input import content_with_images

    content, warnings = content_with_images(question, list(images))
    if warnings:
        raise UserError(warnings[0], exit_status=EXIT_USAGE)
    return content


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


class _AllowingApprover:
    """Allows what asks, except what the user must decide each time (`--approve`)."""

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Allow once, or refuse."""
        if request.mandatory:
            return await NoApprover("with --approve, which leaves this decision to the user").ask(request)
        return "once"


def _approver(options: OneShotOptions, hidden: Callable[[], AbstractContextManager[None]] = nullcontext) -> Approver:
    """Return who answers requests; `hidden`: keeps other lines away from the terminal."""
    if options.approve:
        return _AllowingApprover()
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return NoApprover("without a terminal")

    def show(text: str) -> None:
        with hidden():
            print(text, file=sys.stderr)

    async def ask(prompt: str) -> str:
        from prompt_toolkit import PromptSession  # 100 ms to import, needed only for a question
        from prompt_toolkit.output.defaults import create_output

        with hidden():
            return await PromptSession[str](output=create_output(stdout=sys.stderr)).prompt_async(prompt)

    return TerminalApprover(ask, show)
