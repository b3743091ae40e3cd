"""Where a tool of this package works: the working directory of the call, the rules about paths, the stop signal."""

from __future__ import annotations

import io
import os
import stat
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.home_files import PRINCIPALS
from hermes_agent.tools import current_scope
from hermes_agent.workspace.checkpoints import Checkpoints
from hermes_agent.workspace.places import PathRules, WriteConcern, is_inside, resolve
from hermes_agent.workspace.regular import open_regular
from hermes_agent.workspace.seen import SeenFiles
from hermes_agent.workspace.shells import TaskShells

if TYPE_CHECKING:
    from hermes_agent.workspace.background import BackgroundProcesses
    from hermes_agent.workspace.distant import RemoteFiles
    from hermes_agent.workspace.egress.deciding import NetworkCall

__all__ = ["ToolContext"]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What the tools share.

    Attributes:
        rules: which paths are shown, which hold credentials, and where writing needs a person's word.
        default_cwd: working directory of a call without a scope, resolved.
    """

    rules: PathRules
    default_cwd: Path
    shells: TaskShells | None = None
    """Where commands run, and so whose files are meant; None for this machine's."""
    seen: SeenFiles = field(default_factory=SeenFiles)
    checkpoints: Checkpoints | None = None
    processes: BackgroundProcesses | None = None
    """Background processes, whose guards set aside what nobody approved."""

    @property
    def places(self) -> PathRules:
        """The rules for the working directory of this conversation."""
        return self.rules.for_cwd(self.cwd())

    def cwd(self) -> str:
        """Return the working directory of this conversation, resolved where its session was opened.

        Raises:
            ToolFailed: it leads elsewhere now: a link took the place of a directory on the way to it.
        """
        scope = current_scope.get()
        held = str(self.default_cwd if scope is None else scope.cwd)
        if (now := os.path.realpath(held)) != held:  # a command of another session may write above it
            raise ToolFailed(
                f"the working directory {held[:200]} leads to {now[:200]} now, which nobody chose: put the directory"
                " back in place of the link, or begin a new session"
            )
        return held

    def task_id(self) -> str:
        """Return the task of this call; empty outside one."""
        scope = current_scope.get()
        return "" if scope is None else scope.task_id

    def network(self) -> str:
        """Return whose network the commands of this call share: one for a session, its scripts included."""
        scope = current_scope.get()
        return "" if scope is None else scope.session_id or scope.task_id

    def tool_socket(self) -> str:
        """Return the path of the socket at which commands of this call ask for tools; empty: none."""
        scope = current_scope.get()
        return "" if scope is None else scope.tool_socket

    def use_network(self, tool: str, what: str) -> AbstractContextManager[NetworkCall]:
        """Let commands use the network for this call meanwhile."""
        from hermes_agent.workspace.egress.deciding import NetworkCall  # for the first command

        scope, networks = current_scope.get(), None if self.shells is None else self.shells.networks
        work = NetworkCall("" if scope is None else scope.session_id, tool, scope, what)
        return nullcontext(work) if networks is None else networks.use(self.network(), work)

    def notified_session(self, session_id: str) -> str:
        """Return the session that hears of what a call in `session_id` leaves running: of a subagent, its user's."""
        scope = current_scope.get()
        own = scope is not None and scope.session_id == session_id
        return (scope.account if scope is not None and own else "") or session_id

    def base_directory(self) -> str:
        """Return where relative paths count from: where the last command ended, as long as that is in `cwd`."""
        cwd, moved = self.cwd(), "" if self.shells is None else self.shells.cwd(self.task_id())
        return moved if moved and is_inside(moved, cwd) and Path(moved).is_dir() else cwd

    def remote_files(self) -> RemoteFiles | None:
        """Return the files of the backend, when they are not this machine's.

        Raises:
            ToolFailed: the configuration names no backend that is there.
        """
        if self.shells is None or self.shells.backend.own_files:
            return None
        from hermes_agent.workspace.distant import RemoteFiles  # few have their shell elsewhere

        return RemoteFiles(self.shells.backend, self.task_id(), self.shells.cwd(self.task_id()))

    def open(self, path: str) -> tuple[IO[bytes], os.stat_result]:
        """Open a resolved path for reading, wherever it is.

        Raises:
            ToolFailed: it does not exist, may not be read, is no regular file, or holds credentials.
        """
        distant = None if self._is_stored_here(path) else self.remote_files()
        if distant is None:
            return open_regular(path, self.places)
        data, size = distant.read(path)
        return io.BytesIO(data), os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, size, 0, 0, 0))

    def _is_stored_here(self, path: str) -> bool:
        """Say whether it is an upload or a long result: those lie on this machine, wherever commands run."""
        kept = f"{self.rules.hermes_home}/{PRINCIPALS}"
        return (
            path.startswith(f"{kept}/")
            and "\0" not in path
            and is_inside(os.path.realpath(path), os.path.realpath(kept))
        )

    def remember(self, path: str, status: os.stat_result | None = None) -> None:
        """Note that this task knows a file of this machine as it is."""
        if not self._is_stored_here(path) and self.remote_files() is None:
            self.seen.note(self.task_id(), path, status)

    def is_changed(self, path: str) -> bool:
        """Say whether a file is different from what this task saw of it."""
        return self.remote_files() is None and self.seen.is_changed(self.task_id(), path)

    def before_change(self, target: str, why: str, folder: str = "") -> None:
        """Keep this machine's files as they are, before a tool changes `target` (empty: whatever a command does).

        Args:
            folder: where a command writes; empty for the working directory.
        """
        if self.checkpoints is not None and self.remote_files() is None:
            scope = current_scope.get()
            session, turn = ("", "") if scope is None else (scope.session_id, scope.turn_id)
            self.checkpoints.before_change(target, folder or self.cwd(), session=session, turn=turn, why=why)

    def can_be_undone(self, why: str, folder: str = "") -> bool:
        """Say whether all files that a confined command may change are in a checkpoint; make it where it is missing.

        Args:
            folder: as of `before_change`.
        """
        if self.checkpoints is None or self.remote_files() is not None:
            return False
        scope = current_scope.get()
        session, turn = ("", "") if scope is None else (scope.session_id, scope.turn_id)
        return self.checkpoints.is_complete(folder or self.cwd(), session=session, turn=turn, why=why)

    def write_concern(self, target: str) -> WriteConcern | None:
        """Return why writing a resolved path needs a person's word, or None."""
        distant = self.remote_files()
        if distant is None:
            return self.places.write_concern(target, self.cwd())
        return (
            None
            if distant.backend.confines
            else WriteConcern(f"with the terminal backend {distant.backend.name}", True)
        )

    def note_approved(self, target: str, data: bytes) -> None:
        """Note that the user let a tool write a file, before it is written."""
        if self.processes is not None and self.remote_files() is None:
            from hermes_agent.workspace.steering_guard import note_approved  # for the first such file

            note_approved(self.processes.directories(), target, data)

    def resolve(self, path: str) -> str:
        """Return the real path that an argument means.

        Raises:
            ToolFailed: the path cannot be one (half a character in it, too long).
        """
        if self._is_stored_here(path):
            return os.path.realpath(path)
        if distant := self.remote_files():
            return distant.resolve(path)
        try:
            return resolve(path, self.base_directory(), self.rules.user_home)
        except (OSError, ValueError) as exc:
            raise ToolFailed(f"{path[:200]!r} is not a path: {exc}") from exc

    def cancelled(self) -> threading.Event:
        """Return the event that is set when the turn is interrupted."""
        scope = current_scope.get()
        return threading.Event() if scope is None else scope.cancelled

    def display_path(self, path: str) -> str:
        """Return a resolved path as the model should write it: relative where that is shorter and means the same."""
        if self._is_stored_here(path):
            return path
        distant = self.remote_files()
        at = self.base_directory() if distant is None else distant.cwd or "."
        cwd = at.rstrip("/") + "/"
        shown = path[len(cwd) :] if path.startswith(cwd) else path
        return os.fsencode(shown).decode("utf-8", "replace")  # a name need not be UTF-8
