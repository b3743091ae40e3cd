"""Commands on this machine, in a sandbox where one can be made."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from hermes_agent.core.errors import ToolFailed
from hermes_agent.io.processes import CommandResult, OutputFilter, find_shell, tool_environment
from hermes_agent.workspace.backends.backend import Backend, BackendCommand, BackendStart
from hermes_agent.workspace.bounds import UNLIMITED, CommandLimits, ProcessLimits
from hermes_agent.workspace.box import Sandbox
from hermes_agent.workspace.sandbox import SandboxSelector
from hermes_agent.workspace.scope import SystemdScope
from hermes_agent.workspace.steering_looks import SteeringChecks
from hermes_agent.workspace.steering_watch import SteeringBaseline

__all__ = ["LocalBackend"]


class LocalBackend(Backend):
    """This machine.

    Args:
        environ: the agent's environment; a command is given the listed part of it.
        passthrough: further names that commands are given (`terminal.env_passthrough`).
        sandbox: where commands are put that nobody is asked about; None for nowhere.
        limits: of each process of a command.
        bounds: of a command in a box that has none itself; None for none.
        scope: what commands outside of the sandbox are put into; None for nothing.
        sudo_password: for commands outside of the sandbox that name sudo; empty is none.
        unconfined: commands that may leave the sandbox without a question (`terminal.unconfined_commands`).
        looks: at steering files, before and after commands in a box; None for one that writes nothing down.
    """

    name = "local"

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        passthrough: tuple[str, ...] = (),
        sandbox: SandboxSelector | None = None,
        limits: ProcessLimits = UNLIMITED,
        bounds: CommandLimits | None = None,
        scope: SystemdScope | None = None,
        sudo_password: Callable[[], str] = lambda: "",
        unconfined: Sequence[str] = (),
        looks: SteeringChecks | None = None,
    ) -> None:
        self._unconfined = unconfined
        self._sudo_password = sudo_password
        self._environ, self._passthrough = environ, passthrough
        self.sandbox = sandbox
        self.steering: SteeringChecks = looks or SteeringChecks()
        self.limits, self.bounds, self._scope = limits, bounds, scope

    @property
    def _selected(self) -> Sandbox | None:
        return None if self.sandbox is None else self.sandbox.selected

    @property
    def confines(self) -> bool:
        return self._selected is not None

    @property
    def can_leave(self) -> bool:  # type: ignore[override]
        return self.confines

    @property
    def opens(self) -> bool:  # type: ignore[override]
        return self._selected is not None and self._selected.opens

    @property
    def offline(self) -> bool:
        return self._selected is not None and self._selected.offline

    def is_read_only(self, directory: str) -> bool:
        return self._selected is not None and not self._selected.is_writable(directory)

    @property
    def refusal(self) -> str:
        return "" if self.sandbox is None else self.sandbox.refusal

    @property
    def description(self) -> str:
        box = self._selected
        if box is None:
            return ""
        folders = " (or the folder of write_to)" if box.opens else ""
        return f"Commands run in a sandbox: only the working directory{folders} and /tmp can be written, {box.network}."

    def checks(self) -> list[tuple[bool, str, str]]:
        problem = "there is none" if self._scope is None else self._scope.problem
        held = f"of each process ({problem})" if problem else "of a command, by a scope of systemd"
        limits = (True, "limits outside of the sandbox", held)
        if self.sandbox is None or self.sandbox.mode == "off":
            return [(True, "no sandbox", "terminal.sandbox is off"), limits]
        box = self.sandbox.selected
        found = (True, "sandbox", box.name) if box else (False, "no sandbox can be made", self.sandbox.problem)
        bounds = [self.bounds.check()] if self.bounds and box and not box.bounded else []
        return [found, *bounds, limits, *(box.checks() if box else ()), *self._leaving_commands()]

    def network_problem(self) -> str:
        box = self._selected
        if box is None:
            return "commands run outside a sandbox, with the network of this machine"
        return box.network_problem()

    def _leaving_commands(self) -> Iterator[tuple[bool, str, str]]:
        """Yield the commands that may leave the sandbox, and the entries that name none."""
        if not self._unconfined:
            return
        from hermes_agent.policy.shell.plain import plain_words  # the grammar of shells, for `hermes doctor`

        named = [entry for entry in self._unconfined if plain_words(entry) is not None]
        if named:
            yield True, "leave the sandbox without a question (terminal.unconfined_commands)", "; ".join(named)
        for entry in self._unconfined:
            if entry not in named:
                text = f"{entry!r} is not one complete command without operators, variables and patterns: no effect"
                yield False, "terminal.unconfined_commands", text

    def base(self) -> Mapping[str, str]:
        return tool_environment(self._environ, passthrough=self._passthrough)

    def prelude(self) -> str:
        return self.limits.prelude()

    def run(
        self, script: str, call: BackendCommand, sieve: OutputFilter | None = None, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script; where it may use sudo, sudo is told the password first, and nobody else.

        sudo remembers for a while that this shell has shown it. The password comes through a pipe that is closed before
        the command begins: it is in no argument, no environment and no file.
        """
        free = self._selected is None or not call.confined
        password = self._sudo_password() if free and re.search(r"\bsudo\b", call.command) else ""
        if not password:
            return super().run(script, call, sieve, pass_fds=pass_fds)
        ours, theirs = os.pipe()
        try:
            os.write(theirs, f"{password}\n".encode())
            os.close(theirs)
            script = f"sudo -S -v -p '' <&{ours} >/dev/null 2>&1; exec {ours}<&-\n{script}"
            return super().run(script, call, sieve, pass_fds=[*pass_fds, ours])
        finally:
            os.close(ours)

    def start(self, script: str, call: BackendCommand) -> BackendStart:
        env = dict(self.base())
        argv = [find_shell(env), "-c", script]
        box = self._selected if call.confined else None
        if box is None:
            return BackendStart(*(self._scope.wrap(argv, env) if self._scope else (argv, env)), call.cwd)
        root = call.root or call.cwd
        if box.is_hidden(call.cwd, root, call.beside):
            raise ToolFailed(
                f"{call.cwd} is not there in the sandbox: it shows {root}, a list of places (`terminal.sandbox_paths`"
                " adds to it) and a /tmp of its own"
            )
        bounds = None if box.bounded else self.bounds
        argv = bounds.inside(argv) if bounds else argv
        before = self._before(box, root)
        keep = before.mounted if before is not None and before.mounts else ()
        sockets = (
            [path for path in before.sockets if f"{root}/{path}" != call.tool_socket] if before is not None else ()
        )
        wrapped, inside = box.wrap(
            argv,
            call.cwd,
            env,
            root=root,
            tty=call.tty,
            network=call.network,
            keep=keep,
            sockets=sockets,
            beside=call.beside,
        )
        if bounds is None:
            return BackendStart(wrapped, inside, call.cwd, box.makes_terminals, before=before)
        try:
            bounded = bounds.wrap(wrapped, inside)
        except OSError as exc:
            raise ToolFailed(f"the command does not run, its limits cannot be set: {exc}") from exc
        return BackendStart(bounded.argv, bounded.env, call.cwd, box.makes_terminals, bounded.finish, before)

    def _before(self, box: Sandbox, root: str) -> SteeringBaseline | None:
        """Return the steering files that are there now; None where the command cannot write."""
        return self.steering.start_check(root, mounts=box.keeps) if box.is_writable(root) else None
