"""Read the arguments of a tool call; what is wrong with one is said in words that the model can act on.

What each task has seen of files, so that a change by somebody else is not written over unseen.

Where a tool of this package works: the working directory of the call, the rules about paths, the stop signal.

Folders outside of the working directory: written after one question a folder, by commands and file tools alike.

The answer `session` covers the folder and what is below it until the session ends, for every tool; `always` adds it to
`terminal.writable_paths`. What steers other programs keeps its own question, in such a folder too.
"""

from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from hermes_agent.config.home import PRINCIPALS
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import ToolFailed
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
        default: taken when the argument is absent or null; None means that it is required.

    Raises:
        ToolFailed: it is missing, empty, not text, or holds a NUL character.
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
        raise ToolFailed(f"`{name}` holds a NUL character")
    return value


def parse_number(args: Mapping[str, Any], name: str, *, default: int, least: int, most: int | None = None) -> int:
    """Return a whole number; what is over `most` counts as `most`.

    Raises:
        ToolFailed: it is not a whole number, or less than `least`.
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
    """Return one of `among`, by default the first.

    Raises:
        ToolFailed: it is none of them.
    """
    value = args.get(name)
    if value is None or value == "":
        return among[0]
    if value not in among:
        raise ToolFailed(f"`{name}` is {repr(value)[:100]}: expected one of {', '.join(among)}")
    return str(value)


MOST = 4_096
"""Files that are remembered; the one that was looked at longest ago is forgotten."""


class SeenFiles:
    """Safe for threads."""

    def __init__(self) -> None:
        self._files: LruDict[tuple[str, str], FileStamp] = LruDict(MOST)
        self._lock = threading.Lock()

    def note(self, task_id: str, path: str, status: os.stat_result | None = None) -> None:
        """Note that the task knows the file as it is now, or as `status` says."""
        stamp = FileStamp.of(path if status is None else status)
        with self._lock:
            if stamp is None:
                self._files.pop((task_id, path), None)
            else:
                self._files[task_id, path] = stamp.content

    def is_changed(self, task_id: str, path: str) -> bool:
        """Say whether a file is different from what the task saw; false for one that it never saw."""
        with self._lock:
            known = self._files.get((task_id, path))
        if known is None:
            return False
        stamp = FileStamp.of(path)
        return stamp is None or stamp.content != known


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
        from hermes_agent.workspace.egress.destinations import NetworkCall  # for the first command

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
        from hermes_agent.workspace.remote_files import RemoteFiles  # few have their shell elsewhere

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
            from hermes_agent.workspace.sandbox.steering_guard import note_approved  # for the first such file

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

    def output_listener(self) -> Callable[[bytes], None] | None:
        """Return the function that is called with output of the running command, or None."""
        scope = current_scope.get()
        return None if scope is None else scope.on_output

    def display_path(self, path: str) -> str:
        """Return a resolved path as the model should write it: relative where that is shorter and means the same."""
        if self._is_stored_here(path):
            return path
        distant = self.remote_files()
        at = self.base_directory() if distant is None else distant.cwd or "."
        cwd = at.rstrip("/") + "/"
        shown = path[len(cwd) :] if path.startswith(cwd) else path
        return os.fsencode(shown).decode("utf-8", "replace")  # a name need not be UTF-8


WRITE_TO: dict[str, Any] = {
    "type": "string",
    "description": (
        "Folder outside the working directory, as ~/Documents, that this command writes in, and in no other; the user"
        " is asked once for each folder."
    ),
}


class FolderAnswer(NamedTuple):
    """What an answer for a folder covers."""

    rule: str
    also: tuple[str, ...]
    """Rules of the folders above it, whose answers cover it, too."""


def requested_folder(here: ToolContext, args: Mapping[str, Any]) -> str:
    """Return the folder of a call that writes there, resolved; empty where it names none, or the working directory.

    Raises:
        ToolFailed: commands cannot write there, whoever is asked.
    """
    given = parse_text(args, "write_to", default="", may_be_empty=True)
    if not given:
        return ""
    folder = here.resolve(given)
    if is_inside(folder, here.cwd()) and here.cwd() != here.places.user_home:
        return ""
    if not Path(folder).is_dir():
        raise ToolFailed(f"`write_to` is {given}, and there is no such folder")
    if not (_is_visible(here.places, folder) or here.places.is_writable(folder)):
        raise ToolFailed(
            f"`write_to` is {given}: only visible folders in the home directory, and what the operator adds with"
            " `terminal.sandbox_paths` or `terminal.writable_paths`, can be written from the sandbox"
        )
    return folder


def folder_answer(places: PathRules, folder: str) -> FolderAnswer | None:
    """Return what an answer for a folder covers; None where each file is asked about: no folder of the user's."""
    if not _is_visible(places, folder):
        return None
    above = [folder]
    while _is_visible(places, parent := os.path.dirname(above[-1])):  # noqa: PTH120 - text, as everywhere here
        above.append(parent)
    return FolderAnswer(_rule(folder), tuple(map(_rule, above[1:])))


def folder_request(here: ToolContext, folder: str, what: FolderAnswer, command: str) -> ApprovalRequest:
    """Return the question whether commands may write in a folder."""
    return ApprovalRequest(
        "terminal",
        f"let commands write in {printable(folder)}",
        f"{printable(command)}\nwrites in {printable(folder)}",
        what.rule,
        keep=partial(here.rules.allow_writing, folder),
        also=what.also,
    )


def widen_to_folder(here: ToolContext, asked: ApprovalRequest, targets: Sequence[str]) -> ApprovalRequest:
    """Return a file tool's question so that its answers cover the folder of the files, where that is one of the user's.

    A folder that is not there yet counts, too.
    """
    if here.remote_files() is not None:
        return asked
    folder = os.path.commonpath([os.path.dirname(target) for target in targets])  # noqa: PTH120 - text
    what = folder_answer(here.places, folder)
    if what is None:
        return asked
    summary = f"{asked.summary}, in the folder {printable(folder)}"
    keep = partial(here.rules.allow_writing, folder)
    return replace(asked, summary=summary, rule_key=what.rule, also=what.also, keep=keep)


def _rule(folder: str) -> str:
    return f"write in {folder}"


def _is_visible(places: PathRules, folder: str) -> bool:
    """Say whether it is in a folder of the home that is not hidden, or in one that the operator adds."""
    home = places.user_home
    if home != "/" and folder != home and is_inside(folder, home):
        name = folder[len(home) + 1 :]
        if not name.startswith(".") and places.unlisted_reason(folder) is None:
            return True
    return any(is_inside(folder, os.path.realpath(place)) for place in places.added)
