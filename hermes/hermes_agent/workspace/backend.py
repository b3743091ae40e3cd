"""The shell state of a task between commands, and how a command runs in a backend.

Every command runs in a fresh shell. It is put into a script that first brings the shell to where the last one
ended, and last tells where this one ended, between two marks in its output; the agent cuts that out and keeps it. So
it works the same wherever a POSIX shell runs, and nothing of it is left lying there. A command that ends the shell
itself (`exit`, `exec`) leaves things as they were.

Between the marks stands `LENGTH:HEX`. A terminal changes line ends, and a background process may print at the same
time: hexadecimal digits survive the first, and the length reveals the second.

A backend only says how a script is started (`contracts.terminal_env`). Limits, interrupt and what lasts between
commands are the same for all of them.
"""

from __future__ import annotations

import logging
import re
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from hermes_agent.contracts.terminal_env import BackendCommand, TerminalBackend, shell_words
from hermes_agent.system.processes import MARK, CommandResult, OutputFilter, run

if TYPE_CHECKING:
    from hermes_agent.workspace.sandbox.steering_checks import SteeringChecks

logger = logging.getLogger(__name__)

MAX_STATE = 60_000
"""Most characters that a script may begin with; the kernel takes 128 KiB in one argument."""
MAX_REPORT = 8_000_000
"""Bytes between two marks that are looked at; each byte of the state takes three."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = frozenset({"_", "SHLVL", "PWD", "HERMES_CALL", "LINES", "COLUMNS", "BASHOPTS", "SHELLOPTS", "SUDO_ASKPASS"})
"""Variables that the shell sets itself, or the agent."""


@dataclass(slots=True)
class ShellState:
    """Where the shell of a task stands.

    Attributes:
        base: the environment that a fresh shell has there; None until it was told.
        cwd: the directory, empty until it was told.
    """

    base: Mapping[str, str] | None = None
    cwd: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Variables of `base` that were unset."""
    functions: str = ""
    too_large: bool = False
    """The last command left more than can be kept; it is forgotten."""
    unreadable: bool = False
    """Other output was mixed into what the last command told; it is forgotten."""

    def script(self, command: str, recorder: ShellStateFilter, *, cwd: str = "", prelude: str = "") -> str:
        """Return the script that runs `command` where the last one ended.

        Args:
            cwd: enter this directory first; empty when the shell is started in it.
            prelude: lines that come before everything else.
        """
        lines = [prelude] if prelude else []
        if self.base is None:
            lines.append(self._report_script(recorder.token))
        lines.append(self.restore_script(cwd))
        # 8 is closed for the command, so that nothing it leaves running holds the output open
        text = f" {command}" if command.startswith("-") else command
        lines += ["exec 8>&1", f"{{ eval {shlex.quote(text)}", "} 8>&-"]
        functions = '[ -z "${BASH_VERSION:-}" ] || declare -f'
        told = f"__hermes_status=$?; set +x; {self._report_script(recorder.token, functions)}"
        lines += [f"{{ {told}; }} >&8 2>/dev/null", "exit $__hermes_status"]
        return "\n".join(lines)

    def _report_script(self, token: str, functions: str = ":") -> str:
        """Return the subshell that prints where the shell stands; it calls no function of the task.

        Args:
            functions: the command that prints the shell's functions.
        """
        # the task may have set a PATH that leads to no program: the programs come from the first one
        first = "$PATH:/usr/bin:/bin" if self.base is None else shlex.quote(self.base.get("PATH", "/usr/bin:/bin"))
        variables = 'command env -0 ${__hermes_path+"PATH=$__hermes_path"}'
        state = f"command pwd -P; command printf '\\0'; {variables}; command printf '\\0'; {functions}"
        # the script holds no mark as it is printed: shells quote their script in errors and traces. Each mark is one
        # write, so that nothing else can be printed in the middle of it
        begin, end = (f"command printf '\\001{slash}%s>' {token}" for slash in ("<", "</"))
        return (
            f'( [ -z "${{PATH+x}}" ] || __hermes_path=$PATH; PATH={first}; '
            f"__hermes_told=$({{ {state}; }} 2>/dev/null | command od -An -v -tx1); "
            f'{begin}; command printf \'%s:%s\' "${{#__hermes_told}}" "$__hermes_told"; {end} )'
        )

    def restore_script(self, cwd: str) -> str:
        """Return the lines that bring a fresh shell to where the last command ended."""
        lines = [f"cd -- {shlex.quote(cwd)} || exit 126"] if cwd else []
        lines += [f"unset {name}" for name in sorted(self.gone)]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return "\n".join([*lines, self.functions] if self.functions else lines)

    def load_report(self, told: list[bytes]) -> None:
        """Take over what a script told: first, when `base` was not known, the base, then where it ended."""
        self.unreadable = False
        try:
            if self.base is None and told:
                self.base = _parse_report(told.pop(0))[1]
            if not told:
                return
            where, after, functions = _parse_report(told[-1])
        except ValueError:
            self.unreadable = True
            return
        self.cwd = where or self.cwd
        if not after:  # there is no `env -0`
            return
        base = self.base or {}
        changed = {n: v for n, v in after.items() if not _is_own(n) and base.get(n) != v}
        if sum(len(n) + len(v) + 12 for n, v in changed.items()) + len(functions) > MAX_STATE:
            self.too_large = True
            return
        self.variables, self.functions, self.too_large = changed, functions, False
        self.gone = {name for name in base if name not in after and not _is_own(name) and _NAME.fullmatch(name)}

    def functions_named_in(self, command: str) -> str:
        """Return the functions when the command may call one: what it does is judged together with them."""
        names = re.findall(r"^([^\s()]+) \(\)", self.functions, re.MULTILINE)
        return self.functions if any(name in command for name in names) else ""


class ShellStateFilter:
    """Cuts what the script tells out of its output, piece by piece."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(12)
        self.report: list[bytes] = []
        """What stood between the marks, in its order."""
        self._marks = [f"\x01{slash}{self.token}>".encode() for slash in ("<", "</")]
        self._inside = False
        self._held = b""
        self._block = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Take a piece of output and return what is the command's own."""
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
        """Return what was held back, at the end."""
        held, self._held = self._held, b""
        return b"" if self._inside else held


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith("__hermes_")


def _partial_mark(data: bytes, mark: bytes) -> int:
    """Return how many of the last bytes may be the beginning of a mark."""
    return next((n for n in range(min(len(mark) - 1, len(data)), 0, -1) if mark.startswith(data[-n:])), 0)


def _parse_report(told: bytes) -> tuple[str, dict[str, str], str]:
    """Return the directory, the exported variables and the functions.

    Raises:
        ValueError: it is not what the script printed.
    """
    length, _, digits = told.replace(b"\r", b"").partition(b":")
    if not length.isdigit() or int(length) != len(digits):
        raise ValueError(f"{len(digits)} characters, expected {length[:20]!r}")
    where, _, rest = bytes.fromhex(digits.decode("ascii")).partition(b"\0")
    variables, _, functions = rest.rpartition(b"\0")
    # `env` ends each variable with a NUL, so an empty entry divides them from the functions
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
    """Return the program that gives another one a terminal, and passes on what appears there."""
    return [sys.executable, "-I", "-S", "-c", _IN_TERMINAL, *argv]


class HostBackend(TerminalBackend):
    """A backend of the agent's own code, which may run scripts in a way of its own."""

    steering: SteeringChecks | None = None
    """What looks at steering files before and after its commands; None where none of this machine's can be written."""

    def run(
        self, script: str, call: BackendCommand, sieve: OutputFilter, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script as it is."""
        return _run_script(self, script, call, sieve, steering=self.steering, pass_fds=pass_fds)


def run_command(backend: TerminalBackend, call: BackendCommand, state: ShellState) -> CommandResult:
    """Run a command where the task's last one ended, and wait for it.

    Raises:
        OSError: the program cannot be started.
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
"""Ends a command's processes, known by a variable: the program that was ended here has no power over there."""


def _run_remote(backend: TerminalBackend, script: str, call: BackendCommand, sieve: OutputFilter) -> CommandResult:
    """Run a script in a remote backend; what was stopped here is ended there, too."""
    mark = f"{MARK}={secrets.token_hex(8)}"
    done = _run_script(backend, f"exec {shlex.join(['env', mark, *shell_words(script)])}", call, sieve)
    if done.timed_out or done.cancelled:
        end = replace(call, stdin=b"", tty=False, timeout_s=KILL_LIMIT_S, cancelled=Event(), on_output=None)
        ended = _run_script(backend, _KILL.format(mark=mark), end)
        if ended.exit_code:
            logger.warning("a command may go on in %s: %s", backend.name, ended.output.decode("utf-8", "replace"))
    return done
