"""Shows the events of turns on a screen: answers, tool calls, notices, and what the agent does now."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from hermes_agent.console import tool_lines
from hermes_agent.console.markdown_view import MarkdownView, render_markdown
from hermes_agent.console.screen import Screen
from hermes_agent.console.styled import Line, Piece, line, printable, wrap
from hermes_agent.console.tool_lines import MAX_DIFF_LINES, Diff, changed_text, readable_text, unified_diff
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Notice, ToolFinished, ToolStarted, TurnFinished, TurnSink
from hermes_agent.core.redaction import redactor

FRAME_S = 0.04
"""Time between two frames."""
FRAME_CPU_S = 0.005
"""CPU time after which a frame leaves finished blocks to the next frame."""
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_S = 0.12
VERBOSE_DIFF_LINES = 2_000
MAX_OUTPUT_CHARS = 20_000
"""The end of a running command's output that is kept."""

_DONE = object()

Shown = Literal["", "user", "text", "tool", "note"]


@lazy_dataclass
class _RunningCall:
    """A tool call without a result yet."""

    name: str
    arguments: Mapping[str, Any]
    since: float
    old_text: str | None = None
    """Text of the file that a call writes, before it did; None where it is not compared."""
    output: str = field(default="")


@lazy_dataclass
class _Reasoning:
    """Reasoning that still comes."""

    since: float
    text: str = ""


class TranscriptView(TurnSink):
    """Shows one conversation.

    A live screen is drawn in frames. Each frame handles the events that wait until its CPU time is used up, so that a
    fast model delays neither the keys nor the next frame. Any other screen gets the events as they come.

    Args:
        directory: the working directory of the session, where relative paths begin.
        has_local_files: whether the agent's file tools work on this machine.
        is_raw: whether Markdown is shown as it is: the output is no terminal.
        shows_reasoning: whether reasoning is shown in full; otherwise one line says how long it took.
    """

    def __init__(
        self,
        screen: Screen,
        directory: Path,
        *,
        has_local_files: bool,
        is_raw: bool = False,
        shows_reasoning: bool = False,
    ) -> None:
        self.verbose = False
        self._shows_reasoning = shows_reasoning
        self._reasoning: _Reasoning | None = None
        """The reasoning that is being written."""
        self._folded: list[list[Line]] = []
        """Reasoning and results of the last turn that are shown as a single line."""
        self._is_fresh = False
        """Whether a turn has begun since something was folded."""
        self.waits_for = ""
        """What the turn waits for, other than the model and tools: an answer of the user."""
        self.command = ""
        """The command that runs between turns, such as `/compact`."""
        self._screen = screen
        self._directory = directory
        self._has_local_files = has_local_files
        self._is_raw = is_raw
        self._waiting: deque[Callable[[], Iterator[object]]] = deque()
        """Work for the events that are not shown yet."""
        self._work: Iterator[object] | None = None
        """The work that has begun, in small steps."""
        self._is_advancing = False
        self._markdown: MarkdownView | None = None
        self._has_text = False
        """Whether the turn has shown text of its answer."""
        self._calls: dict[str, _RunningCall] = {}
        """Calls that were started, shown or not."""
        self._running: list[str] = []
        """Ids of the calls that are shown as running."""
        self._last: Shown = ""
        self._finished: list[Line] = []
        self._since: float | None = None
        """When the turn began; None between turns."""
        self._frames: asyncio.Task[None] | None = None

    # -- turns -------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Show that the agent works."""
        self._since = time.monotonic()
        self._has_text = False
        self._is_fresh = True
        self._screen.set_busy(True)
        if self._screen.is_live:
            self._frames = asyncio.ensure_future(self._draw_frames())

    async def end_turn(self) -> None:
        """Show all that is not shown yet."""
        await self.show_waiting()
        self._end_reasoning()
        if self._frames is not None:
            self._frames.cancel()
            self._frames = None
        self._since = None
        self._calls.clear()
        self._running.clear()
        self._flush()
        self._screen.show_live(())
        self._screen.set_busy(False)

    async def show_waiting(self) -> None:
        """Show the events that are not shown yet, and finish the answer."""
        while self._since is not None and not self._advance(finishes=True):
            self._flush()
            await asyncio.sleep(0)

    def text(self, delta: str) -> None:
        """Show a piece of the answer."""
        self._enqueue(lambda: self._add_text(delta))

    def reasoning(self, delta: str) -> None:
        """Show that the model reasons; the text is folded."""
        self._enqueue(lambda: self._add_reasoning(delta))

    def tool_started(self, event: ToolStarted) -> None:
        """Show that a call runs."""
        self._calls[event.call_id] = self._new_call(event)
        self._enqueue(lambda: self._after_text(lambda: self._running.append(event.call_id)))

    def tool_finished(self, event: ToolFinished) -> None:
        """Show a call that ended."""
        self._enqueue(lambda: self._after_text(lambda: self._finish_call(event)))

    def notice(self, event: Notice) -> None:
        """Show a notice."""
        style = "warning" if event.level == "warning" else "dim"
        self._enqueue(lambda: self._after_text(lambda: self.note(event.text, style)))

    def finished(self, event: TurnFinished) -> None:
        """Show the end of the answer."""
        self._enqueue(lambda: self._end_answer(event))

    def tool_output(self, call_id: str, text: str) -> None:
        """Show the last lines of a command that runs."""
        call = self._calls.get(call_id)
        if call is not None:
            call.output = (call.output + text)[-MAX_OUTPUT_CHARS:]

    def _advance(self, *, finishes: bool = False) -> bool:
        """Handle events until the CPU time of a frame is used up; return whether all are handled.

        Args:
            finishes: whether no further text comes: the unfinished block is finished, too.
        """
        started = time.thread_time()
        self._is_advancing = True
        try:
            return self._handle_until(started + FRAME_CPU_S, finishes=finishes)
        finally:
            self._is_advancing = False

    def _handle_until(self, until: float, *, finishes: bool) -> bool:
        while time.thread_time() < until:
            if self._work is None:
                if self._waiting:
                    self._work = self._waiting.popleft()()
                elif finishes and self._markdown is not None:
                    self._work = self._finish_text()
                else:
                    return True
            if next(self._work, _DONE) is _DONE:
                self._work = None
        return False

    def _enqueue(self, work: Callable[[], Iterator[object]]) -> None:
        self._waiting.append(work)
        if not self._screen.is_live:
            while not self._advance():
                pass
            self._flush()

    def _after_text(self, work: Callable[[], None]) -> Iterator[object]:
        self._end_reasoning()
        yield from self._finish_text()
        work()

    def _end_answer(self, event: TurnFinished) -> Iterator[object]:
        if event.text and not self._has_text:
            yield from self._add_text(event.text)
        self._end_reasoning()
        yield from self._finish_text()
        if event.reason == "interrupted":
            self.note("(interrupted)", "dim")

    # -- single lines ------------------------------------------------------------------------------------------

    def user_message(self, text: str) -> None:
        """Show a message of the user."""
        lines = printable(redactor.mask_known(text)).expandtabs(4).split("\n")
        shown = lines if len(lines) <= 12 else [*lines[:10], f"… {len(lines) - 10} more lines"]
        found: list[Line] = [()]
        for number, each in enumerate(shown):
            mark = Piece("prompt", "❯ " if not number else "  ")
            found += wrap([Piece("user", each)], self._screen.width, (mark,))
        self._print(found, "user", gap=False)

    def note(self, text: str, style: str = "") -> None:
        """Show text that is no part of an answer."""
        shown = printable(redactor.mask_known(text)).expandtabs(4)
        lines: list[Line] = []
        for each in shown.split("\n"):
            if self._is_raw:
                lines.append(line(each, style))
                continue
            indent = len(each) - len(each.lstrip())
            lines += wrap([Piece(style, each)], self._screen.width, (), line(" " * indent))
        self._print(lines, "note", gap=self._last not in ("note", "tool"))

    def error(self, text: str) -> None:
        """Show an error."""
        self.note(text, "error")

    def lines(self, lines: Iterable[Line]) -> None:
        """Show lines as they are, but for known secrets."""
        masked = [tuple(Piece(style, redactor.mask_known(text)) for style, text in each) for each in lines]
        self._print(masked, "note", gap=True)

    def markdown(self, text: str) -> None:
        """Show a whole Markdown text."""
        self._print(render_markdown(text, self._screen.width), "text", gap=True)

    def set_verbose(self, is_verbose: bool) -> None:
        """Show tool results and reasoning from now on, and those of the last turn; or hide them."""
        self.verbose = is_verbose
        folded, self._folded = self._folded, []
        if is_verbose and folded:
            self._print([each for lines in folded for each in lines], "tool", gap=True)
        self.note(f"Tool results and reasoning are {'shown' if is_verbose else 'hidden'}.", "dim")

    def _fold(self, lines: list[Line]) -> None:
        """Keep lines that `set_verbose` shows later."""
        if self._is_fresh:
            self._folded.clear()
            self._is_fresh = False
        self._folded.append(lines)

    # -- answers -----------------------------------------------------------------------------------------------

    def _add_reasoning(self, text: str) -> Iterator[object]:
        if self._reasoning is None:
            self._reasoning = _Reasoning(time.monotonic())
        self._reasoning.text += text
        return iter(())

    def _end_reasoning(self) -> None:
        """Show how long the model reasoned, and the text where it is not folded."""
        reasoning, self._reasoning = self._reasoning, None
        if reasoning is None or not reasoning.text.strip():
            return
        took = tool_lines.duration(time.monotonic() - reasoning.since)
        words = f"{len(reasoning.text.split()):,} words"
        head: Line = (Piece("dim", "✻ "), Piece("dim", f"Thought for {took}"), Piece("dim", f"  {words}"))
        text = tool_lines.reasoning_lines(reasoning.text, self._screen.width)
        is_shown = self.verbose or self._shows_reasoning
        if not is_shown:
            self._fold([head, *text])
        self._print([head, *text] if is_shown else [head], "tool", gap=self._last != "tool")

    def _add_text(self, text: str) -> Iterator[object]:
        if text.strip():
            self._end_reasoning()
        if self._markdown is None:
            text = text.lstrip("\n")
            if not text:
                return
            self._markdown = MarkdownView(is_raw=self._is_raw)
            self._has_text = True
        self._markdown.feed(text)
        for lines in self._markdown.finished(self._screen.width):
            self._add_answer(lines)
            yield None

    def _finish_text(self) -> Iterator[object]:
        if self._markdown is None:
            return
        for lines in self._markdown.finish(self._screen.width):
            self._add_answer(lines)
            yield None
        self._markdown = None

    def _add_answer(self, lines: list[Line]) -> None:
        if lines:
            self._begin("text", gap=self._last != "text" and bool(lines[0]))
            self._finished += lines

    # -- tool calls --------------------------------------------------------------------------------------------

    def _new_call(self, event: ToolStarted) -> _RunningCall:
        name, arguments = event.name, event.arguments
        call = _RunningCall(name, arguments, time.monotonic())
        if name == "write_file" and self._has_local_files:
            path = str(arguments.get("path") or "")
            call.old_text = readable_text(self._directory / Path(path).expanduser()) if path else None
        return call

    def _finish_call(self, event: ToolFinished) -> None:
        call = self._calls.pop(event.call_id, None) or _RunningCall(event.name, {}, 0.0)
        if event.call_id in self._running:
            self._running.remove(event.call_id)
        width = self._screen.width
        arguments, result = call.arguments, event.result
        lines = [tool_lines.finished_line(event.name, arguments, result, event.status, event.duration_ms, width)]
        if event.status == "ok":
            lines += self._change_lines(event.name, call, result)
            if event.name == "todo":
                lines += tool_lines.plan_lines(arguments, width)
        results = tool_lines.result_lines(result, width)
        if self.verbose:
            lines += results
        else:
            self._fold([lines[0], *results])
        self._print(lines, "tool", gap=self._last != "tool")

    def _change_lines(self, name: str, call: _RunningCall, result: str) -> list[Line]:
        """Return the diff of a call that changed a file."""
        limit = VERBOSE_DIFF_LINES if self.verbose else MAX_DIFF_LINES
        diff: Diff | None = None
        if text := tool_lines.diff_of(name, result):
            diff = unified_diff(text, limit=limit)
        elif name == "write_file" and call.old_text is not None:
            content = str(call.arguments.get("content") or "")
            diff = changed_text(redactor.mask_known(call.old_text), redactor.mask_known(content), limit=limit)
        return [] if diff is None else [(Piece("", "  "), *each) for each in diff.lines]

    # -- frames ------------------------------------------------------------------------------------------------

    def frame(self) -> tuple[list[Line], list[Line]]:
        """Return the lines that are finished since the last frame, and the live lines."""
        width = self._screen.width
        is_done = self._advance()
        rest = self._markdown.rest(width) if is_done and self._markdown is not None else []
        if rest and self._last != "text" and self._last and rest[0]:
            rest.insert(0, ())
        finished, self._finished = self._finished, []
        return finished, rest + self._activity_lines(width)

    def _activity_lines(self, width: int) -> list[Line]:
        """Return what the agent does now and since when."""
        if self._since is None:
            return []
        now = time.monotonic()
        mark = Piece("spinner", SPINNER[int(now / SPINNER_S) % len(SPINNER)] + " ")
        lines: list[Line] = [()]
        for call in [self._calls[call_id] for call_id in self._running if call_id in self._calls]:
            shown = tool_lines.running_line(call.name, call.arguments, now - call.since, width - 2)
            lines.append((mark, *shown))
            lines += tool_lines.last_lines(call.output, width)
        if self.waits_for:
            lines.append((mark, Piece("alert", self.waits_for)))
        elif not self._running:
            if self._reasoning is not None and (self.verbose or self._shows_reasoning):
                lines += tool_lines.last_lines(self._reasoning.text, width)
            what = "Writing" if self._markdown is not None else self.command or "Thinking"
            age = tool_lines.duration(max(now - self._since, 0)) if now - self._since >= 1 else ""
            lines.append((mark, Piece("", what), Piece("dim", f"  {age}  Ctrl-C stops" if age else "  Ctrl-C stops")))
        return lines

    async def _draw_frames(self) -> None:
        while True:
            finished, live = self.frame()
            self._screen.show(finished, live)
            await asyncio.sleep(FRAME_S)

    # -- output ------------------------------------------------------------------------------------------------

    def _begin(self, kind: Shown, *, gap: bool) -> None:
        if gap and self._last:
            self._finished.append(())
        self._last = kind

    def _print(self, lines: list[Line], kind: Shown, *, gap: bool) -> None:
        self._begin(kind, gap=gap)
        self._finished += lines
        if not self._is_advancing:  # the frame that handles the event writes them
            self._flush()

    def _flush(self) -> None:
        """Write the finished lines, with the live lines as they are now."""
        if self._screen.is_live and self._since is not None:
            finished, live = self.frame()
            self._screen.show(finished, live)
        else:
            finished, self._finished = self._finished, []
            self._screen.print(finished)
