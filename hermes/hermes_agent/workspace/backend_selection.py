"""Selection of the backend (`terminal.backend`): this machine, or a backend of a plugin.

`choose_backend` is the entry. `LocalBackend` runs commands on this machine, in a sandbox where there is one.
`PluginBackend` runs them in the terminal environments of a plugin.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.contracts.kind import SelectedProvider
from hermes_agent.contracts.terminal_env import (
    BUILTIN_BACKENDS,
    BackendCommand,
    BackendServices,
    BackendStart,
    TerminalBackend,
    TerminalEnvironment,
    TerminalEnvironmentProvider,
)
from hermes_agent.core.calls import supported
from hermes_agent.core.errors import ToolFailed
from hermes_agent.system.installation import bundled_plugin
from hermes_agent.system.processes import CommandResult, OutputFilter, find_shell, tool_environment
from hermes_agent.workspace.backend import HostBackend
from hermes_agent.workspace.sandbox.limits import UNLIMITED, CommandLimits, ProcessLimits, SystemdScope
from hermes_agent.workspace.sandbox.sandbox import Sandbox, SandboxSelector
from hermes_agent.workspace.sandbox.steering_checks import SteeringChecks
from hermes_agent.workspace.sandbox.steering_watch import SteeringBaseline


class LocalBackend(HostBackend):
    """The backend of this machine.

    Args:
        environ: the environment of the agent; commands get the listed part of it.
        passthrough: additional variables for commands (`terminal.env_passthrough`).
        sandbox: the sandboxes for commands; None runs commands without one.
        limits: the limits of each process of a command.
        bounds: the limits of a command in a sandbox that has none itself; None for none.
        scope: the systemd scope for commands outside the sandbox; None for none.
        sudo_password: returns the password for commands outside the sandbox that name sudo; empty for none.
        unconfined: commands that may leave the sandbox without a question (`terminal.unconfined_commands`).
        steering: the checks of steering files around sandboxed commands; None for checks without stored notes.
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
        steering: SteeringChecks | None = None,
    ) -> None:
        self._unconfined = unconfined
        self._sudo_password = sudo_password
        self._environ, self._passthrough = environ, passthrough
        self.sandbox = sandbox
        self.steering: SteeringChecks = steering or SteeringChecks()
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
        sandbox = self._selected
        if sandbox is None:
            return ""
        folders = " (or the folder of write_to)" if sandbox.opens else ""
        places = f"only the working directory{folders} and /tmp can be written"
        return f"Commands run in a sandbox: {places}, {sandbox.network}."

    def checks(self) -> list[tuple[bool, str, str]]:
        problem = "there is none" if self._scope is None else self._scope.problem
        held = f"of each process ({problem})" if problem else "of a command, by a scope of systemd"
        limits = (True, "limits outside of the sandbox", held)
        if self.sandbox is None or self.sandbox.mode == "off":
            return [(True, "no sandbox", "terminal.sandbox is off"), limits]
        sandbox = self.sandbox.selected
        found = (True, "sandbox", sandbox.name) if sandbox else (False, "no sandbox can be made", self.sandbox.problem)
        bounds = [self.bounds.check()] if self.bounds and sandbox and not sandbox.bounded else []
        return [found, *bounds, limits, *(sandbox.checks() if sandbox else ()), *self._leaving_commands()]

    def network_problem(self) -> str:
        sandbox = self._selected
        if sandbox is None:
            return "commands run outside a sandbox, with the network of this machine"
        return sandbox.network_problem()

    def _leaving_commands(self) -> Iterator[tuple[bool, str, str]]:
        """Yield the commands that may leave the sandbox, and the entries without effect."""
        if not self._unconfined:
            return
        from hermes_agent.policy.shell.syntax import plain_words  # the grammar of shells, for `hermes doctor`

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
        self, script: str, call: BackendCommand, sieve: OutputFilter, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script; if it may use sudo, give sudo the password first.

        sudo remembers for a while that this shell has authenticated. The password comes through a pipe that is closed
        before the command begins: it is in no argument, no environment and no file.
        """
        free = self._selected is None or not call.confined
        password = self._sudo_password() if free and re.search(r"\bsudo\b", call.command) else ""
        if not password:
            return super().run(script, call, sieve, pass_fds=pass_fds)
        read_end, write_end = os.pipe()
        try:
            os.write(write_end, f"{password}\n".encode())
            os.close(write_end)
            script = f"sudo -S -v -p '' <&{read_end} >/dev/null 2>&1; exec {read_end}<&-\n{script}"
            return super().run(script, call, sieve, pass_fds=[*pass_fds, read_end])
        finally:
            os.close(read_end)

    def start(self, script: str, call: BackendCommand) -> BackendStart:
        env = dict(self.base())
        argv = [find_shell(env), "-c", script]
        sandbox = self._selected if call.confined else None
        if sandbox is None:
            return BackendStart(*(self._scope.wrap(argv, env) if self._scope else (argv, env)), call.cwd)
        root = call.root or call.cwd
        if sandbox.is_hidden(call.cwd, root, call.work_dir):
            raise ToolFailed(
                f"{call.cwd} does not exist in the sandbox: it shows {root}, a list of places (`terminal.sandbox_paths`"
                " adds to it) and a /tmp of its own"
            )
        bounds = None if sandbox.bounded else self.bounds
        argv = bounds.inside(argv) if bounds else argv
        before = self._before(sandbox, root)
        keep = before.mounted if before is not None and before.mounts else ()
        sockets = (
            [path for path in before.sockets if f"{root}/{path}" != call.tool_socket] if before is not None else ()
        )
        wrapped, inside = sandbox.wrap(
            argv,
            call.cwd,
            env,
            root=root,
            tty=call.tty,
            network=call.network,
            keep=keep,
            sockets=sockets,
            work_dir=call.work_dir,
        )
        if bounds is None:
            return BackendStart(wrapped, inside, call.cwd, sandbox.makes_terminals, before=before)
        try:
            bounded = bounds.wrap(wrapped, inside)
        except OSError as exc:
            raise ToolFailed(f"the command does not run, its limits cannot be set: {exc}") from exc
        return BackendStart(bounded.argv, bounded.env, call.cwd, sandbox.makes_terminals, bounded.finish, before)

    def _before(self, sandbox: Sandbox, root: str) -> SteeringBaseline | None:
        """Return the baseline of steering files; None if the command cannot write."""
        return self.steering.start_check(root, mounts=sandbox.keeps) if sandbox.is_writable(root) else None


logger = logging.getLogger(__name__)

EXIT_TIMEOUT = 124


class PluginBackend(HostBackend):
    """The terminal environments of one provider, one for each task.

    Args:
        provider: the provider.
        settings: the settings of the block `terminal`.
        image: the image for a bundled provider; other plugins have it in their settings.
    """

    own_files = False

    def __init__(
        self, provider: TerminalEnvironmentProvider, settings: Mapping[str, Any], *, image: str | None = None
    ) -> None:
        self._image = image
        self.name = provider.name
        self._provider, self._settings = provider, settings
        self._made: dict[str, TerminalEnvironment] = {}
        self._lock = threading.Lock()

    @property
    def throwaway(self) -> bool:  # type: ignore[override]
        return self._flag("skip_container_guards")

    @property
    def confines(self) -> bool:
        return self._flag("is_container")

    @property
    def description(self) -> str:
        place = self._ask("cache_path_base", None)
        cache = f" What is in {hermes_home()}/cache here is in {place} there." if place else ""
        return f"Commands run in {self._ask('env_description', 'another place')}.{cache}"

    def checks(self) -> list[tuple[bool, str, str]]:
        try:
            rows = [(bool(ok), str(label), str(detail)) for ok, label, detail in self._provider.doctor_checks()]
            if any(not ok for ok, _, _ in rows) and (steps := self._provider.setup_instructions()):
                rows.append((False, f"{self.name} setup", " ".join(map(str, steps))))
            return rows
        except Exception as exc:  # noqa: BLE001 - a plugin's code
            return [(False, f"{self.name} cannot be checked", f"{type(exc).__name__}: {exc}")]

    def start(self, script: str, call: BackendCommand) -> BackendStart:
        raise ToolFailed(f"the terminal backend {self.name} runs no background processes")

    def run(
        self, script: str, call: BackendCommand, sieve: OutputFilter, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script in the environment of its task, which is made at the first script."""
        environment = self._environment(call)
        wanted = {"cwd": call.cwd, "timeout": call.timeout_s}
        if call.stdin:
            wanted["stdin_data"] = call.stdin.decode("utf-8", "replace")
        try:
            answer = environment.execute(script, **supported(environment.execute, wanted))
        except Exception as exc:
            raise ToolFailed(f"the terminal backend {self.name} failed: {type(exc).__name__}: {exc}") from exc
        code = answer.get("returncode", answer.get("exit_code"))
        output = str(answer.get("output") or "").encode("utf-8", "replace")
        text = sieve.feed(output) + sieve.rest()
        over = max(len(text) - call.output_bytes, 0)
        head = int(call.output_bytes * 0.4) if over else len(text)
        return CommandResult(
            int(code if code is not None else -1),
            text[:head],
            text[head + over :],
            over,
            timed_out=code == EXIT_TIMEOUT,
        )

    def close(self, task_id: str) -> None:
        with self._lock:
            environment = self._made.pop(task_id, None)
        if environment is not None:
            try:
                environment.cleanup()
            except Exception as exc:  # noqa: BLE001 - code of a plugin, and the task is over
                logger.warning("terminal backend %s: task not closed: %s: %s", self.name, exc, task_id)

    def _environment(self, call: BackendCommand) -> TerminalEnvironment:
        with self._lock:
            if call.task_id not in self._made:
                self._made[call.task_id] = self._make(call)
            return self._made[call.task_id]

    def _make(self, call: BackendCommand) -> TerminalEnvironment:
        get = self._settings.get
        own = self._settings.get("backends") or {}
        container = {f"container_{key}": get(f"container_{key}") for key in ("cpu", "memory", "disk", "persistent")}
        try:
            if not self._provider.check_requirements({**self._settings, **container}):
                raise ToolFailed(f"the terminal backend {self.name} is not ready: {self._provider.probe()[1]}")
            return self._provider.create_environment(
                cwd=call.cwd,
                timeout=int(get("timeout") or 180),
                task_id=call.task_id or "default",
                image=self._image,
                container_config=container if self.confines else None,
                backend_config=self._provider.resolve_config(own.get(self.name) or {}),
            )
        except ToolFailed:
            raise
        except Exception as exc:
            raise ToolFailed(f"the terminal backend {self.name} cannot be used: {type(exc).__name__}: {exc}") from exc

    def _flag(self, name: str) -> bool:
        return bool(self._ask(name, False))

    def _ask(self, name: str, default: Any) -> Any:
        """Return an attribute of the provider, or the careful default when it raises."""
        try:
            return getattr(self._provider, name)
        except Exception as exc:  # noqa: BLE001 - a plugin's code
            logger.warning("terminal backend %s: attribute not read: %s: %s", self.name, exc, name)
            return default


BUNDLED_BACKENDS = {
    "docker": "containers",
    "singularity": "containers",
    "ssh": "ssh",
    "modal": "modal",
    "daytona": "daytona",
}
"""The folder in `terminal/` of the bundled plugin with each backend."""

ChooseProvider = Callable[[Mapping[str, Any]], SelectedProvider[TerminalEnvironmentProvider]]
"""Returns the selected provider for config values."""


def choose_backend(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    sandbox: SandboxSelector,
    provided: ChooseProvider,
    sudo_password: Callable[[], str] = lambda: "",
    home: str = "",
) -> TerminalBackend:
    """Return the backend in which commands run.

    Args:
        settings: the block `terminal`.
        environ: the environment of the agent.
        sandbox: the sandboxes of this machine.
        provided: returns the provider of a plugin with the configured name.
        sudo_password: as of `LocalBackend`.
        home: `HERMES_HOME`.

    Raises:
        ToolFailed: there is no such backend. Commands are refused, and never run on this machine instead.
    """
    passthrough = tuple(settings.get("env_passthrough") or ())
    name = str(settings["backend"]).strip().lower()
    if name == "local":
        limits = ProcessLimits(settings["max_memory_mb"], settings["max_processes"])
        scope = SystemdScope(environ, memory_mb=limits.memory_mb, processes=limits.processes)
        return LocalBackend(
            environ,
            passthrough=passthrough,
            sandbox=sandbox,
            limits=limits,
            bounds=CommandLimits(environ, ProcessLimits(settings["sandbox_memory_mb"], settings["sandbox_processes"])),
            scope=scope,
            sudo_password=sudo_password,
            unconfined=tuple(settings.get("unconfined_commands") or ()),
            steering=SteeringChecks(Path(home, "cache", "looks"), Path(home, "processes")) if home else None,
        )
    if name in BUNDLED_BACKENDS:
        backend_type = bundled_plugin("terminal", BUNDLED_BACKENDS[name]).BACKENDS[name]
        if isinstance(backend_type, type) and issubclass(backend_type, TerminalEnvironmentProvider):
            return PluginBackend(backend_type(), settings, image=settings[f"{name}_image"])
        check = partial(SteeringChecks().start_check, mounts=False)
        backend: TerminalBackend = backend_type(BackendServices(settings, environ, home, tool_environment, check))
        return backend
    if name in BUILTIN_BACKENDS:
        raise ToolFailed(f"terminal.backend is `{name}`, which this release does not have; no command runs")
    choice = provided({"terminal": settings})
    if choice.provider is None:
        raise ToolFailed(f"{choice.reason} No command runs until then.")
    return PluginBackend(choice.provider, settings)
