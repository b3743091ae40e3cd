"""Run a command in a backend, and keep the shell state of its task between commands.

Every command runs in a new shell. A script around it first restores the state in which the last command ended, and at
the end reports the new state between two marks in its output. The agent removes the report from the output and stores
it. This works wherever a POSIX shell runs, and leaves no files there. A command that ends the shell itself (`exit`,
`exec`) leaves the state unchanged.

The report has the form `LENGTH:HEX`. A terminal changes line ends, and a background process may print at the same
time: hexadecimal digits survive the first, and the length reveals the second.

A backend only starts scripts (`contracts.terminal_env`). Limits, interrupts and the shell state are the same for all
backends.
"""

from __future__ import annotations

import logging
import re
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from hermes_agent.contracts.terminal_env import BackendCommand, TerminalBackend, shell_words
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.processes import MARK, CommandResult, OutputFilter, run

if TYPE_CHECKING:
    from hermes_agent.workspace.sandbox.steering_checks import SteeringChecks

logger = logging.getLogger(__name__)

MAX_STATE = 60_000
"""Most characters of restored state in a script; the kernel limits an argument to 128 KiB."""
MAX_REPORT = 8_000_000
"""Most bytes of a report; each byte of the state takes three."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = frozenset({"_", "SHLVL", "PWD", "HERMES_CALL", "LINES", "COLUMNS", "BASHOPTS", "SHELLOPTS", "SUDO_ASKPASS"})
"""Variables that the shell or the agent sets."""


@lazy_dataclass(slots=True)
class ShellState:
    """The state of a task's shell.

    Attributes:
        base: the environment of a new shell in the backend; None before the first report.
        cwd: the working directory; empty before the first report.
    """

    base: Mapping[str, str] | None = None
    cwd: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Variables of `base` that were unset."""
    functions: str = ""
    too_large: bool = False
    """Whether the state after the last command was too large to keep."""
    unreadable: bool = False
    """Whether other output was mixed into the last report, so that it was dropped."""

    def script(self, command: str, recorder: ShellStateFilter, *, cwd: str = "", prelude: str = "") -> str:
        """Return the script that runs `command` in the state in which the last one ended.

        Args:
            command: the command line.
            recorder: the filter that cuts out the report.
            cwd: enter this directory first; empty when the shell starts in it.
            prelude: lines before everything else.
        """
        lines = [prelude] if prelude else []
        if self.base is None:
            lines.append(self._report_script(recorder.token))
        lines.append(self.restore_script(cwd))
        # descriptor 8 is closed for the command, so that no process it leaves holds the output open
        text = f" {command}" if command.startswith("-") else command
        lines += ["exec 8>&1", f"{{ eval {shlex.quote(text)}", "} 8>&-"]
        functions = '[ -z "${BASH_VERSION:-}" ] || declare -f'
        report = f"__hermes_status=$?; set +x; {self._report_script(recorder.token, functions)}"
        lines += [f"{{ {report}; }} >&8 2>/dev/null", "exit $__hermes_status"]
        return "\n".join(lines)

    def _report_script(self, token: str, functions: str = ":") -> str:
        """Return the subshell that prints the report; it calls no function of the task.

        Args:
            token: the token of the marks.
            functions: the command that prints the functions of the shell.
        """
        # the task may have set a PATH without programs: they are found by the PATH of a new shell
        first = "$PATH:/usr/bin:/bin" if self.base is None else shlex.quote(self.base.get("PATH", "/usr/bin:/bin"))
        variables = 'command env -0 ${__hermes_path+"PATH=$__hermes_path"}'
        state = f"command pwd -P; command printf '\\0'; {variables}; command printf '\\0'; {functions}"
        # the script does not contain the marks literally, because shells print it in errors and traces; one write
        # prints a mark, so that no other output can split it
        begin, end = (f"command printf '\\001{slash}%s>' {token}" for slash in ("<", "</"))
        return (
            f'( [ -z "${{PATH+x}}" ] || __hermes_path=$PATH; PATH={first}; '
            f"__hermes_report=$({{ {state}; }} 2>/dev/null | command od -An -v -tx1); "
            f'{begin}; command printf \'%s:%s\' "${{#__hermes_report}}" "$__hermes_report"; {end} )'
        )

    def restore_script(self, cwd: str) -> str:
        """Return the lines that restore the state in which the last command ended."""
        lines = [f"cd -- {shlex.quote(cwd)} || exit 126"] if cwd else []
        lines += [f"unset {name}" for name in sorted(self.gone)]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return "\n".join([*lines, self.functions] if self.functions else lines)

    def load_report(self, reports: list[bytes]) -> None:
        """Read the reports of a script: of a new shell when `base` is not known yet, then of the end."""
        self.unreadable = False
        try:
            if self.base is None and reports:
                self.base = _parse_report(reports.pop(0))[1]
            if not reports:
                return
            where, after, functions = _parse_report(reports[-1])
        except ValueError:
            self.unreadable = True
            return
        self.cwd = where or self.cwd
        if not after:  # the backend has no `env -0`
            return
        base = self.base or {}
        changed = {n: v for n, v in after.items() if not _is_own(n) and base.get(n) != v}
        if sum(len(n) + len(v) + 12 for n, v in changed.items()) + len(functions) > MAX_STATE:
            self.too_large = True
            return
        self.variables, self.functions, self.too_large = changed, functions, False
        self.gone = {name for name in base if name not in after and not _is_own(name) and _NAME.fullmatch(name)}

    def functions_named_in(self, command: str) -> str:
        """Return the functions if the command may call one, so that they are judged with it."""
        names = re.findall(r"^([^\s()]+) \(\)", self.functions, re.MULTILINE)
        return self.functions if any(name in command for name in names) else ""


class ShellStateFilter:
    """Filter that cuts the reports out of the output of a script."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(12)
        self.report: list[bytes] = []
        """The reports, in their order."""
        self._marks = [f"\x01{slash}{self.token}>".encode() for slash in ("<", "</")]
        self._inside = False
        self._held = b""
        self._block = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Return a piece of output without the parts of a report."""
        out = bytearray()
        data = self._held + data
        while True:
            mark = self._marks[self._inside]
            at = data.find(mark)
            if at < 0:
                break
            (self._block if self._inside else out).extend(data[:at])
            data = data[at + len(mark) :]
            if self._inside:
                self.report.append(bytes(self._block))
                self._block.clear()
            self._inside = not self._inside
        keep = _partial_mark(data, mark)
        (self._block if self._inside else out).extend(data[: len(data) - keep])
        self._held = data[len(data) - keep :]
        if len(self._block) > MAX_REPORT:
            self._block.clear()
        return bytes(out)

    def rest(self) -> bytes:
        """Return the output that was held back as the possible start of a mark; call it at the end."""
        held, self._held = self._held, b""
        return b"" if self._inside else held


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith("__hermes_")


def _partial_mark(data: bytes, mark: bytes) -> int:
    """Return how many of the last bytes may start a mark."""
    return next((n for n in range(min(len(mark) - 1, len(data)), 0, -1) if mark.startswith(data[-n:])), 0)


def _parse_report(report: bytes) -> tuple[str, dict[str, str], str]:
    """Return the directory, the exported variables and the functions of a report.

    Raises:
        ValueError: the report is not as the script printed it.
    """
    length, _, digits = report.replace(b"\r", b"").partition(b":")
    if not length.isdigit() or int(length) != len(digits):
        raise ValueError(f"{len(digits)} characters, expected {length[:20]!r}")
    where, _, rest = bytes.fromhex(digits.decode("ascii")).partition(b"\0")
    variables, _, functions = rest.rpartition(b"\0")
    # `env` ends each variable with a NUL, so that an empty entry separates the functions
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in variables.split(b"\0") if entry)
    found = {name: value for name, _, value in pairs if _NAME.fullmatch(name)}
    names = (where.removesuffix(b"\n"), functions)
    cwd, source = (part.decode("utf-8", "surrogateescape") for part in names)
    return cwd, found, source


_IN_TERMINAL = (
    "import os, pty, sys; code = os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:]));"
    " sys.exit(128 - code if code < 0 else code)"
)


def _in_terminal(argv: list[str]) -> list[str]:
    """Return a program that runs another one in a terminal and forwards its output."""
    return [sys.executable, "-I", "-S", "-c", _IN_TERMINAL, *argv]


class HostBackend(TerminalBackend):
    """Base of built-in backends; it can override how scripts run."""

    steering: SteeringChecks | None = None
    """Checks of steering files around commands; None if commands cannot write files of this machine."""

    def run(
        self, script: str, call: BackendCommand, sieve: OutputFilter, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script and wait for it."""
        return _run_script(self, script, call, sieve, steering=self.steering, pass_fds=pass_fds)


def run_command(backend: TerminalBackend, call: BackendCommand, state: ShellState) -> CommandResult:
    """Run a command in the shell state of its task, and wait for it.

    Raises:
        OSError: the shell cannot be started.
        ToolFailed: the backend cannot be used.
    """
    recorder = ShellStateFilter()
    if state.base is None:
        state.base = backend.base()
    script = state.script(call.command, recorder, cwd=call.cwd, prelude=backend.prelude())
    run_it = backend.run if isinstance(backend, HostBackend) else partial(_run_remote, backend)
    done = run_it(script, call, recorder)
    state.load_report(recorder.report)
    return done


def _run_script(
    backend: TerminalBackend,
    script: str,
    call: BackendCommand,
    sieve: OutputFilter | None = None,
    *,
    steering: SteeringChecks | None = None,
    pass_fds: Sequence[int] = (),
) -> CommandResult:
    start = backend.start(script, call)
    held: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    note = None if steering is None or start.before is None else steering.write_note(start.before)
    try:
        done = run(
            _in_terminal(start.argv) if call.tty and not start.has_tty else start.argv,
            cwd=Path(start.cwd),
            env=start.env,
            timeout_s=call.timeout_s,
            output_limit_bytes=call.output_bytes,
            cancelled=call.cancelled,
            stdin=call.stdin,
            on_output=call.on_output,
            sieve=sieve,
            pass_fds=pass_fds,
        )
    finally:
        limits = start.finish()
        if start.before is not None:
            held = start.before.finish() if steering is None else steering.finish_check(start.before, note)
    return replace(done, held=held, limits=limits) if held or limits else done


KILL_LIMIT_S = 20.0
_KILL = (
    "for p in /proc/[0-9]*; do if tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -qx {mark}; then"
    " [ ${{p#/proc/}} = $$ ] || kill -KILL ${{p#/proc/}}; fi; done 2>/dev/null; exit 0"
)
"""Kills the processes of a command in a remote backend by a variable in their environment."""


def _run_remote(backend: TerminalBackend, script: str, call: BackendCommand, sieve: OutputFilter) -> CommandResult:
    """Run a script in a remote backend; when it is stopped here, kill its processes there."""
    mark = f"{MARK}={secrets.token_hex(8)}"
    done = _run_script(backend, f"exec {shlex.join(['env', mark, *shell_words(script)])}", call, sieve)
    if done.timed_out or done.cancelled:
        end = replace(call, stdin=b"", tty=False, timeout_s=KILL_LIMIT_S, cancelled=Event(), on_output=None)
        ended = _run_script(backend, _KILL.format(mark=mark), end)
        if ended.exit_code:
            output = ended.output.decode("utf-8", "replace")
            logger.warning("command may still run: backend=%s: %s", backend.name, output)
    return done
