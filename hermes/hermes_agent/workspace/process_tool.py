"""The tool `process`, and the notifications about background processes.

`ProcessWatcher` notifies sessions (`notify_on_complete`, `watch_patterns`). Source: plugin contract §4.12.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import printable
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.policy.operator_rules import CommandPolicy
from hermes_agent.tools import tool_error, tool_result
from hermes_agent.workspace import tool_context
from hermes_agent.workspace.background_processes import BackgroundProcess, BackgroundProcesses
from hermes_agent.workspace.schemas import ACTIONS
from hermes_agent.workspace.text_forms import shorten_output, strip_sequences
from hermes_agent.workspace.tool_context import ToolContext

logger = logging.getLogger(__name__)

WAIT_S = 60
MAX_WAIT_S = 600
LOG_LINES = 200


@lazy_dataclass(frozen=True, slots=True)
class ProcessTool:
    """The handler of `process`, and its approval request.

    Attributes:
        max_bytes, max_lines, max_line_chars: limits of the output for the model (`tool_output`).
        policy: the rules for commands; they hold for input, too, because a shell may read it.
    """

    context: ToolContext
    processes: BackgroundProcesses
    max_bytes: int = 50_000
    max_lines: int = 2_000
    max_line_chars: int = 2_000
    policy: CommandPolicy = field(default_factory=CommandPolicy)

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | str | None:
        """Return the approval request for input, judged as a command, because a shell may read it."""
        if args.get("action") not in ("write", "submit"):
            return None
        try:
            process = self._process(args)
            data = tool_context.parse_text(args, "data", default="", may_be_empty=True)
        except ToolFailed:
            return None  # the handler refuses the same arguments with the reason
        review = self.policy.review(data, typed=True) if data.strip() else None
        if review is not None and review.verdict == "refuse":
            return review.reason
        keys = () if review is None else review.keys
        if process.confined and not keys:
            return None
        digest = hashlib.sha256(f"{process.id}\0{data}".encode("utf-8", "replace")).hexdigest()
        summary = "give input to a process" + (f" ({'; '.join(keys)})" if keys else "")
        detail = f"{printable(data)}\nto {printable(process.command)}"
        once = review is not None and review.once
        mandatory = self._is_outside(process) or (review is not None and review.mandatory)
        return ApprovalRequest("process", summary, detail, f"process:{digest}", once=once, mandatory=mandatory)

    def _is_outside(self, process: BackgroundProcess) -> bool:
        """Return whether a process runs outside the sandbox of the backend."""
        shells = self.context.shells
        backend = None if shells is None else shells.backend_or_none
        return backend is not None and backend.can_leave and not process.confined

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `processes`, or `session_id`, `status`, `output` and `exit_code` of one process."""
        try:
            action = args.get("action")
            if action not in ACTIONS:
                raise ToolFailed(f"`action` is {repr(action)[:100]}: expected one of {', '.join(ACTIONS)}")
            if action == "list":
                return tool_result(
                    processes=[self._status(p) for p in self.processes.processes_of(self.context.task_id())]
                )
            process = self._process(args)
            with self.context.use_network("process", printable(process.command)):
                return tool_result(getattr(self, f"_{action}")(process, args))
        except ToolFailed as exc:
            return tool_error(exc)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the process of a call (`Effect.place`)."""
        name = args.get("session_id")
        return [f"process:{name}"] if isinstance(name, str) and name else []

    def _process(self, args: dict[str, Any]) -> BackgroundProcess:
        return self.processes.get(tool_context.parse_text(args, "session_id"), self.context.task_id())

    def _status(self, process: BackgroundProcess) -> dict[str, Any]:
        """Return the status of a process for the model."""
        status = self.processes.status(process)
        end = self.processes.end(process) or {}
        until = float(end.get("at") or time.time())
        result = {
            "session_id": process.id,
            "command": process.command,
            "cwd": process.cwd,
            "pid": process.pid,
            "status": status,
            "uptime_seconds": round(max(until - process.began, 0)),
        }
        if "code" in end:
            result["exit_code"] = end["code"]
        if status == "lost":
            result["note"] = "it ended with an earlier run of the agent or of the machine; its exit code is not known"
        return result

    def _poll(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        result = self._status(process)
        data, gone = self.processes.read_new(process)
        return result | {"output": self._text(data, gone)}

    def _log(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        limit = tool_context.parse_number(args, "limit", default=LOG_LINES, least=1, most=self.max_lines)
        data, begin, _ = self.processes.output(process)
        lines = _clean(data).split("\n")
        if lines[-1] == "":
            lines.pop()
        first = tool_context.parse_number(args, "offset", default=max(len(lines) - limit, 0) + 1, least=1)
        shown = "\n".join(lines[first - 1 : first - 1 + limit])
        result = self._status(process) | {"total_lines": len(lines), "offset": first, "output": self._fit(shown)}
        if begin:
            result["note"] = f"the first {begin:,} bytes of its output are no longer kept; lines count from there"
        return result

    def _wait(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        limit_s = tool_context.parse_number(args, "timeout", default=WAIT_S, least=1, most=MAX_WAIT_S)
        status = self.processes.wait(process, limit_s, self.context.cancelled())
        result = self._poll(process, args)
        if status == "running":
            result["note"] = (
                "interrupted by the user" if self.context.cancelled().is_set() else f"still runs after {limit_s} s"
            )
        return result

    def _kill(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        self.processes.kill(process)
        return self._poll(process, args)

    def _write(self, process: BackgroundProcess, args: dict[str, Any], end: str = "") -> dict[str, Any]:
        data = tool_context.parse_text(args, "data", default="", may_be_empty=True) + end
        self.processes.write(process, data.encode("utf-8", "replace"))
        return self._status(process) | {"bytes_written": len(data.encode("utf-8", "replace"))}

    def _submit(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        return self._write(process, args, "\n")

    def _close(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        self.processes.close_input(process)
        return self._status(process)

    def _text(self, data: bytes, gone: int) -> str:
        text = self._fit(_clean(data))
        return f"[{gone:,} bytes left out]\n{text}" if gone > 0 else text

    def _fit(self, text: str) -> str:
        return shorten_output(text, self.max_bytes, max_lines=self.max_lines, max_line_chars=self.max_line_chars)


def _clean(data: bytes) -> str:
    return redactor(strip_sequences(data.decode("utf-8", "replace")))


EVERY_S = 1.0
TAIL_CHARS = 2_000
MAX_NOTIFIED = 10
"""Most notifications of pattern matches for one process; more would fill the conversation."""
SHOWN_LINES = 5


class ProcessWatcher:
    """Check the watched processes about once a second, as long as there are any.

    Args:
        processes: the background processes.
        later: calls a function after a delay, on a loop (`Bridge.call_later`).
        spawn: runs a function in another thread (`Bridge.spawn`).
        announce: `announce(text, session_id)` adds a text to a session; returns `taken`, `full` or `nobody`.
        is_open: returns whether this agent serves a session; other sessions belong to other processes.
        was_said: `was_said(session_id, text)` returns whether a stored session contains a text.
        taint_source: returns the source of untrusted text in the output of an item (`process:ID`), or "".
    """

    def __init__(
        self,
        processes: BackgroundProcesses,
        *,
        later: Callable[[float, Callable[[], None]], None],
        spawn: Callable[[Callable[[], None]], None],
        announce: Callable[[str, str], str],
        is_open: Callable[[str], bool],
        was_said: Callable[[str, str], bool],
        taint_source: Callable[[str], str] = lambda name: "",
    ) -> None:
        self.processes = processes
        self._later, self._spawn, self._announce = later, spawn, announce
        self._is_open, self._was_said, self._taint_source = is_open, was_said, taint_source
        self._progress: dict[str, tuple[int, int]] = {}
        """Searched bytes of output, and the number of notifications, by process."""
        self._announced: set[str] = set()
        """Processes for which this agent announced the end; the transcript shows whether a turn got it."""
        self._runs = self._again = False
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Start the checks unless they run already."""
        with self._lock:
            self._again = True  # a running check may have missed the new process
            if self._runs:
                return
            self._runs = True
        self._later(EVERY_S, self._tick)

    def _tick(self) -> None:
        self._spawn(self._notify)

    def _notify(self) -> None:
        with self._lock:
            self._again = False
        try:
            more = self.notify_new()
        except Exception:
            logger.exception("background processes: check failed")
            more = True
        with self._lock:
            self._runs = more = more or self._again
        if more:
            self._later(EVERY_S, self._tick)

    def notify_new(self) -> bool:
        """Notify sessions of news; return whether processes remain to be watched."""
        remains = False
        for process in self.processes.watched():
            if process.id in self._announced or not self._is_open(process.session_id):
                continue
            status = self.processes.status(process)
            done = not process.watch or self._notify_matches(process, last=status != "running")
            if status == "running" or not done:
                remains = True
            elif not process.notify:
                self.processes.mark_notified(process)
            elif not self._notify_end(process, status):
                remains = True
        return remains

    def _notify_matches(self, process: BackgroundProcess, *, last: bool) -> bool:
        """Notify of new matching lines; return False if the session accepts no more at present."""
        try:
            with self.processes.hold_claim(process):  # another agent may have the same session open
                return self._notify_matches_locked(process, last=last)
        except OSError as exc:
            logger.warning("background process %s: output not searched for patterns: %s", process.id, exc)
            return True

    def _notify_matches_locked(self, process: BackgroundProcess, *, last: bool) -> bool:
        context, stored = self._progress.get(process.id, (0, 0)), self.processes.progress(process)
        offset, notified = max(context[0], stored[0]), max(context[1], stored[1])
        data, begin, _ = self.processes.output(process, offset)
        whole = data if last else data[: data.rfind(b"\n") + 1]
        lines = _clean(whole).split("\n")
        hits = [line for line in lines if any(word in line for word in process.watch)]
        progress = (begin + len(whole), notified)
        if hits and notified < MAX_NOTIFIED:
            progress = (begin + len(whole), notified + 1)
            shown = "\n".join(line[:500] for line in hits[:SHOWN_LINES])
            over = f"\n({len(hits) - SHOWN_LINES} more)" if len(hits) > SHOWN_LINES else ""
            over += "\n(further matches are not reported)" if notified + 1 == MAX_NOTIFIED else ""
            text = f"[Background process {process.id} printed what you watch for]\n"
            if self._announce(text + self._output_text(process, shown + over), process.session_id) != "taken":
                return False
            self.processes.note_progress(process, *progress)
        self._progress[process.id] = progress
        return True

    def _notify_end(self, process: BackgroundProcess, status: str) -> bool:
        """Notify of the end, unless the session has it; return False if it accepts no more at present."""
        if not self.processes.claim(process):
            return True
        begin = f"[Background process {process.id} has ended: "
        if self.processes.is_recovered(process) and self._was_said(process.session_id, begin):
            self.processes.mark_notified(process)
            return True
        outcome = self._announce(begin + self._end_text(process, status), process.session_id)
        if outcome == "taken":
            self._announced.add(process.id)
        else:
            self.processes.release(process)
        return outcome != "full"

    def _end_text(self, process: BackgroundProcess, status: str) -> str:
        """Return the exit code, the command and the end of the output of a process."""
        end = self.processes.end(process) or {}
        how = f"exit code {end.get('code')}" if status == "exited" else f"it was {status}"
        text = _clean(self.processes.output(process)[0])
        tail = shorten_output(text[-TAIL_CHARS:], TAIL_CHARS, max_lines=40, max_line_chars=500)
        return f"{how}]\n{self._output_text(process, tail)}"

    def _output_text(self, process: BackgroundProcess, output: str) -> str:
        """Return the command and output of a process, marked as untrusted if it is."""
        return mark_untrusted(f"{process.command}\n{output}".rstrip(), self._taint_source(f"process:{process.id}"))
