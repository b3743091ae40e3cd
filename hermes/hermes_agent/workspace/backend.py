"""What lasts from one command of a task to the next: the directory, exported variables, functions.

Every command runs in a fresh shell. It is put into a script that first brings the shell to where the last one
ended, and last tells where this one ended, between two marks in its output; the agent cuts that out and keeps it. So
it works the same wherever a POSIX shell runs, and nothing of it is left lying there. A command that ends the shell
itself (`exit`, `exec`) leaves things as they were.

Between the marks stands `LENGTH:HEX`. A terminal changes line ends, and a background process may print at the same
time: hexadecimal digits survive the first, and the length reveals the second.

What a place where commands run has to do. Source: plugin contract §4.12.

A backend says which program on this machine runs a shell script over there; everything else (limits, interrupt,
what lasts between commands, background processes) is the same for all of them.

What backends with a file system of their own have in common: a shell over there, and its processes.
"""

from __future__ import annotations

import abc
import logging
import re
import secrets
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from hermes_agent.system.processes import MARK, CommandResult, OutputFilter, run

if TYPE_CHECKING:
    from hermes_agent.workspace.sandbox.steering_checks import SteeringChecks
    from hermes_agent.workspace.sandbox.steering_watch import SteeringBaseline


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


@dataclass(frozen=True, slots=True)
class BackendCommand:
    """One command."""

    command: str
    cwd: str
    """Where it runs, over there; empty for the place's own."""
    timeout_s: float
    task_id: str = ""
    network: str = ""
    """Whose network it shares; empty: it has one of its own."""
    root: str = ""
    """The directory that it may change when it is confined."""
    beside: str = ""
    """The working directory, where that is another one than `root`."""
    tool_socket: str = ""
    """Path of the one socket of a program outside that it reaches when it is confined."""
    confined: bool = True
    output_bytes: int = 50_000
    """How much output is kept."""
    stdin: bytes = b""
    tty: bool = False
    """Whether the command has a terminal."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    on_output: Callable[[bytes], None] | None = None


class BackendStart(NamedTuple):
    """How a script is started: a program of this machine."""

    argv: list[str]
    env: dict[str, str]
    cwd: str = "/"
    has_tty: bool = False
    """The program makes the command's terminal itself; otherwise it has to be given one."""
    finish: Callable[[], tuple[str, ...]] = tuple
    """Gives back what the start took, once the program has ended; returns the limits that it reached."""
    before: SteeringBaseline | None = None
    """What there was of steering files where it may write; what is new of them afterwards is set aside."""


_IN_TERMINAL = (
    "import os, pty, sys; code = os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:]));"
    " sys.exit(128 - code if code < 0 else code)"
)


def _in_terminal(argv: list[str]) -> list[str]:
    """Return the program that gives another one a terminal, and passes on what appears there."""
    return [sys.executable, "-I", "-S", "-c", _IN_TERMINAL, *argv]


class Backend(abc.ABC):
    """A place where commands run."""

    name: str
    own_files: bool = True
    """Its files are this machine's, so that file tools act on them directly."""
    throwaway: bool = False
    """It can be thrown away: nobody is asked about what is dangerous."""
    opens: bool = False
    """A command may ask to write in a folder of the user's instead of the working directory."""
    steering: SteeringChecks | None = None
    """What looks at steering files before and after its commands; None where none of this machine's can be written."""
    can_leave: bool = False
    """A command may ask to run outside of its confinement."""

    @property
    def confines(self) -> bool:
        """Whether a harmless command can do no harm, so that nobody is asked about it."""
        return True

    @property
    def offline(self) -> bool:
        """Whether a confined command is known to reach no network but its own."""
        return False

    def is_read_only(self, directory: str) -> bool:
        """Say whether confined commands cannot write to a working directory, which is then no place of work."""
        return False

    @property
    def refusal(self) -> str:
        """Why no command may run at all; empty when they may."""
        return ""

    @property
    def description(self) -> str:
        """What the model is told about the place; empty for nothing."""
        return ""

    def checks(self) -> list[tuple[bool, str, str]]:
        """Return rows of `(ok, label, detail)` for somebody who looks for a fault (`hermes doctor`)."""
        return []

    def network_problem(self) -> str:
        """Return why commands do not have the network that `terminal.network` asks for; empty when they have."""
        return ""

    @abc.abstractmethod
    def start(self, script: str, call: BackendCommand) -> BackendStart:
        """Return how a shell script is started there.

        Raises:
            ToolFailed: the place cannot be used, with the reason.
        """

    def base(self) -> Mapping[str, str] | None:
        """Return the environment that a shell has there; None when only the place knows."""
        return None

    def prelude(self) -> str:
        """Return lines that every script begins with."""
        return ""

    def execute(self, call: BackendCommand, state: ShellState) -> CommandResult:
        """Run a command where the task's last one ended, and wait for it.

        Raises:
            OSError: the program cannot be started.
            ToolFailed: the place cannot be used.
        """
        recorder = ShellStateFilter()
        if state.base is None:
            state.base = self.base()
        script = state.script(call.command, recorder, cwd=call.cwd, prelude=self.prelude())
        done = self.run(script, call, recorder)
        state.load_report(recorder.report)
        return done

    def run(
        self, script: str, call: BackendCommand, sieve: OutputFilter | None = None, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script as it is."""
        start = self.start(script, call)
        held: tuple[str, ...] = ()
        limits: tuple[str, ...] = ()
        note = (
            self.steering.write_note(start.before) if self.steering is not None and start.before is not None else None
        )
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
            if self.steering is not None and start.before is not None:
                held = self.steering.finish_check(start.before, note)
        return replace(done, held=held, limits=limits) if held or limits else done

    def close(self, task_id: str) -> None:
        """Give back what is held for a task. By default nothing is."""
        return

    def close_all(self) -> None:
        """Give back what is held for all of them."""
        return


logger = logging.getLogger(__name__)

KILL_LIMIT_S = 20.0
_BEST_SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1" hermes; else exec sh -c "$1" hermes; fi'
_KILL = (
    "for p in /proc/[0-9]*; do if tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -qx {mark}; then"
    " [ ${{p#/proc/}} = $$ ] || kill -KILL ${{p#/proc/}}; fi; done 2>/dev/null; exit 0"
)
"""Ends a command's processes, known by a variable: the program that was ended here has no power over there."""


def shell_words(script: str, mark: str = "") -> list[str]:
    """Return the words that run a script in the best shell that is there."""
    words = ["sh", "-c", _BEST_SHELL, "hermes", script]
    return ["env", f"{MARK}={mark}", *words] if mark else words


class RemoteBackend(Backend):
    """A place that a program of this machine leads to."""

    own_files = False

    def run(
        self, script: str, call: BackendCommand, sieve: OutputFilter | None = None, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script; what was stopped here is ended there, too."""
        mark = secrets.token_hex(8)
        marked = shlex.join(shell_words(script, mark))
        done = super().run(f"exec {marked}", call, sieve, pass_fds=pass_fds)
        if done.timed_out or done.cancelled:
            end = replace(call, stdin=b"", tty=False, timeout_s=KILL_LIMIT_S, cancelled=Event(), on_output=None)
            ended = super().run(_KILL.format(mark=f"{MARK}={mark}"), end)
            if ended.exit_code:
                logger.warning("a command may go on in %s: %s", self.name, ended.output.decode("utf-8", "replace"))
        return done
