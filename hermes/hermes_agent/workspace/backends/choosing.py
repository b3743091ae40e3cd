"""Which backend the configuration asks for: `terminal.backend`, or `TERMINAL_ENV`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.contracts.provider import SelectedProvider
from hermes_agent.contracts.terminal_env import BUILTIN_BACKENDS, TerminalEnvironmentProvider
from hermes_agent.core.errors import ToolFailed
from hermes_agent.workspace.backends.backend import Backend
from hermes_agent.workspace.sandbox import SandboxSelector

__all__ = ["ChooseProvider", "choose_backend"]

ChooseProvider = Callable[[Mapping[str, Any]], SelectedProvider[TerminalEnvironmentProvider]]
"""`choose(config values)`."""


def choose_backend(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    sandbox: SandboxSelector,
    provided: ChooseProvider,
    sudo_password: Callable[[], str] = lambda: "",
    home: str = "",
) -> Backend:
    """Return where commands run.

    Args:
        settings: the block `terminal`.
        provided: what a plugin has of that name.
        home: `HERMES_HOME`.

    Raises:
        ToolFailed: nobody has that backend; nothing runs rather than here, unprotected.
    """
    passthrough = tuple(settings.get("env_passthrough") or ())
    name = str(settings["backend"]).strip().lower()
    # each in its place: a process uses one of them, and none before its first command
    if name == "local":
        from hermes_agent.workspace.backends.local import LocalBackend
        from hermes_agent.workspace.bounds import CommandLimits, ProcessLimits
        from hermes_agent.workspace.scope import SystemdScope
        from hermes_agent.workspace.steering_looks import SteeringChecks

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
            looks=SteeringChecks(Path(home, "cache", "looks"), Path(home, "processes")) if home else None,
        )
    if name in ("docker", "singularity"):
        from hermes_agent.workspace.backends.containers import DockerBackend, SingularityBackend

        made = DockerBackend if name == "docker" else SingularityBackend
        return made(settings, environ, home)
    if name == "ssh":
        from hermes_agent.workspace.backends.ssh import SshBackend

        return SshBackend({**settings, **_ssh(settings, environ)}, environ, home)
    from hermes_agent.workspace.backends.provided import PluginBackend
    from hermes_agent.workspace.backends.vendors import VENDORS

    if name in VENDORS:
        return PluginBackend(VENDORS[name](), settings, image=settings[f"{name}_image"])
    if name in BUILTIN_BACKENDS:
        raise ToolFailed(f"terminal.backend is `{name}`, which this release does not have; no command runs")
    choice = provided({"terminal": settings})
    if choice.provider is None:
        raise ToolFailed(f"{choice.reason} No command runs until then.")
    return PluginBackend(choice.provider, settings)


def _ssh(settings: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the config leaves out and upstream's variables (`TERMINAL_SSH_HOST`, …) say."""
    names = [name for name in ("ssh_host", "ssh_user", "ssh_port", "ssh_key") if not settings[name]]
    return {name: environ.get(f"TERMINAL_{name.upper()}") or settings[name] for name in names}
