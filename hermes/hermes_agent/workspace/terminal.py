"""The tool `terminal`: run a command line and wait for it.

Every command is shown to a person first, unless the operator's rules refuse or allow it.
Contract: §4.12 (parameters, result), §3.2 (`transform_terminal_output`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.redact import redactor
from hermes_agent.hooks import HookBus
from hermes_agent.io.processes import Finished, run, shell, tool_environment
from hermes_agent.policy.commands import CommandPolicy
from hermes_agent.tools import tool_result
from hermes_agent.workspace import arguments
from hermes_agent.workspace.circumstances import Circumstances
from hermes_agent.workspace.output import decode, shorten, strip_control, visible
from hermes_agent.workspace.sandbox import Sandbox, inside_environment

__all__ = ["SCHEMA", "Terminal"]

logger = logging.getLogger(__name__)

MAX_TIMEOUT_S = 600
"""Longest time that the model may ask for; a longer `terminal.timeout` raises it."""
TRANSFORM_BYTES = 1_000_000
"""How much output a `transform_terminal_output` hook is given; it sees the text before it is cut to size."""

_NOT_YET = ("background", "pty", "notify_on_complete", "watch_patterns")
_EXIT_TIMEOUT, _EXIT_CANCELLED, _EXIT_FAILED = 124, 130, -1

SCHEMA: dict[str, Any] = {
    "name": "terminal",
    "description": (
        "Run a shell command and wait for it. No input can be given, and nothing goes on after it ends: a process"
        " left in the background is stopped. Each call starts a new shell: `cd` and variables do not last."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout": {"type": "integer", "description": "Seconds"},
            "workdir": {"type": "string", "description": "Directory to run in"},
        },
        "required": ["command"],
    },
}


UNCONFINED: dict[str, Any] = {
    "type": "boolean",
    "description": "Run outside the sandbox; a person is asked. Only when the sandbox made the command fail.",
}

_shown: ContextVar[str] = ContextVar("hermes_terminal_shown", default="")
"""The directory that this call's question was about: a link that changes afterwards leads nowhere else."""


@dataclass(frozen=True, slots=True)
class _Plan:
    command: str
    cwd: str
    timeout_s: float
    confined: bool = False
    """Whether it runs in the sandbox."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The handler and its question.

    Attributes:
        environ: the agent's own environment; a command is given the listed part of it.
        passthrough: further names that commands are given (`terminal.env_passthrough`).
        timeout_s: when the call names none (`terminal.timeout`).
        max_bytes, max_lines, max_line_chars: how much output the model is shown (`tool_output`).
        hooks: where `transform_terminal_output` is fired; None fires nothing.
        policy: what is refused or allowed without asking.
        sandbox: where commands are put that nobody is asked about.
    """

    here: Circumstances
    environ: Mapping[str, str]
    passthrough: tuple[str, ...] = ()
    timeout_s: float = 180
    max_bytes: int = 50_000
    max_lines: int = 2_000
    max_line_chars: int = 2_000
    hooks: HookBus | None = None
    policy: CommandPolicy = field(default_factory=CommandPolicy)

    sandbox: Sandbox | None = None

    def schema(self) -> dict[str, Any]:
        """Return what a working sandbox changes in the tool's description."""
        if self.sandbox is None or not self.sandbox.works:
            return {}
        network = "the network can be reached" if self.sandbox.network else "there is no network"
        properties = {**SCHEMA["parameters"]["properties"], "unconfined": UNCONFINED}
        return {
            "description": f"{SCHEMA['description']} Commands run in a sandbox: only the working directory and /tmp can"
            f" be written, {network}.",
            "parameters": {**SCHEMA["parameters"], "properties": properties},
        }

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | str | None:
        """Return why the command is refused, None when a rule allows it or a sandbox holds it, else the question.

        "For this session" covers what is dangerous for the same reasons; of other commands, the same one in the same
        directory (§10.5).
        """
        try:
            plan = self._plan(args)
        except ToolFailed:
            return None  # the handler refuses the same arguments with the reason
        _shown.set(plan.cwd)
        review = self.policy.review(plan.command)
        if review.verdict != "ask":
            logger.info("terminal: %s by the rules (%s)", review.verdict, review.reason)
            return review.reason if review.verdict == "refuse" else None
        if self.sandbox is not None and self.sandbox.refusal:
            return f"BLOCKED: {self.sandbox.refusal}"
        if plan.confined and not review.keys:
            return None
        boxed = self.sandbox is not None and self.sandbox.works
        where = " outside the sandbox" if boxed and not plan.confined else ""
        digest = hashlib.sha256(f"{where}{plan.cwd}\0{plan.command}".encode()).hexdigest()
        keep = partial(self.policy.allow_always, review.keys) if review.keys and not where else None
        rule = " + ".join(review.keys) if review.keys and not where else digest
        detail = f"{visible(plan.command)}\nin {visible(plan.cwd)}"
        summary = f"run a command{where}" + (f" ({'; '.join(review.keys)})" if review.keys else "")
        return ApprovalRequest("terminal", summary, detail, f"terminal:{rule}", keep=keep)

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `output`, `exit_code`, `error`; a failure before the command ran has `status` and exit code -1."""
        try:
            plan = self._plan(args)
            return self._run(plan, str(kwargs.get("task_id") or ""))
        except ToolFailed as exc:
            return tool_result(output="", exit_code=_EXIT_FAILED, error=str(exc), status="error")

    def _plan(self, args: Mapping[str, Any]) -> _Plan:
        for name in _NOT_YET:
            if args.get(name):
                raise ToolFailed(
                    f"`{name}` is not in this release: commands run in the foreground and without a terminal"
                )
        most = max(MAX_TIMEOUT_S, int(self.timeout_s))
        command = arguments.text(args, "command")
        try:
            command.encode()
        except UnicodeEncodeError:
            raise ToolFailed("`command` holds half a character (a lone surrogate)") from None
        if not command.strip():
            raise ToolFailed("`command` is empty")
        return _Plan(
            command,
            self.here.resolve(arguments.text(args, "workdir", default=".")),
            arguments.whole_number(args, "timeout", default=0, least=1, most=most) or self.timeout_s,
            confined=self.sandbox is not None and not args.get("unconfined") and self.sandbox.works,
        )

    def _run(self, plan: _Plan, task_id: str) -> str:
        if _shown.get() not in ("", plan.cwd):
            raise ToolFailed(f"the working directory is {plan.cwd} now, and {_shown.get()} was asked about")
        if not (place := Path(plan.cwd)).is_dir():
            what = "is not a directory" if place.exists() else "does not exist"
            raise ToolFailed(f"the working directory {plan.cwd} {what}")
        transforms = self.hooks is not None and self.hooks.has("transform_terminal_output")
        try:
            env = tool_environment(self.environ, passthrough=self.passthrough)
            command: str | list[str] = plan.command
            if plan.confined and self.sandbox is not None:
                command = self.sandbox.wrap([shell(env), "-c", plan.command], plan.cwd)
                env = inside_environment(env)
            done = run(
                command,
                cwd=place,
                env=env,
                timeout_s=plan.timeout_s,
                output_limit_bytes=max(self.max_bytes, TRANSFORM_BYTES) if transforms else self.max_bytes,
                cancelled=self.here.cancelled(),
            )
        except OSError as exc:
            hint = ": put the script into a file" if "too long" in str(exc) else ""
            raise ToolFailed(f"the command could not be started: {exc.strerror or exc}{hint}") from exc
        text = decode(done.head, done.tail, done.omitted)
        if transforms:
            text = self._transformed(text, plan, done, task_id)
        text = redactor(strip_control(text))
        text = shorten(text, self.max_bytes, max_lines=self.max_lines, max_line_chars=self.max_line_chars)
        return self._result(text, plan, done)

    def _transformed(self, text: str, plan: _Plan, done: Finished, task_id: str) -> str:
        assert self.hooks is not None
        answers = self.hooks.fire(
            "transform_terminal_output",
            command=plan.command,
            output=text,
            returncode=done.exit_code,
            task_id=task_id,
            env_type="local",
        )
        return next((answer.value for answer in answers if isinstance(answer.value, str)), text)

    def _result(self, text: str, plan: _Plan, done: Finished) -> str:
        result: dict[str, Any] = {"output": text, "exit_code": done.exit_code, "error": None}
        if done.timed_out:
            result |= {
                "exit_code": _EXIT_TIMEOUT,
                "error": f"stopped after {plan.timeout_s:g} s (`timeout`)",
            }
        elif done.cancelled:
            result |= {"exit_code": _EXIT_CANCELLED, "error": "interrupted by the user"}
        elif done.ended_children:
            count = done.ended_children
            result["note"] = (
                f"{count} background process{'es were' if count > 1 else ' was'} stopped when the command ended"
            )
        return tool_result(result)
