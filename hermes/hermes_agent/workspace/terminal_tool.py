"""The tool `terminal`: run a command line and wait for it.

Commands of a task run as in one shell (`workspace.backend`). The backend and the rules of the operator decide where
they run and which need an approval. Source: plugin contract §4.12 (parameters, result), §3.2
(`transform_terminal_output`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.contracts.terminal_env import BackendCommand, TerminalBackend
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import printable
from hermes_agent.hooks import HookBus
from hermes_agent.policy.approvals import can_judge
from hermes_agent.policy.operator_rules import CommandPolicy, CommandReview
from hermes_agent.system.processes import CommandResult
from hermes_agent.tools import tool_result
from hermes_agent.tools.call_scope import current_call_id
from hermes_agent.workspace import tool_context
from hermes_agent.workspace.backend import MAX_STATE, ShellState, run_command
from hermes_agent.workspace.background_processes import BackgroundProcesses
from hermes_agent.workspace.task_shells import TaskShells
from hermes_agent.workspace.text_forms import decode_output, shorten_output, strip_sequences
from hermes_agent.workspace.tool_context import ToolContext

logger = logging.getLogger(__name__)

MAX_TIMEOUT_S = 600
"""Longest `timeout` of a call in seconds; a longer `terminal.timeout` raises it."""
TRANSFORM_BYTES = 1_000_000
"""Most bytes of output for `transform_terminal_output`, which sees the text before it is shortened."""

MOST_HELD = 20
"""Most set-aside files that a result names."""

_EXIT_TIMEOUT, _EXIT_CANCELLED, _EXIT_FAILED = 124, 130, -1


_READ_ONLY = """
    basename cat cmp cut date df diff dirname du echo false grep head hostname id ls md5sum nl ps pwd realpath rg
    sha256sum sleep sort stat strings tail test tr tree true type uname uptime wc which whoami
"""
_READERS = frozenset(_READ_ONLY.split())
_GIT_READERS = frozenset({"blame", "diff", "log", "ls-files", "rev-parse", "show", "status"})

_shown: ContextVar[str] = ContextVar("hermes_terminal_shown", default="")
"""The directory in the approval request of this call; a link that changes afterwards is noticed."""


@lazy_dataclass(frozen=True, slots=True)
class _Plan:
    """A command, and where it runs."""

    backend: TerminalBackend
    command: str
    cwd: str
    """The working directory; empty for the default of the backend."""
    timeout_s: float
    state: ShellState
    confined: bool = False
    """Whether the command runs in the confinement of the backend."""
    tty: bool = False
    stays: bool = False
    """Whether the working directory of the task stays as before this command."""
    folder: str = ""
    """The folder that it may write instead of the working directory; empty for that."""

    @property
    def place(self) -> str:
        """The working directory and the writable folder, as the approval request shows them."""
        return f"{self.cwd}, writing in {self.folder}" if self.folder else self.cwd

    @property
    def is_leaving(self) -> bool:
        """Whether the command leaves the sandbox."""
        return self.backend.can_leave and not self.confined


@lazy_dataclass(frozen=True, slots=True)
class TerminalTool:
    """The handler of `terminal`, and its approval request.

    Attributes:
        shells: the backend and the shell state of each task.
        timeout_s: the default time limit (`terminal.timeout`).
        max_bytes, max_lines, max_line_chars: limits of the output for the model (`tool_output`).
        hooks: the bus that fires `transform_terminal_output`; None fires nothing.
        policy: the rules that refuse or allow commands.
    """

    context: ToolContext
    shells: TaskShells
    timeout_s: float = 180
    max_bytes: int = 50_000
    max_lines: int = 2_000
    max_line_chars: int = 2_000
    hooks: HookBus | None = None
    policy: CommandPolicy = field(default_factory=CommandPolicy)
    processes: BackgroundProcesses | None = None
    """The background processes; None for none."""
    watch: Callable[[], None] = lambda: None
    """Called when a new process has notifications."""

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | str | None:
        """Return why the command is refused, None when it runs without a question, or the approval request.

        `session` covers commands that are dangerous for the same reasons; of other commands, the same one in the same
        directory (plugin contract §10.5). The user decides each time about a command that leaves the sandbox or would
        change the agent's own rules.
        """
        try:
            plan = self._plan(args)
        except ToolFailed:
            return None  # the handler refuses the same arguments with the reason
        _shown.set(plan.place)
        functions = plan.state.functions_named_in(plan.command)
        review = self.policy.review(plan.command, functions=functions, confined=plan.confined, cwd=plan.cwd)
        if review.verdict == "refuse":
            logger.info("terminal: refused by the rules (%s)", review.reason)
            return review.reason
        if plan.backend.refusal:
            return f"BLOCKED: {plan.backend.refusal}"
        asked = None if self._runs_unasked(plan, review, functions) else self._request(plan, review)
        what = tool_context.folder_answer(self.context.places, plan.folder) if plan.folder else None
        if what is None or self.context.places.is_writable(plan.folder):
            return asked
        if asked is None:
            return tool_context.folder_request(self.context, plan.folder, what, plan.command)
        return replace(
            asked, summary=f"{asked.summary} that writes in {printable(plan.folder)}", once=True, smart=False
        )

    def _runs_unasked(self, plan: _Plan, review: CommandReview, functions: str) -> bool:
        """Return whether no approval is needed: a list names the command, or a sandbox confines it."""
        if plan.is_leaving:
            if functions or not self.policy.may_leave_sandbox(plan.command):
                return False
            logger.info("terminal: leaves the sandbox by `terminal.unconfined_commands`")
            return True
        if review.verdict == "allow":
            logger.info("terminal: allowed by the rules (%s)", review.reason)
            return True
        if not plan.confined:
            return False
        why = f"terminal {plan.command[:200]}"
        if review.unknown and plan.backend.offline and self.context.can_be_undone(why, plan.folder):
            logger.info("terminal: allowed: unknown code, but it has no network and its changes can be undone")
            return True
        return plan.backend.throwaway or not review.keys

    def _request(self, plan: _Plan, review: CommandReview) -> ApprovalRequest:
        """Return the approval request for a command."""
        where = " outside the sandbox" if plan.is_leaving else ""
        digest = hashlib.sha256(f"{where}{plan.cwd}\0{plan.command}".encode()).hexdigest()
        named = review.lasting and not where
        keep = partial(self.policy.allow_always, review.keys) if named else None
        rule = " + ".join(review.keys) if named else digest
        place = "" if plan.backend.own_files else f" ({plan.backend.name})"
        detail = f"{printable(plan.command)}\nin {printable(plan.cwd) or 'its home directory'}{place}"
        summary = f"run a command{where}" + (f" ({'; '.join(review.keys)})" if review.keys else "")
        sends = review.network and not plan.backend.offline
        # only the user may allow a command to leave the sandbox
        smart = not plan.is_leaving and not sends and can_judge(review.keys, plan.command)
        return ApprovalRequest(
            "terminal",
            summary,
            detail,
            f"terminal:{rule}",
            keep=keep,
            smart=smart,
            once=review.once,
            mandatory=plan.is_leaving or review.mandatory,
            covers="commands with the same danger" if named else "this command in this directory",
        )

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `output`, `exit_code` and `error`; a failure before the start has `status` and exit code -1."""
        try:
            plan = self._plan(args)
            self._check(plan)
            if plan.backend.own_files and not _only_reads(plan.command):
                self.context.before_change("", f"terminal {plan.command[:200]}", plan.folder)
            if args.get("background"):
                return self._start_background(plan, args, str(kwargs.get("session_id") or ""))
            for name in ("notify_on_complete", "watch_patterns"):
                if args.get(name):
                    raise ToolFailed(f"`{name}` is for background processes: set `background`")
            return self._run(plan, str(kwargs.get("task_id") or ""))
        except ToolFailed as exc:
            return tool_result(output="", exit_code=_EXIT_FAILED, error=redactor(str(exc)), status="error")

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the working directory of a command, and its background process (`Effect.place`)."""
        backend = self.shells.backend_or_none
        folders = [] if backend is None else [self._cwd(args, backend)]
        if args.get("background"):
            with contextlib.suppress(ValueError, AttributeError):
                folders.append(f"process:{json.loads(result).get('session_id')}")
        return [folder for folder in folders if folder]

    def _plan(self, args: Mapping[str, Any]) -> _Plan:
        most = max(MAX_TIMEOUT_S, int(self.timeout_s))
        command = tool_context.parse_text(args, "command")
        try:
            command.encode()
        except UnicodeEncodeError:
            raise ToolFailed("`command` has half a character (a lone surrogate)") from None
        if not command.strip():
            raise ToolFailed("`command` is empty")
        backend = self.shells.backend
        confined = backend.confines and not (backend.can_leave and args.get("unconfined"))
        return _Plan(
            backend,
            command,
            self._cwd(args, backend),
            tool_context.parse_number(args, "timeout", default=0, least=1, most=most) or self.timeout_s,
            self.shells.state(self.context.task_id(), confined=confined),
            confined=confined,
            tty=bool(args.get("pty")),
            stays=bool(args.get("workdir")),
            folder=tool_context.requested_folder(self.context, args) if confined and backend.opens else "",
        )

    def _cwd(self, args: Mapping[str, Any], backend: TerminalBackend) -> str:
        given = tool_context.parse_text(args, "workdir", default="", may_be_empty=True)
        last = self.shells.cwd(self.context.task_id())
        if not backend.own_files:
            return given if given.startswith("/") or not last else f"{last}/{given}".rstrip("/")
        if not given and last and Path(last).is_dir():  # a directory of the sandbox may be gone
            return last
        return self.context.resolve(given or ".")

    def _start_background(self, plan: _Plan, args: Mapping[str, Any], session_id: str) -> str:
        """Start a background process in the shell state of the task."""
        if self.processes is None:
            raise ToolFailed("there are no background processes here")
        watch = args.get("watch_patterns") or []
        if not isinstance(watch, list) or not all(isinstance(word, str) and word for word in watch):
            raise ToolFailed("`watch_patterns` is a list of texts")
        script = "\n".join([plan.backend.prelude(), plan.state.restore_script(plan.cwd), plan.command])
        call = self._call(plan)
        try:
            with self.context.use_network("terminal", printable(plan.command)):
                start = plan.backend.start(script, call)
            process = self.processes.start(
                start,
                command=plan.command,
                cwd=plan.cwd,
                backend=plan.backend.name,
                task_id=call.task_id,
                session_id=self.context.notified_session(session_id),
                confined=plan.confined,
                tty=plan.tty,
                notify=bool(args.get("notify_on_complete")),
                watch=watch,
            )
        except OSError as exc:
            raise ToolFailed(f"the command could not be started: {exc.strerror or exc}") from exc
        if process.notify or process.watch:
            self.watch()
        return tool_result(
            output="Background process started",
            session_id=process.id,
            pid=process.pid,
            exit_code=0,
            error=None,
        )

    def _call(self, plan: _Plan, output_bytes: int = 0) -> BackendCommand:
        return BackendCommand(
            plan.command,
            plan.cwd,
            plan.timeout_s,
            self.context.task_id(),
            root=plan.folder or self.context.cwd(),
            work_dir=self.context.cwd() if plan.folder else "",
            network=self.context.network(),
            tool_socket=self.context.tool_socket(),
            confined=plan.confined,
            output_bytes=output_bytes or self.max_bytes,
            tty=plan.tty,
            cancelled=self.context.cancelled(),
        )

    def _check(self, plan: _Plan) -> None:
        if _shown.get() not in ("", plan.place):
            raise ToolFailed(f"the working directory is {plan.place} now, but the approval was for {_shown.get()}")
        if not plan.backend.own_files:
            return
        try:
            is_directory = Path(plan.cwd).is_dir()
            what = "is not a directory" if Path(plan.cwd).exists() else "does not exist"
        except OSError as exc:
            is_directory, what = False, f"cannot be used: {exc.strerror}"
        if not is_directory:
            raise ToolFailed(f"the working directory {plan.cwd[:200]} {what}")

    def _run(self, plan: _Plan, task_id: str) -> str:
        transforms = self.hooks is not None and self.hooks.has("transform_terminal_output")
        call = self._call(plan, max(self.max_bytes, TRANSFORM_BYTES) if transforms else 0)
        call = replace(call, on_output=self.context.output_listener())
        try:
            with self.context.use_network("terminal", printable(plan.command)) as work:
                done = run_command(plan.backend, call, plan.state)
        except OSError as exc:
            hint = ": put the script into a file" if "too long" in str(exc) else ""
            raise ToolFailed(f"the command could not be started: {exc.strerror or exc}{hint}") from exc
        if not plan.stays:
            self.shells.set_cwd(call.task_id, plan.state.cwd)
        text = decode_output(done.head, done.tail, done.omitted)
        if transforms:
            text = self._transformed(text, plan, done, task_id)
        text = redactor(strip_sequences(text))
        text = shorten_output(text, self.max_bytes, max_lines=self.max_lines, max_line_chars=self.max_line_chars)
        notes = (work.result_text(text), self._closed_hint(plan, text)) if plan.confined else ()
        return self._result(text, plan, done, notes)

    def _closed_hint(self, plan: _Plan, text: str) -> str:
        """Return why a command could not write in its directory, and the remedy; empty if it could."""
        root = plan.folder or self.context.cwd()
        if "Read-only file system" not in text or not plan.backend.is_read_only(root):
            return ""
        return (
            f"commands cannot write in {printable(root)}, which is a home or of the system: name one folder of the"
            " home in `write_to`, use `write_file`, or let the user name the directory of a project (`terminal.cwd`)"
        )

    def _transformed(self, text: str, plan: _Plan, done: CommandResult, task_id: str) -> str:
        assert self.hooks is not None
        answers = self.hooks.fire(
            "transform_terminal_output",
            command=plan.command,
            output=text,
            returncode=done.exit_code,
            task_id=task_id,
            tool_call_id=current_call_id.get(),
            env_type=plan.backend.name,
        )
        return next((answer.value for answer in answers if isinstance(answer.value, str)), text)

    def _result(self, text: str, plan: _Plan, done: CommandResult, notes: Sequence[str]) -> str:
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
        elif plan.state.too_large:
            result["note"] = f"variables and functions of over {MAX_STATE:,} characters do not last"
        elif plan.state.unreadable:
            result["note"] = (
                "directory, variables and functions of this command do not last: a background process printed while "
                "they were read; the next command begins where this one did"
            )
        limits = f"the command reached its limit of {' and '.join(done.limits)}" if done.limits else ""
        if any(notes) or limits:
            result["note"] = "; ".join(filter(None, [result.get("note"), *notes, limits]))
        if done.held:
            result["set_aside"] = _set_aside(done.held)
        return tool_result(result)


def _set_aside(held: tuple[str, ...]) -> str:
    """Return the text for the model about files that were set aside."""
    files = "; ".join(printable(text) for text in held[:MOST_HELD])
    more = f"; and {len(held) - MOST_HELD} more" if len(held) > MOST_HELD else ""
    return (
        f"{files}{more}. Other programs of the user would run or obey what the command left there."
        " `write_file` and `patch` ask the user about such a file."
    )


def _only_reads(command: str) -> bool:
    """Return whether a command is known to change no file, so that it needs no checkpoint."""
    if set(command) & set("<>`$()\n;&"):
        return False
    words = [part.split() for part in command.split("|")]
    return all(
        part and (part[0] in _READERS or (part[0] == "git" and part[1:2] and part[1] in _GIT_READERS)) for part in words
    ) and not any(word.startswith(("-o", "--output")) for part in words for word in part)
