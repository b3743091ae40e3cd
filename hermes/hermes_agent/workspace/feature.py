"""The file tools, `terminal` and `process`, and the slash command `/rollback`.

The handlers and what they import are loaded at the first call of a tool.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from hermes_agent.config import Config
from hermes_agent.config.home import FileAccess
from hermes_agent.config.settings import Settings, plain
from hermes_agent.contracts.kind import ProviderLookup
from hermes_agent.contracts.terminal_env import TERMINAL_ENV, TerminalBackend, choose_terminal_env
from hermes_agent.contracts.tool import ApprovalRequest, Effect, Registrar
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.credentials import Credentials
from hermes_agent.hooks import HookBus
from hermes_agent.policy import CommandPatterns
from hermes_agent.policy.network import HostTables
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Principals, Transcript
from hermes_agent.tools import current_scope
from hermes_agent.tools.call_scope import file_access
from hermes_agent.workspace import schemas
from hermes_agent.workspace.checkpoints import Checkpoints, register_rollback, restore_text
from hermes_agent.workspace.paths import PathRules, open_readable, secret_reason
from hermes_agent.workspace.sandbox.file_rules import steering_reason
from hermes_agent.workspace.task_shells import TaskShells

if TYPE_CHECKING:
    from hermes_agent.workspace.backend_selection import ChooseProvider
    from hermes_agent.workspace.background_processes import BackgroundProcess
    from hermes_agent.workspace.egress.networks import Networks
    from hermes_agent.workspace.handlers import WorkspaceTools
    from hermes_agent.workspace.process_tool import ProcessWatcher


CONSOLE = "cli"
"""Source of sessions that get their notices only after a user opened them."""


class NoticeInbox(Protocol):
    """Messages that wait for a session (`agent.injected_messages.InjectedMessages`)."""

    on_open: Callable[[str], None] | None
    """Called with the id of a session that is opened."""

    def open(self, session_id: str) -> None:
        """Accept messages for a session."""
        ...

    def is_open(self, session_id: str) -> bool:
        """Return whether messages for a session are accepted."""
        ...

    def push(self, text: str, session_id: str) -> Any:
        """Add a message."""
        ...


class ProcessNotices:
    """A component of the daemon; other processes that run conversations use only its watcher.

    Args:
        call_transcript: runs a method of `Transcript` (`Agent.call_transcript`).
        source_of: returns the source of the untrusted text of a process (`TaintTracker.source_of`).
    """

    def __init__(
        self,
        home: Path,
        bridge: Bridge,
        inbox: NoticeInbox,
        call_transcript: Callable[..., Coroutine[Any, Any, Any]],
        source_of: Callable[[str], str],
    ) -> None:
        self._directory = home / "processes"
        self._bridge, self._inbox, self._call_transcript, self._source_of = bridge, inbox, call_transcript, source_of
        self._watcher: ProcessWatcher | None = None
        self._lock = threading.Lock()
        inbox.on_open = self._wake_watcher

    def watcher(self) -> ProcessWatcher:
        """Return the watcher, which is made at its first use."""
        with self._lock:
            if self._watcher is None:
                from hermes_agent.workspace.background_processes import BackgroundProcesses  # a start calls no tool
                from hermes_agent.workspace.process_tool import ProcessWatcher

                self._watcher = ProcessWatcher(
                    BackgroundProcesses(self._directory),
                    later=self._bridge.call_later,
                    spawn=self._bridge.spawn,
                    announce=self._inbox.push,
                    is_open=self._inbox.is_open,
                    was_said=self._is_recorded,
                    taint_source=self._source_of,
                )
            return self._watcher

    async def start(self) -> None:
        """Open the inbox of each stored session with watched processes, except sessions of the console."""
        if not self._has_processes():
            return
        watched = await self._bridge.run(lambda: self.watcher().processes.watched())
        for session_id in dict.fromkeys(process.session_id for process in watched):
            source = await self._call_transcript("source", session_id)
            if source is not None and source != CONSOLE:
                self._inbox.open(session_id)

    async def drain(self, timeout_s: float) -> None:
        """Return at once: the watcher ends with its threads."""

    def _wake_watcher(self, session_id: str) -> None:
        if self._has_processes():
            self._bridge.spawn(lambda: self.watcher().wake())

    def _has_processes(self) -> bool:
        try:
            with os.scandir(self._directory) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def running(self, session_id: str) -> list[BackgroundProcess]:
        """Return the background processes of a session that run; in a worker."""
        if not self._has_processes():
            return []
        processes = self.watcher().processes
        return [each for each in processes.processes_of(session_id) if processes.status(each) == "running"]

    def _is_recorded(self, session_id: str, text: str) -> bool:
        return bool(self._bridge.wait_core(self._call_transcript("has_user_text", session_id, text)))


class WorkspaceDeps(LazyNamedTuple):
    """Services of the workspace."""

    bridge: Bridge
    call_transcript: Callable[..., Coroutine[Any, Any, Any]]
    config: Config
    credentials: Credentials
    settings: Callable[[], Settings]
    home: Path
    hooks: HookBus
    injected: NoticeInbox
    network: HostTables
    open_transcript: Callable[[], Transcript]
    patterns: CommandPatterns
    people: Principals
    provenance: TaintTracker
    providers: ProviderLookup
    working_directory: Path


class WorkspaceServices(LazyNamedTuple):
    """Services that the workspace provides."""

    checkpoints: Checkpoints
    controlled_place: Callable[[str], str]
    """Returns where a file is that steers other programs of the user; empty for any other file."""
    open_file: Callable[[str], IO[bytes]]
    """Opens a plain file that the tools of the running call may read."""
    process_notices: ProcessNotices
    sandbox_name: Callable[[], str]
    """Returns the name of the sandbox in which commands run."""
    secret_reason: Callable[[str], str | None]
    """Returns why a file is closed to the tools of the running call; None for an open one."""
    shells: TaskShells
    undo_turn: Callable[[str], str]
    """Restores the files that a turn changed and returns what was restored."""


def register(ctx: Registrar, deps: WorkspaceDeps) -> WorkspaceServices:
    """Register the tools and `/rollback`, and return what other features use of the workspace."""
    home, settings = deps.home, deps.settings
    checkpoints = Checkpoints.from_config(home, deps.config.settings, os.environ)
    notices = ProcessNotices(home, deps.bridge, deps.injected, deps.call_transcript, deps.provenance.source_of)
    reader = partial(file_access, deps.people)
    shells = register_tools(
        ctx,
        deps.config,
        home,
        deps.working_directory,
        hooks=deps.hooks,
        provided=partial(deps.providers.choose, TERMINAL_ENV.name),
        watching=notices.watcher,
        sudo_password=lambda: deps.credentials.get("SUDO_PASSWORD") or "",
        checkpoints=checkpoints,
        patterns=deps.patterns,
        bridge=deps.bridge,
        tables=deps.network,
        reader=reader,
    )
    can_see = partial(_can_see_session, deps.people, deps.open_transcript)
    register_rollback(ctx, checkpoints, deps.working_directory, can_see)
    ctx.every_day(checkpoints.prune)
    ctx.on_close(partial(deps.bridge.run, shells.close_all))

    def cwd() -> Path:
        scope = current_scope.get()
        return deps.working_directory if scope is None else scope.cwd

    return WorkspaceServices(
        checkpoints=checkpoints,
        controlled_place=lambda path: steering_reason(path, str(Path.home())),
        open_file=lambda path: open_readable(path, home, cwd(), reader(), list(settings().terminal.sandbox_paths)),
        process_notices=notices,
        sandbox_name=shells.sandbox_name,
        secret_reason=lambda path: secret_reason(path, home, cwd(), reader()),
        shells=shells,
        undo_turn=lambda turn: restore_text(checkpoints.undo(turn)),
    )


def _can_see_session(principals: Principals, open_transcript: Callable[[], Transcript], session_id: str) -> bool:
    """Return whether the caller of the running command may see a session."""
    scope = current_scope.get()
    if scope is None:
        return False
    with contextlib.closing(open_transcript()) as transcript:
        return transcript.principal(session_id) in principals.visible_to(scope.principal)


def _patch_paths(args: Mapping[str, Any]) -> list[str]:
    """Return the files that a patch names."""
    from hermes_agent.workspace import patch_file

    return patch_file.patch_paths(args)


def register_tools(
    ctx: Registrar,
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
    """Register the tools with their limits from the config, and return the shells of the tasks.

    Args:
        ctx: where the tools are registered.
        config: the config.
        home: `HERMES_HOME`; its credentials are closed to tools, and writing in it needs an approval.
        cwd: the resolved working directory of calls outside a session.
        hooks: the bus that fires `transform_terminal_output`; None fires nothing.
        environ: the environment of the agent; None for that of the process.
        sudo_password: returns the value of `SUDO_PASSWORD`; empty for none.
        watching: returns the watcher that notifies sessions of background processes; None notifies no session.
        checkpoints: the checkpoints of files before a change; None makes none.
        patterns: additional command patterns of plugins.
        bridge: through which the network broker of commands asks users; without it commands have no network.
        tables: the table of hosts; None for that of `config`.
        reader: returns which files of the home the current call may open.
        provided: returns the terminal environment of a plugin that the config names; called at the first command.
    """
    environ = os.environ if environ is None else environ
    settings: dict[str, Any] = {**plain(config.settings.terminal)}
    credentials = environ.get("CREDENTIALS_DIRECTORY", "")
    added, writable = settings["sandbox_paths"] or (), settings["writable_paths"] or ()
    places = PathRules(str(home), str(Path.home()), credentials, added, reader, writable)
    if settings["backend"] == "local":
        settings["backend"] = environ.get("TERMINAL_ENV", "").strip() or "local"
    if settings["backend"] in ("systemd", "bwrap"):  # this machine, with this sandbox only
        settings |= {"backend": "local", "sandbox": settings["backend"]}

    def backend() -> TerminalBackend:
        from hermes_agent.workspace.backend_selection import choose_backend  # at its first use, not at every start
        from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
        from hermes_agent.workspace.sandbox.sandbox import SandboxSelector, SystemdSandbox

        sandboxes = (
            SystemdSandbox(settings["exec_socket"], str(cwd), shells.networks),
            BubblewrapSandbox(
                places, networks=shells.networks, path=environ.get("PATH"), tmp_mb=settings["sandbox_tmp_mb"]
            ),
        )
        sandbox = SandboxSelector(sandboxes, mode=settings["sandbox"])
        return choose_backend(settings, environ, sandbox, provided, sudo_password, str(home))

    def networks() -> Networks:
        from hermes_agent.workspace.egress.networks import Networks  # for the first command

        assert bridge is not None
        return Networks(
            settings["network"], tables or HostTables(lambda: config.settings, home), bridge, path=environ.get("PATH")
        )

    persistent = config.settings.terminal.persistent_shell
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
    read, write, patch, search, shell, process = (
        _LazyHandler(tools, name)
        for name in ("read_file", "write_file", "patch", "search_files", "terminal", "process")
    )
    ctx.register_tool(
        "read_file",
        "file",
        schemas.READ_FILE,
        read,
        emoji="📖",
        max_result_size_chars=math.inf,
        effect=Effect("reads", place=read.files),
    )
    for tool, schema, emoji in ((write, schemas.WRITE_FILE, "✍️"), (patch, schemas.PATCH, "🩹")):
        effect = Effect("writes", ("path",), place=tool.files, named=_patch_paths if tool is patch else None)
        ctx.register_tool(schema["name"], "file", schema, tool, emoji=emoji, approval=tool.approval, effect=effect)
    ctx.register_tool(
        "search_files",
        "file",
        schemas.SEARCH_FILES,
        search,
        emoji="🔎",
        effect=Effect("reads", place=search.files),
    )
    ctx.register_tool(
        "terminal",
        "terminal",
        schemas.TERMINAL,
        shell,
        emoji="💻",
        dynamic_schema_overrides=partial(schemas.terminal_changes, shells),
        approval=shell.approval,
        effect=Effect("runs", ("command",), place=shell.files),
    )
    ctx.register_tool(
        "process",
        "terminal",
        schemas.PROCESS,
        process,
        emoji="⏳",
        approval=process.approval,
        effect=Effect("runs", ("data",), place=process.files),
    )
    return shells


class _LazyTools:
    """The handlers, made in a worker at the first call of a tool.

    Args:
        args: positional arguments of `WorkspaceTools.of`.
        kwargs: keyword arguments of `WorkspaceTools.of`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args, self._kwargs = args, kwargs
        self._made: WorkspaceTools | None = None
        self._lock = threading.Lock()

    def loaded(self) -> WorkspaceTools:
        from hermes_agent.workspace.handlers import WorkspaceTools  # 1 MiB with what it imports; a start calls no tool

        with self._lock:
            if self._made is None:
                self._made = WorkspaceTools.of(*self._args, **self._kwargs)
            return self._made


class _LazyHandler:
    """Proxy of one handler of `_LazyTools`."""

    def __init__(self, tools: _LazyTools, name: str) -> None:
        self._tools, self._name = tools, name

    @property
    def loaded(self) -> Any:
        """The handler itself."""
        return getattr(self._tools.loaded(), self._name)

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Call the handler."""
        result: str = self.loaded(args, **kwargs)
        return result

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | str | None:
        """Return the approval request of a call (`ToolRegistry.register`)."""
        question: ApprovalRequest | str | None = self.loaded.approval(args)
        return question

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the files of a call (`Effect.place`)."""
        try:
            found: list[str] = self.loaded.files(args, result)
        except (ToolFailed, ValueError):  # the handler refused the same arguments
            return []
        return found
