"""The context of workspace tools: directories, path rules, seen files, arguments, folders.

`ToolContext` knows the working directory of the current call, the path rules and the backend of its shell. `SeenFiles`
records the state in which a task has seen files, so that it does not overwrite a change by others.

Commands and file tools write in folders outside the working directory after one question for each folder.
The answer `session` covers the folder and all below it until the session ends, for every tool; `always` adds it to
`terminal.writable_paths`. Files that steer other programs need their own approval in such a folder, too.
"""

from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hermes_agent.config.home import PRINCIPALS
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.text import printable
from hermes_agent.system.files import FileStamp
from hermes_agent.tools import current_scope
from hermes_agent.workspace.checkpoints import Checkpoints
from hermes_agent.workspace.paths import PathRules, WriteConcern, open_regular, resolve
from hermes_agent.workspace.sandbox.file_rules import is_inside
from hermes_agent.workspace.task_shells import TaskShells

if TYPE_CHECKING:
    from hermes_agent.workspace.background_processes import BackgroundProcesses
    from hermes_agent.workspace.egress.destinations import NetworkCall
    from hermes_agent.workspace.remote_files import RemoteFiles


def parse_text(args: Mapping[str, Any], name: str, *, default: str | None = None, may_be_empty: bool = False) -> str:
    """Return a text argument.

    Args:
        args: the arguments of the call.
        name: the name of the argument.
        default: the value when the argument is absent or null; None makes it required.
        may_be_empty: whether an empty text, or one with NUL characters, is allowed.

    Raises:
        ToolFailed: the argument is missing, empty, not a string, or has a NUL character.
    """
    value = args.get(name)
    if value is None:
        if default is None:
            raise ToolFailed(f"`{name}` is missing")
        return default
    if not isinstance(value, str):
        raise ToolFailed(f"`{name}` is {repr(value)[:100]}: expected a string")
    if not value and not may_be_empty:
        raise ToolFailed(f"`{name}` is empty")
    if "\0" in value and not may_be_empty:
        raise ToolFailed(f"`{name}` has a NUL character")
    return value


def parse_number(args: Mapping[str, Any], name: str, *, default: int, least: int, most: int | None = None) -> int:
    """Return a whole number; a larger one than `most` counts as `most`.

    Raises:
        ToolFailed: the argument is not a whole number, or less than `least`.
    """
    value = args.get(name)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ToolFailed(f"`{name}` is {repr(value)[:100]}: expected a whole number")
    if value < least:
        raise ToolFailed(f"`{name}` is {value}: expected {least} or more")
    return value if most is None else min(value, most)


def parse_choice(args: Mapping[str, Any], name: str, among: Sequence[str]) -> str:
    """Return an argument that is one of `among`, by default the first.

    Raises:
        ToolFailed: the argument is not among them.
    """
    value = args.get(name)
    if value is None or value == "":
        return among[0]
    if value not in among:
        raise ToolFailed(f"`{name}` is {repr(value)[:100]}: expected one of {', '.join(among)}")
    return str(value)


MOST = 4_096
"""Most seen files; the least recently seen one is forgotten."""


class SeenFiles:
    """The states in which tasks have seen files. Safe for threads."""

    def __init__(self) -> None:
        self._files: LruDict[tuple[str, str], FileStamp] = LruDict(MOST)
        self._lock = threading.Lock()

    def note(self, task_id: str, path: str, status: os.stat_result | None = None) -> None:
        """Record that a task has seen a file in its present state, or in that of `status`."""
        stamp = FileStamp.of(path if status is None else status)
        with self._lock:
            if stamp is None:
                self._files.pop((task_id, path), None)
            else:
                self._files[task_id, path] = stamp.content

    def is_changed(self, task_id: str, path: str) -> bool:
        """Return whether a file changed since the task saw it; False for a file that it never saw."""
        with self._lock:
            known = self._files.get((task_id, path))
        if known is None:
            return False
        stamp = FileStamp.of(path)
        return stamp is None or stamp.content != known


@lazy_dataclass(frozen=True, slots=True)
class ToolContext:
    """The objects that the workspace tools share.

    Attributes:
        rules: the path rules: shown paths, credentials, files with an approval before writing.
        default_cwd: the resolved working directory of a call without a scope.
    """

    rules: PathRules
    default_cwd: Path
    shells: TaskShells | None = None
    """The shells of the tasks; their backend has the files. None for the files of this machine."""
    seen: SeenFiles = field(default_factory=SeenFiles)
    checkpoints: Checkpoints | None = None
    processes: BackgroundProcesses | None = None
    """The background processes; their guards set aside unapproved steering files."""

    @property
    def places(self) -> PathRules:
        """The path rules for the working directory of this conversation."""
        return self.rules.for_cwd(self.cwd())

    def cwd(self) -> str:
        """Return the working directory of this conversation, as resolved when its session was opened.

        Raises:
            ToolFailed: a directory of the path was replaced by a link.
        """
        scope = current_scope.get()
        held = str(self.default_cwd if scope is None else scope.cwd)
        if (now := os.path.realpath(held)) != held:  # a command of another session may have written above it
            raise ToolFailed(
                f"the working directory {held[:200]} leads to {now[:200]} now, through a new link: put the directory"
                " back in place of the link, or begin a new session"
            )
        return held

    def task_id(self) -> str:
        """Return the task id of this call; empty outside a call."""
        scope = current_scope.get()
        return "" if scope is None else scope.task_id

    def network(self) -> str:
        """Return the key of the network for commands of this call: one network for each session."""
        scope = current_scope.get()
        return "" if scope is None else scope.session_id or scope.task_id

    def tool_socket(self) -> str:
        """Return the path of the socket at which commands of this call call tools; empty for none."""
        scope = current_scope.get()
        return "" if scope is None else scope.tool_socket

    def use_network(self, tool: str, what: str) -> AbstractContextManager[NetworkCall]:
        """Return a context in which commands use the network on behalf of this call."""
        from hermes_agent.workspace.egress.destinations import NetworkCall  # for the first command

        scope, networks = current_scope.get(), None if self.shells is None else self.shells.networks
        work = NetworkCall("" if scope is None else scope.session_id, tool, scope, what)
        return nullcontext(work) if networks is None else networks.use(self.network(), work)

    def notified_session(self, session_id: str) -> str:
        """Return the session to notify of background processes; for a subagent, that of its user."""
        scope = current_scope.get()
        own = scope is not None and scope.session_id == session_id
        return (scope.account if scope is not None and own else "") or session_id

    def base_directory(self) -> str:
        """Return the base of relative paths: where the last command ended, if that is inside `cwd`."""
        cwd, moved = self.cwd(), "" if self.shells is None else self.shells.cwd(self.task_id())
        return moved if moved and is_inside(moved, cwd) and Path(moved).is_dir() else cwd

    def remote_files(self) -> RemoteFiles | None:
        """Return the files of a remote backend, or None for those of this machine.

        Raises:
            ToolFailed: the configured backend cannot be used.
        """
        if self.shells is None or self.shells.backend.own_files:
            return None
        from hermes_agent.workspace.remote_files import RemoteFiles  # only for remote backends

        return RemoteFiles(self.shells.backend, self.task_id(), self.shells.cwd(self.task_id()))

    def open(self, path: str) -> tuple[IO[bytes], os.stat_result]:
        """Open a resolved path for reading, on this machine or in the remote backend.

        Raises:
            ToolFailed: it does not exist, may not be read, is not a regular file, or holds credentials.
        """
        remote = None if self._is_stored_here(path) else self.remote_files()
        if remote is None:
            return open_regular(path, self.places)
        data, size = remote.read(path)
        return io.BytesIO(data), os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, size, 0, 0, 0))

    def _is_stored_here(self, path: str) -> bool:
        """Return whether a path is an upload or a stored result: those are always on this machine."""
        stored = f"{self.rules.hermes_home}/{PRINCIPALS}"
        return (
            path.startswith(f"{stored}/")
            and "\0" not in path
            and is_inside(os.path.realpath(path), os.path.realpath(stored))
        )

    def remember(self, path: str, status: os.stat_result | None = None) -> None:
        """Record that this task has seen a file of this machine in its present state."""
        if not self._is_stored_here(path) and self.remote_files() is None:
            self.seen.note(self.task_id(), path, status)

    def is_changed(self, path: str) -> bool:
        """Return whether a file changed since this task saw it."""
        return self.remote_files() is None and self.seen.is_changed(self.task_id(), path)

    def before_change(self, target: str, why: str, folder: str = "") -> None:
        """Make a checkpoint before a tool changes `target`, or before a command (empty target).

        Args:
            target: the resolved file; empty for a command.
            why: the reason, shown in the list of checkpoints.
            folder: the folder in which a command writes; empty for the working directory.
        """
        if self.checkpoints is not None and self.remote_files() is None:
            scope = current_scope.get()
            session, turn = ("", "") if scope is None else (scope.session_id, scope.turn_id)
            self.checkpoints.before_change(target, folder or self.cwd(), session=session, turn=turn, why=why)

    def can_be_undone(self, why: str, folder: str = "") -> bool:
        """Return whether a checkpoint has all files that a confined command may change; make a missing one.

        Args:
            why: as in `before_change`.
            folder: as in `before_change`.
        """
        if self.checkpoints is None or self.remote_files() is not None:
            return False
        scope = current_scope.get()
        session, turn = ("", "") if scope is None else (scope.session_id, scope.turn_id)
        return self.checkpoints.is_complete(folder or self.cwd(), session=session, turn=turn, why=why)

    def write_concern(self, target: str) -> WriteConcern | None:
        """Return why writing a resolved path needs an approval, or None."""
        remote = self.remote_files()
        if remote is None:
            return self.places.write_concern(target, self.cwd())
        return (
            None if remote.backend.confines else WriteConcern(f"with the terminal backend {remote.backend.name}", True)
        )

    def note_approved(self, target: str, data: bytes) -> None:
        """Record, before a file is written, that the user approved it."""
        if self.processes is not None and self.remote_files() is None:
            from hermes_agent.workspace.sandbox.steering_guard import note_approved  # only for such files

            note_approved(self.processes.directories(), target, data)

    def resolve(self, path: str) -> str:
        """Return the real path that an argument names.

        Raises:
            ToolFailed: the text cannot be a path (a lone surrogate, too long).
        """
        if self._is_stored_here(path):
            return os.path.realpath(path)
        if remote := self.remote_files():
            return remote.resolve(path)
        try:
            return resolve(path, self.base_directory(), self.rules.user_home)
        except (OSError, ValueError) as exc:
            raise ToolFailed(f"{path[:200]!r} is not a path: {exc}") from exc

    def cancelled(self) -> threading.Event:
        """Return the event that is set when the turn is interrupted."""
        scope = current_scope.get()
        return threading.Event() if scope is None else scope.cancelled

    def output_listener(self) -> Callable[[bytes], None] | None:
        """Return the function that is called with output of the running command, or None."""
        scope = current_scope.get()
        return None if scope is None else scope.on_output

    def display_path(self, path: str) -> str:
        """Return a resolved path for the model: relative to the base directory if it is below it."""
        if self._is_stored_here(path):
            return path
        remote = self.remote_files()
        at = self.base_directory() if remote is None else remote.cwd or "."
        cwd = at.rstrip("/") + "/"
        shown = path[len(cwd) :] if path.startswith(cwd) else path
        return os.fsencode(shown).decode("utf-8", "replace")  # a name need not be UTF-8


class FolderAnswer(LazyNamedTuple):
    """The rule that an approval for a folder covers."""

    rule: str
    also: tuple[str, ...]
    """Rules of the folders above it; an approval of one of them covers the folder, too."""


def requested_folder(context: ToolContext, args: Mapping[str, Any]) -> str:
    """Return the resolved folder of `write_to`; empty for none, or for the working directory.

    Raises:
        ToolFailed: commands cannot write there, with any approval.
    """
    given = parse_text(args, "write_to", default="", may_be_empty=True)
    if not given:
        return ""
    folder = context.resolve(given)
    if is_inside(folder, context.cwd()) and context.cwd() != context.places.user_home:
        return ""
    if not Path(folder).is_dir():
        raise ToolFailed(f"`write_to` is {given}, and there is no such folder")
    if not (_is_visible(context.places, folder) or context.places.is_writable(folder)):
        raise ToolFailed(
            f"`write_to` is {given}: only visible folders in the home directory, and what the operator adds with"
            " `terminal.sandbox_paths` or `terminal.writable_paths`, can be written from the sandbox"
        )
    return folder


def folder_answer(places: PathRules, folder: str) -> FolderAnswer | None:
    """Return what an approval for a folder covers, or None when each file needs its own approval."""
    if not _is_visible(places, folder):
        return None
    above = [folder]
    while _is_visible(places, parent := os.path.dirname(above[-1])):  # noqa: PTH120 - text, as everywhere here
        above.append(parent)
    return FolderAnswer(_rule(folder), tuple(map(_rule, above[1:])))


THIS_FOLDER = "this folder"


def folder_request(context: ToolContext, folder: str, what: FolderAnswer, command: str) -> ApprovalRequest:
    """Return the approval request for commands that write in a folder."""
    return ApprovalRequest(
        "terminal",
        f"let commands write in {printable(folder)}",
        f"{printable(command)}\nwrites in {printable(folder)}",
        what.rule,
        keep=partial(context.rules.allow_writing, folder),
        also=what.also,
        covers=THIS_FOLDER,
    )


def widen_to_folder(context: ToolContext, asked: ApprovalRequest, targets: Sequence[str]) -> ApprovalRequest:
    """Return the request of a file tool, widened to the folder of the files where that is allowed.

    A folder that does not exist yet counts, too.
    """
    if context.remote_files() is not None:
        return asked
    folder = os.path.commonpath([os.path.dirname(target) for target in targets])  # noqa: PTH120 - text
    what = folder_answer(context.places, folder)
    if what is None:
        return asked
    summary = f"{asked.summary}, in the folder {printable(folder)}"
    keep = partial(context.rules.allow_writing, folder)
    return replace(asked, summary=summary, rule_key=what.rule, also=what.also, keep=keep, covers=THIS_FOLDER)


def _rule(folder: str) -> str:
    return f"write in {folder}"


def _is_visible(places: PathRules, folder: str) -> bool:
    """Return whether a folder is in a visible folder of the home, or in one that the operator adds."""
    home = places.user_home
    if home != "/" and folder != home and is_inside(folder, home):
        name = folder[len(home) + 1 :]
        if not name.startswith(".") and places.unlisted_reason(folder) is None:
            return True
    return any(is_inside(folder, os.path.realpath(place)) for place in places.added)
