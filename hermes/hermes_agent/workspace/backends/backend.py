"""What a place where commands run has to do. Source: plugin contract §4.12.

A backend says which program on this machine runs a shell script over there; everything else (limits, interrupt,
what lasts between commands, background processes) is the same for all of them.
"""

from __future__ import annotations

import abc
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes_agent.io.processes import CommandResult, OutputFilter, run
from hermes_agent.workspace.shell_state import ShellState, ShellStateFilter

if TYPE_CHECKING:
    from hermes_agent.workspace.steering_looks import SteeringChecks
    from hermes_agent.workspace.steering_watch import SteeringBaseline

__all__ = ["Backend", "BackendCommand", "BackendStart"]


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
