"""Register the tools of this package."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config import Config
from hermes_agent.contracts.owner import Owner
from hermes_agent.contracts.terminal_env import choose_terminal_env
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.registry import BUILTIN
from hermes_agent.hooks import HookBus
from hermes_agent.policy.commands import CommandPolicy
from hermes_agent.tools import ToolRegistry
from hermes_agent.workspace import patch, process, reading, search, terminal, writing
from hermes_agent.workspace.background import Processes
from hermes_agent.workspace.checkpoints import Checkpoints
from hermes_agent.workspace.circumstances import Circumstances
from hermes_agent.workspace.places import Places
from hermes_agent.workspace.shells import Shells
from hermes_agent.workspace.watching import Watcher

if TYPE_CHECKING:
    from hermes_agent.workspace.backends.backend import Backend
    from hermes_agent.workspace.backends.choosing import ChooseProvider

__all__ = ["register"]


def register(
    registry: ToolRegistry,
    config: Config,
    home: Path,
    *,
    hooks: HookBus | None = None,
    environ: Mapping[str, str] | None = None,
    provided: ChooseProvider = partial(choose_terminal_env, {}),  # noqa: B008 - nothing that changes
    watching: Callable[[Processes], Watcher] | None = None,
    sudo_password: Callable[[], str] = lambda: "",
    checkpoints: Checkpoints | None = None,
) -> Shells:
    """Register the tools with their limits from the configuration, and return the shells that they run.

    Args:
        home: `HERMES_HOME`: its credentials are closed to tools, and writing anywhere in it asks.
        hooks: where `transform_terminal_output` is fired; None fires nothing.
        environ: the agent's environment; None means the process's.
        sudo_password: what `SUDO_PASSWORD` is; empty is none.
        watching: makes who tells of background processes; None tells nothing.
        checkpoints: what keeps files as they were before a change; None keeps nothing.
        provided: which terminal environment of a plugin the configuration names; asked at the first command.
    """
    environ = os.environ if environ is None else environ
    places = Places(str(home), str(Path.home()), environ.get("CREDENTIALS_DIRECTORY", ""))
    settings: dict[str, Any] = {**config.get("terminal")}
    if settings["backend"] == "local":
        settings["backend"] = environ.get("TERMINAL_ENV", "").strip() or "local"
    if settings["backend"] in ("systemd", "bwrap"):  # this machine, with that box and no other
        settings |= {"backend": "local", "sandbox": settings["backend"]}
    cwd = Path(os.path.expandvars(config.get("terminal.cwd"))).expanduser()
    work = str(cwd.resolve())

    def backend() -> Backend:
        from hermes_agent.workspace.backends.choosing import choose_backend  # at its first use, not at every start
        from hermes_agent.workspace.bwrap import Bwrap
        from hermes_agent.workspace.exec_unit import ExecUnit
        from hermes_agent.workspace.sandbox import Sandbox

        boxes = (
            ExecUnit(settings["exec_socket"], work),
            Bwrap(places, network=settings["network"], path=environ.get("PATH")),
        )
        sandbox = Sandbox(boxes, mode=settings["sandbox"])
        return choose_backend(settings, environ, sandbox, provided, sudo_password, str(home))

    shells = Shells(backend, persistent=config.get("terminal.persistent_shell"))
    here = Circumstances(places, cwd, shells, checkpoints=checkpoints)
    owner = Owner(BUILTIN)
    read = reading.ReadFile(
        here,
        max_chars=config.get("file_read_max_chars"),
        max_lines=config.get("tool_output.max_lines"),
        max_line_chars=config.get("tool_output.max_line_length"),
        environ=environ,
    )
    write = writing.WriteFile(here)
    change = patch.Patch(here)
    shown: dict[str, Any] = {
        "max_bytes": config.get("tool_output.max_bytes"),
        "max_lines": config.get("tool_output.max_lines"),
        "max_line_chars": config.get("tool_output.max_line_length"),
        "policy": CommandPolicy(config.get("approvals.deny") or (), config.get("command_allowlist") or (), home),
    }
    processes = Processes(home / "processes")
    shell = terminal.Terminal(
        here,
        shells,
        timeout_s=config.get("terminal.timeout"),
        hooks=hooks,
        processes=processes,
        watch=watching(processes).wake if watching else lambda: None,
        **shown,
    )
    after = process.ProcessTool(here, processes, **shown)
    registry.register(
        "read_file",
        "file",
        reading.SCHEMA,
        read,
        emoji="📖",
        max_result_size_chars=math.inf,
        effect=Effect("reads", place="path"),
        owner=owner,
    )
    changes: dict[str, Any] = {"effect": Effect("writes", ("path",), place="path"), "owner": owner}
    registry.register("write_file", "file", writing.SCHEMA, write, emoji="✍️", approval=write.approval, **changes)
    registry.register("patch", "file", patch.SCHEMA, change, emoji="🩹", approval=change.approval, **changes)
    registry.register("search_files", "file", search.SCHEMA, search.SearchFiles(here, environ), emoji="🔎", owner=owner)
    registry.register(
        "terminal",
        "terminal",
        terminal.SCHEMA,
        shell,
        emoji="💻",
        dynamic_schema_overrides=shell.schema,
        approval=shell.approval,
        effect=Effect("runs", ("command",)),
        owner=owner,
    )
    registry.register(
        "process",
        "terminal",
        process.SCHEMA,
        after,
        emoji="⏳",
        approval=after.approval,
        effect=Effect("runs", ("data",)),
        owner=owner,
    )
    return shells
