"""The tool `process`: what becomes of background processes. Contract: §4.12."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.redact import redactor
from hermes_agent.policy.commands import CommandPolicy
from hermes_agent.tools import tool_error, tool_result
from hermes_agent.workspace import arguments
from hermes_agent.workspace.background import BackgroundProcess, BackgroundProcesses
from hermes_agent.workspace.circumstances import ToolContext
from hermes_agent.workspace.declared import ACTIONS
from hermes_agent.workspace.output import printable, shorten, strip_sequences

__all__ = ["ProcessTool"]

WAIT_S = 60
MAX_WAIT_S = 600
LOG_LINES = 200


@dataclass(frozen=True, slots=True)
class ProcessTool:
    """The handler and its question.

    Attributes:
        max_bytes, max_lines, max_line_chars: how much output the model is shown (`tool_output`).
        policy: what is refused, of input too: a shell runs it.
    """

    here: ToolContext
    processes: BackgroundProcesses
    max_bytes: int = 50_000
    max_lines: int = 2_000
    max_line_chars: int = 2_000
    policy: CommandPolicy = field(default_factory=CommandPolicy)

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | str | None:
        """Ask about input as about a command: what reads it may be a shell."""
        if args.get("action") not in ("write", "submit"):
            return None
        try:
            process = self._process(args)
            data = arguments.parse_text(args, "data", default="", may_be_empty=True)
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
        """Say whether a process left the sandbox that commands have here."""
        shells = self.here.shells
        backend = None if shells is None else shells.backend_or_none
        return backend is not None and backend.can_leave and not process.confined

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return what the action gives: `processes`, or `session_id`, `status`, `output`, `exit_code` of one."""
        try:
            action = args.get("action")
            if action not in ACTIONS:
                raise ToolFailed(f"`action` is {repr(action)[:100]}: expected one of {', '.join(ACTIONS)}")
            if action == "list":
                return tool_result(
                    processes=[self._status(p) for p in self.processes.processes_of(self.here.task_id())]
                )
            process = self._process(args)
            with self.here.use_network("process", printable(process.command)):
                return tool_result(getattr(self, f"_{action}")(process, args))
        except ToolFailed as exc:
            return tool_error(exc)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the process that a call is about (`Effect.place`)."""
        name = args.get("session_id")
        return [f"process:{name}"] if isinstance(name, str) and name else []

    def _process(self, args: dict[str, Any]) -> BackgroundProcess:
        return self.processes.get(arguments.parse_text(args, "session_id"), self.here.task_id())

    def _status(self, process: BackgroundProcess) -> dict[str, Any]:
        """Return how a process stands."""
        status = self.processes.status(process)
        end = self.processes.end(process) or {}
        until = float(end.get("at") or time.time())
        told = {
            "session_id": process.id,
            "command": process.command,
            "cwd": process.cwd,
            "pid": process.pid,
            "status": status,
            "uptime_seconds": round(max(until - process.began, 0)),
        }
        if "code" in end:
            told["exit_code"] = end["code"]
        if status == "lost":
            told["note"] = "it went with a former run of the agent or of the machine; how it ended is not known"
        return told

    def _poll(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        told = self._status(process)
        data, gone = self.processes.read_new(process)
        return told | {"output": self._text(data, gone)}

    def _log(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        limit = arguments.parse_number(args, "limit", default=LOG_LINES, least=1, most=self.max_lines)
        data, begin, _ = self.processes.output(process)
        lines = _clean(data).split("\n")
        if lines[-1] == "":
            lines.pop()
        first = arguments.parse_number(args, "offset", default=max(len(lines) - limit, 0) + 1, least=1)
        shown = "\n".join(lines[first - 1 : first - 1 + limit])
        told = self._status(process) | {"total_lines": len(lines), "offset": first, "output": self._fit(shown)}
        if begin:
            told["note"] = f"the first {begin:,} bytes of its output are not kept any more; lines count from there"
        return told

    def _wait(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        limit_s = arguments.parse_number(args, "timeout", default=WAIT_S, least=1, most=MAX_WAIT_S)
        status = self.processes.wait(process, limit_s, self.here.cancelled())
        told = self._poll(process, args)
        if status == "running":
            told["note"] = (
                "interrupted by the user" if self.here.cancelled().is_set() else f"still runs after {limit_s} s"
            )
        return told

    def _kill(self, process: BackgroundProcess, args: dict[str, Any]) -> dict[str, Any]:
        self.processes.kill(process)
        return self._poll(process, args)

    def _write(self, process: BackgroundProcess, args: dict[str, Any], end: str = "") -> dict[str, Any]:
        data = arguments.parse_text(args, "data", default="", may_be_empty=True) + end
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
        return shorten(text, self.max_bytes, max_lines=self.max_lines, max_line_chars=self.max_line_chars)


def _clean(data: bytes) -> str:
    return redactor(strip_sequences(data.decode("utf-8", "replace")))
