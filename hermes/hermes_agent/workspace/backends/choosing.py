"""Which backend the configuration asks for: `terminal.backend`, or `TERMINAL_ENV`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.contracts.provider import Choice
from hermes_agent.contracts.terminal_env import BUILTIN_BACKENDS, TerminalEnvironmentProvider
from hermes_agent.core.errors import ToolFailed
from hermes_agent.workspace.backends.backend import Backend
from hermes_agent.workspace.sandbox import Sandbox

__all__ = ["ChooseProvider", "choose_backend"]

ChooseProvider = Callable[[Mapping[str, Any]], Choice[TerminalEnvironmentProvider]]
"""`choose(config values)`."""


def choose_backend(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    sandbox: Sandbox,
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
        from hermes_agent.workspace.backends.local import Local
        from hermes_agent.workspace.bounds import Bounds, Limits
        from hermes_agent.workspace.scope import Scope
        from hermes_agent.workspace.steering_looks import SteeringLooks

        limits = Limits(settings["max_memory_mb"], settings["max_processes"])
        scope = Scope(environ, memory_mb=limits.memory_mb, processes=limits.processes)
        return Local(
            environ,
            passthrough=passthrough,
            sandbox=sandbox,
            limits=limits,
            bounds=Bounds(environ, Limits(settings["sandbox_memory_mb"], settings["sandbox_processes"])),
            scope=scope,
            sudo_password=sudo_password,
            unconfined=tuple(settings.get("unconfined_commands") or ()),
            looks=SteeringLooks(Path(home, "cache", "looks"), Path(home, "processes")) if home else None,
        )
    if name in ("docker", "singularity"):
        from hermes_agent.workspace.backends.containers import Docker, Singularity

        made = Docker if name == "docker" else Singularity
        return made(settings, environ, home)
    if name == "ssh":
        from hermes_agent.workspace.backends.ssh import Ssh

        return Ssh({**settings, **_ssh(settings, environ)}, environ, home)
    from hermes_agent.workspace.backends.provided import Provided
    from hermes_agent.workspace.backends.vendors import VENDORS

    if name in VENDORS:
        return Provided(VENDORS[name](), settings, image=settings[f"{name}_image"])
    if name in BUILTIN_BACKENDS:
        raise ToolFailed(f"terminal.backend is `{name}`, which this release does not have; no command runs")
    choice = provided({"terminal": settings})
    if choice.provider is None:
        raise ToolFailed(f"{choice.why} No command runs until then.")
    return Provided(choice.provider, settings)


def _ssh(settings: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the config leaves out and upstream's variables (`TERMINAL_SSH_HOST`, …) say."""
    names = [name for name in ("ssh_host", "ssh_user", "ssh_port", "ssh_key") if not settings[name]]
    return {name: environ.get(f"TERMINAL_{name.upper()}") or settings[name] for name in names}
