"""The feature of shell hooks, registered after the plugins; programs can run in the sandbox."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config.home import profile_name
from hermes_agent.config.settings import Settings, plain
from hermes_agent.contracts.terminal_env import BackendCommand, TerminalBackend
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.delivery import DeliveryService
from hermes_agent.hooks import HookBus
from hermes_agent.policy.network import HostTables
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import current_scope
from hermes_agent.workspace.task_shells import TaskShells

if TYPE_CHECKING:
    from hermes_agent.hooks.outbound import OutboundWebhooks
    from hermes_agent.hooks.shell_hooks import HookRun, RunHook
    from hermes_agent.hooks.shell_registry import HookQuestion, ShellHooks

logger = logging.getLogger(__name__)


class ShellHookDeps(LazyNamedTuple):
    """Services of the feature."""

    bridge: Bridge
    delivery: DeliveryService
    settings: Callable[[], Settings]
    home: Path
    hooks: HookBus
    network: HostTables
    shells: TaskShells
    working_directory: Path


class ShellHookLoader:
    """Register the shell hooks of the current config; without hooks, nothing of them is imported."""

    def __init__(self, deps: ShellHookDeps) -> None:
        self._deps = deps
        self._hooks: ShellHooks | None = None
        self._outbound: OutboundWebhooks | None = None

    def load(self) -> None:
        """Register the hooks of the config in place of the ones before."""
        settings = self._deps.settings()
        events = plain(settings.hooks)
        self._load_outbound(settings.hooks.outbound)
        if self._hooks is None and not (
            set(events) - {"output_spill", "outbound"} if isinstance(events, dict) else events
        ):
            return
        if self._hooks is None:
            self._hooks = self._make()
        limits = self._hooks.load(settings, os.environ)
        bus = self._deps.hooks
        bus.deadlines = replace(bus.deadlines, by_plugin={**bus.deadlines.by_plugin, **limits})

    def _load_outbound(self, entries: Any) -> None:
        """Register the webhooks of `hooks.outbound`."""
        if self._outbound is None and not entries:
            return
        from hermes_agent.hooks.outbound import OutboundWebhooks, read_outbound, split_denied  # few hosts have webhooks
        from hermes_agent.hooks.shell_registry import SAFE_MODE

        known, problems = read_outbound(entries, os.environ)
        found, denied = split_denied(known, self._deps.network.current().why_denied)
        for problem in [*problems, *denied]:
            logger.warning("webhook: %s", problem)
        if found and os.environ.get(SAFE_MODE) == "1":
            logger.warning("webhooks: none is sent: %s is set", SAFE_MODE)
            found = []
        if self._outbound is None:
            from hermes_agent.workspace.outbound_delivery import OutboundDelivery

            deps = self._deps
            durable = OutboundDelivery(deps.delivery, deps.bridge, lambda: made.by_name, deps.network)
            self._outbound = made = OutboundWebhooks(
                deps.hooks,
                cwd=self._cwd,
                profile=profile_name(deps.home),
                spawn=deps.bridge.spawn,
                send=durable.send,
                store=durable.store,
            )
        self._outbound.load(found, known)

    def _cwd(self) -> str:
        scope = current_scope.get()
        return str(self._deps.working_directory if scope is None else scope.cwd)

    def hints(self) -> list[str]:
        """Return what a user reads at the start about hooks that do not run."""
        return [] if self._hooks is None else self._hooks.hints()

    def faults(self) -> list[tuple[str, str]]:
        """Return each hook that does not run and each wrong entry of the config, with what to do."""
        return [] if self._hooks is None else self._hooks.faults()

    def questions(self) -> list[HookQuestion]:
        """Return a question for each hook that waits for consent; an answer yes registers the hooks again."""
        return [] if self._hooks is None else self._hooks.questions(self.load)

    def _make(self) -> ShellHooks:
        from hermes_agent.hooks.shell_registry import ShellHooks
        from hermes_agent.system.processes import tool_environment

        deps = self._deps
        return ShellHooks(
            deps.hooks,
            deps.home,
            run_in_sandbox=sandbox_runner(lambda: deps.shells.backend),
            environment=lambda: {**tool_environment(os.environ), "HERMES_HOME": str(deps.home)},
            cwd=self._cwd,
            profile=profile_name(deps.home),
        )


class ShellHookServices(LazyNamedTuple):
    """Services that the feature provides."""

    shell_hooks: ShellHookLoader


def register(ctx: Registrar, deps: ShellHookDeps) -> ShellHookServices:
    """Load the shell hooks after the plugins, and again at each reload."""
    loader = ShellHookLoader(deps)
    ctx.on_plugins_loaded(loader.load)
    ctx.on_reload(loader.load)
    return ShellHookServices(loader)


def sandbox_runner(backend: Callable[[], TerminalBackend]) -> RunHook:
    """Return what runs a program in the sandbox; a backend that confines nothing runs it nowhere."""

    from hermes_agent.hooks.shell_hooks import MAX_OUTPUT, HookRun
    from hermes_agent.workspace.backend import ShellState, run_command

    def run(argv: list[str], stdin: bytes, env: Mapping[str, str], cwd: str, timeout_s: float) -> HookRun:
        place = backend()
        if not place.confines or place.refusal:
            return HookRun(None, problem=f"there is no sandbox here: {place.refusal or place.name}")
        # one stream comes back: a mark that the program cannot know stands between output and errors
        mark = secrets.token_hex(16)
        values = " ".join(shlex.quote(f"{name}={value}") for name, value in env.items() if name.startswith("HERMES_"))
        script = (
            f'e=$(mktemp); env {values} {shlex.join(argv)} 2>"$e"; s=$?; printf %s {mark}; head -c 4096 "$e"; exit $s'
        )
        call = BackendCommand(script, cwd, timeout_s, "shell hooks", root=cwd, output_bytes=MAX_OUTPUT, stdin=stdin)
        try:
            done = run_command(place, call, ShellState())
        except (ToolFailed, OSError) as exc:
            return HookRun(None, problem=f"cannot be started: {exc}")
        if done.timed_out:
            return HookRun(None, problem=f"no answer within {timeout_s:g} seconds")
        out, _, err = done.output.decode("utf-8", "replace").partition(mark)
        return HookRun(done.exit_code, out, err)

    return run
