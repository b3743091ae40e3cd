"""Register the tools of this package."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.config import Config
from hermes_agent.config.home import FileAccess
from hermes_agent.contracts.terminal_env import TerminalBackend, choose_terminal_env
from hermes_agent.contracts.tool import ApprovalRequest, Effect
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.hooks import HookBus
from hermes_agent.policy import CommandPatterns
from hermes_agent.policy.network import HostTables
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import ToolRegistry
from hermes_agent.workspace import schemas
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.task_shells import TaskShells

if TYPE_CHECKING:
    from hermes_agent.workspace.backend_selection import ChooseProvider
    from hermes_agent.workspace.checkpoints import Checkpoints
    from hermes_agent.workspace.egress.networks import Networks
    from hermes_agent.workspace.handlers import WorkspaceTools
    from hermes_agent.workspace.process_tool import ProcessWatcher


def _patch_paths(args: Mapping[str, Any]) -> list[str]:
    """Return the files that stand in the text of a patch."""
    from hermes_agent.workspace import patch_file

    return patch_file.patch_paths(args)


def register(
    registry: ToolRegistry,
    config: Config,
    home: Path,
    cwd: Path,
    *,
    hooks: HookBus | None = None,
    environ: Mapping[str, str] | None = None,
    provided: ChooseProvider = partial(choose_terminal_env, {}),  # noqa: B008 - nothing that changes
    watching: Callable[[], ProcessWatcher] | None = None,
    sudo_password: Callable[[], str] = lambda: "",
    checkpoints: Checkpoints | None = None,
    patterns: CommandPatterns | None = None,
    bridge: Bridge | None = None,
    tables: HostTables | None = None,
    reader: Callable[[], FileAccess] = FileAccess,
) -> TaskShells:
    """Register the tools with their limits from the configuration, and return the shells that they run.

    Args:
        home: `HERMES_HOME`: its credentials are closed to tools, and writing anywhere in it asks.
        cwd: working directory of calls outside of a session, resolved.
        hooks: where `transform_terminal_output` is fired; None fires nothing.
        environ: the agent's environment; None means the process's.
        sudo_password: what `SUDO_PASSWORD` is; empty is none.
        watching: returns the watcher that notifies sessions of background processes; None notifies no session.
        checkpoints: what keeps files as they were before a change; None keeps nothing.
        patterns: what plugins want commands judged by, too.
        bridge: where the broker of the commands' network asks users; None: commands have no network.
        tables: the table of hosts; None: the one of `config`.
        reader: returns whose files of the home the call that runs may open.
        provided: which terminal environment of a plugin the configuration names; asked at the first command.
    """
    environ = os.environ if environ is None else environ
    settings: dict[str, Any] = {**config.get("terminal")}
    credentials = environ.get("CREDENTIALS_DIRECTORY", "")
    added, writable = settings["sandbox_paths"] or (), settings["writable_paths"] or ()
    places = PathRules(str(home), str(Path.home()), credentials, added, reader, writable)
    if settings["backend"] == "local":
        settings["backend"] = environ.get("TERMINAL_ENV", "").strip() or "local"
    if settings["backend"] in ("systemd", "bwrap"):  # this machine, with that box and no other
        settings |= {"backend": "local", "sandbox": settings["backend"]}

    def backend() -> TerminalBackend:
        from hermes_agent.workspace.backend_selection import choose_backend  # at its first use, not at every start
        from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
        from hermes_agent.workspace.sandbox.sandbox import SandboxSelector, SystemdSandbox

        boxes = (
            SystemdSandbox(settings["exec_socket"], str(cwd), shells.networks),
            BubblewrapSandbox(
                places, networks=shells.networks, path=environ.get("PATH"), tmp_mb=settings["sandbox_tmp_mb"]
            ),
        )
        sandbox = SandboxSelector(boxes, mode=settings["sandbox"])
        return choose_backend(settings, environ, sandbox, provided, sudo_password, str(home))

    def networks() -> Networks:
        from hermes_agent.workspace.egress.networks import Networks  # for the first command

        assert bridge is not None
        return Networks(settings["network"], tables or HostTables(config.get, home), bridge, path=environ.get("PATH"))

    persistent = config.get("terminal.persistent_shell")
    name = str(settings["backend"]).strip().lower()
    shells = TaskShells(backend, persistent=persistent, networks=None if bridge is None else networks, name=name)
    tools = _LazyTools(
        config,
        home,
        cwd,
        shells,
        places=places,
        environ=environ,
        hooks=hooks,
        watching=watching,
        checkpoints=checkpoints,
        patterns=patterns,
    )
    own: dict[str, Any] = {"owner": Owner(BUILTIN)}
    read, write, patch, search, shell, process = (
        _LazyHandler(tools, name)
        for name in ("read_file", "write_file", "patch", "search_files", "terminal", "process")
    )
    registry.register(
        "read_file",
        "file",
        schemas.READ_FILE,
        read,
        emoji="📖",
        max_result_size_chars=math.inf,
        effect=Effect("reads", place=read.files),
        **own,
    )
    for tool, schema, emoji in ((write, schemas.WRITE_FILE, "✍️"), (patch, schemas.PATCH, "🩹")):
        effect = Effect("writes", ("path",), place=tool.files, named=_patch_paths if tool is patch else None)
        registry.register(
            schema["name"], "file", schema, tool, emoji=emoji, approval=tool.approval, effect=effect, **own
        )
    registry.register(
        "search_files",
        "file",
        schemas.SEARCH_FILES,
        search,
        emoji="🔎",
        effect=Effect("reads", place=search.files),
        **own,
    )
    registry.register(
        "terminal",
        "terminal",
        schemas.TERMINAL,
        shell,
        emoji="💻",
        dynamic_schema_overrides=shell.schema,
        approval=shell.approval,
        effect=Effect("runs", ("command",), place=shell.files),
        **own,
    )
    registry.register(
        "process",
        "terminal",
        schemas.PROCESS,
        process,
        emoji="⏳",
        approval=process.approval,
        effect=Effect("runs", ("data",), place=process.files),
        **own,
    )
    return shells


class _LazyTools:
    """The handlers, made when one is first used: in a worker, as every call of a tool.

    Args:
        args, kwargs: those of `WorkspaceTools.of`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args, self._kwargs = args, kwargs
        self._made: WorkspaceTools | None = None
        self._lock = threading.Lock()

    def made(self) -> WorkspaceTools:
        from hermes_agent.workspace.handlers import WorkspaceTools  # 1 MiB with what it imports; a start calls no tool

        with self._lock:
            if self._made is None:
                self._made = WorkspaceTools.of(*self._args, **self._kwargs)
            return self._made


class _LazyHandler:
    """Stands for the handler of that name."""

    def __init__(self, tools: _LazyTools, name: str) -> None:
        self._tools, self._name = tools, name

    @property
    def made(self) -> Any:
        """The handler itself."""
        return getattr(self._tools.made(), self._name)

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Call it."""
        result: str = self.made(args, **kwargs)
        return result

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | str | None:
        """Say whether a call needs an answer (`ToolRegistry.register`)."""
        question: ApprovalRequest | str | None = self.made.approval(args)
        return question

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the files that a call is about (`Effect.place`)."""
        try:
            found: list[str] = self.made.files(args, result)
        except (ToolFailed, ValueError):  # the handler refused the same arguments
            return []
        return found

    def schema(self) -> dict[str, Any]:
        """Return what of the schema depends on the machine."""
        changed: dict[str, Any] = self.made.schema()
        return changed
