"""Checkpoints: the state of files before changes, in git repositories of the agent's home.

`Checkpoints` makes them before changes, finds and restores them; `workspace.shadow_repository` stores those of one
folder. `register_rollback` registers `/rollback`. Source: plugin contract §7.1.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.config.settings import Settings, section
from hermes_agent.contracts.command import FOR_OPERATORS, SlashCommand
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.caches import LruDict
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import printable, shorten
from hermes_agent.system.locks import KeyedLocks
from hermes_agent.tools import current_scope
from hermes_agent.workspace.checkpoint_files import EVERYTHING, Git, GitError, RepositoryTooLarge
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.file_rules import is_inside

if TYPE_CHECKING:
    from hermes_agent.workspace.shadow_repository import Checkpoint, RestoreResult, ShadowRepository


logger = logging.getLogger(__name__)

REMEMBERED = 1_000
"""Most turns, and most folders without checkpoints, in memory."""
"""Number of locks for folders; two folders may share a lock."""
RESTORE_S = 600.0
_SECRET = re.compile(
    r"\.env(\.(?!example|sample|template).*)?|.*\.(pem|key|p12|pfx|jks|keystore|kdbx)|id_(rsa|dsa|ecdsa|ed25519)"
    r"|\.(netrc|pgpass|npmrc|htpasswd|git-credentials)|(credentials|secrets?)(\.(json|ya?ml|toml))?",
    re.IGNORECASE,
)
"""Names of files that are in no checkpoint, because a copy of a secret is another place to lose it."""


class CheckpointLimits(LazyNamedTuple):
    """The settings `checkpoints.*`."""

    enabled: bool = False
    max_snapshots: int = 50
    """Most checkpoints of one folder."""
    max_file_size_mb: float = 10
    max_total_size_mb: float = 500
    retention_days: float = 30

    @classmethod
    def of(cls, settings: Settings) -> CheckpointLimits:
        """Read the settings."""
        return section(cls, settings.checkpoints)


class Checkpoints:
    """The checkpoints of one home. Safe for threads and processes."""

    def __init__(self, home: Path, places: PathRules, limits: CheckpointLimits, environ: Mapping[str, str]) -> None:
        self.limits = limits
        self.slack = 10
        """Number of checkpoints above `max_snapshots` at which the oldest are removed; packing takes time."""
        self.most_files = 20_000
        """Most files of a folder that is kept whole."""
        self._store = home / "checkpoints"
        self._places = places
        self._path = environ.get("PATH") or os.defpath
        self._turns: LruDict[tuple[str, str], Checkpoint | None] = LruDict(REMEMBERED)
        """The checkpoint of each turn and folder; None if there can be none."""
        self._too_much: LruDict[str, None] = LruDict(REMEMBERED)
        """Folders that have too much content for a checkpoint."""
        self._locks = KeyedLocks()
        self._explained = False

    @classmethod
    def from_config(cls, home: Path, settings: Settings, environ: Mapping[str, str]) -> Checkpoints:
        """Return the checkpoints of a home."""
        places = PathRules(str(home), str(Path.home()), environ.get("CREDENTIALS_DIRECTORY", ""))
        return cls(home, places, CheckpointLimits.of(settings), environ)

    # -- make checkpoints ----------------------------------------------------------------------------------------

    def before_change(self, target: str, cwd: str, *, session: str, turn: str, why: str) -> None:
        """Make the checkpoint of a turn before it changes a file, of the working directory if possible.

        Failures are logged; they do not prevent the change.

        Args:
            target: the resolved path; empty for anything in `cwd` (a command).
            cwd: the resolved working directory.
        """
        if not self.limits.enabled or self._git_is_missing():
            return
        whole = self._may_be_whole(cwd) and (not target or is_inside(target, cwd))
        if whole and self._keep(cwd, None, os.path.relpath(target, cwd) if target else EVERYTHING, session, turn, why):
            return
        if target and not is_inside(target, self._places.hermes_home):
            self._keep("/", (target.lstrip("/"),), target.lstrip("/"), session, turn, why)

    def is_complete(self, cwd: str, *, session: str, turn: str, why: str) -> bool:
        """Make the checkpoint of a turn for a directory; return whether it has every present file."""
        if not self.limits.enabled or self._git_is_missing() or not self._may_be_whole(cwd):
            return False
        if not self._keep(cwd, None, EVERYTHING, session, turn, why):
            return False
        checkpoint = self._turns.get((turn, cwd))
        shadow = self._shadow(cwd)
        try:
            with shadow.locked():
                return checkpoint is not None and shadow.has_all(checkpoint)
        except (GitError, OSError) as exc:
            logger.warning("checkpoint not verified: %s: %s", exc, cwd)
            return False

    def _may_be_whole(self, cwd: str) -> bool:
        """Return whether a folder may be a project: not the root, a home directory, or above one."""
        return cwd not in self._too_much and cwd != "/" and not is_inside(self._places.user_home, cwd)

    def _keep(
        self, folder: str, paths: tuple[str, ...] | None, changed: str, session: str, turn: str, why: str
    ) -> bool:
        key = (turn, folder if paths is None else f"/{paths[0]}")
        with self._locks.hold(folder):  # calls of one turn may run at once
            if not turn or key not in self._turns:
                self._turns[key] = self._made(folder, paths, session, turn, why)
            checkpoint = self._turns[key]
            if checkpoint is None:
                return False
            try:
                self._shadow(folder).note_change(checkpoint, changed)
            except OSError as exc:
                logger.warning("checkpoint: changes of the turn not recorded: %s", exc)
            return True

    def _made(self, folder: str, paths: tuple[str, ...] | None, session: str, turn: str, why: str) -> Checkpoint | None:
        shadow = self._shadow(folder)
        try:
            with shadow.locked():
                checkpoint = shadow.commit(paths=paths, session=session, turn=turn, why=why)
                listed = shadow.all()
                if len(listed) > self.limits.max_snapshots + self.slack:
                    shadow.drop(listed[self.limits.max_snapshots :])
                    shadow.pack()
                return checkpoint
        except (GitError, OSError) as exc:
            logger.warning("no checkpoint: %s: %s", exc, folder)
            if paths is None and isinstance(exc, RepositoryTooLarge):
                self._too_much[folder] = None
            return None

    def _find_git(self) -> str | None:
        import shutil  # with the first change of a file

        return shutil.which("git", path=self._path)

    def _git_is_missing(self) -> bool:
        if self._find_git():
            return False
        if not self._explained:
            self._explained = True
            logger.warning("no checkpoints: git is not installed")
        return True

    def _shadow(self, folder: str, *, limit_s: float = 0) -> ShadowRepository:
        from hermes_agent.workspace.shadow_repository import ShadowRepository  # for the first change of a file

        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        git = Git(self._find_git() or "git", str(self._store / name), folder, self._path)
        if limit_s:
            git.deadline = time.monotonic() + limit_s
        return ShadowRepository(
            self._store / name,
            git,
            lambda path, status: self._kept_out(folder, path, status),
            most_bytes=int(self.limits.max_total_size_mb * 1e6),
            most_files=self.most_files,
        )

    def _kept_out(self, folder: str, path: str, status: os.stat_result) -> bool:
        from hermes_agent.workspace.search_process import SKIPPED_DIRECTORIES  # a start makes no checkpoint

        full = f"{folder.rstrip('/')}/{path}"
        *above, name = path.split("/")
        return (
            status.st_size > self.limits.max_file_size_mb * 1e6
            or _SECRET.fullmatch(name) is not None
            or is_inside(full, self._places.hermes_home)
            or not set(SKIPPED_DIRECTORIES).isdisjoint(above)
            or self._places.secret_reason(full, status) is not None
        )

    # -- find checkpoints ----------------------------------------------------------------------------------------

    def _shadows(self) -> Iterator[ShadowRepository]:
        """Yield the repository of every folder, locked."""
        if not self._store.is_dir():
            return
        if not self._find_git():
            raise GitError("git is not installed, and checkpoints are git repositories")
        for place in sorted(self._store.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # one that was just begun
                folder = os.fsdecode((place / "folder").read_bytes())
                shadow = self._shadow(folder, limit_s=RESTORE_S)
                with shadow.locked():
                    yield shadow

    def all(self, near: str = "") -> list[Checkpoint]:
        """Return the checkpoints, newest first.

        Args:
            near: a resolved directory; only checkpoints that may have a file in it.
        """
        found = [checkpoint for shadow in self._shadows() for checkpoint in shadow.all() if _is_near(checkpoint, near)]
        return sorted(found, key=lambda checkpoint: checkpoint.at, reverse=True)

    def choose(self, which: str, near: str = "") -> Checkpoint:
        """Return the checkpoint that a user names by its number in `all(near)`, from 1, or by its id.

        A number in the list has priority; an id of any folder may be abbreviated to four characters. Among equal ids,
        one of this folder is chosen.

        Args:
            near: the resolved directory of the list that the user sees; empty for the list of all.

        Raises:
            GitError: there is no such checkpoint, or several match.
        """
        return choose_checkpoint(self.all(near), which, self.all if near else tuple)

    @contextlib.contextmanager
    def _found(self, which: Checkpoint | str) -> Iterator[tuple[ShadowRepository, Checkpoint]]:
        """Yield a checkpoint, given itself or by its id, with its locked repository."""
        wanted = self.choose(which) if isinstance(which, str) else which
        for shadow in self._shadows():
            for checkpoint in shadow.all() if shadow.git.folder == wanted.folder else ():
                if checkpoint.ref == wanted.ref:
                    yield shadow, checkpoint
                    return
        raise GitError(f"the checkpoint {wanted.id} is gone", hint="`hermes rollback list --all` lists them.")

    def diff(self, which: Checkpoint | str, paths: Collection[str] = ()) -> str:
        """Return the changes since a checkpoint as a patch.

        Args:
            which: the checkpoint, or what `choose` takes.

        Raises:
            GitError: there is no such checkpoint, or git fails.
        """
        with self._found(which) as (shadow, checkpoint):
            return shadow.diff(checkpoint, _below(checkpoint, paths))

    def restore(self, which: Checkpoint | str, paths: Collection[str] = (), *, session: str = "") -> RestoreResult:
        """Restore files, after a checkpoint of the present state.

        Args:
            which: the checkpoint, or what `choose` takes.
            paths: resolved files or folders; empty for all of the checkpoint.
            session: the session of the request; empty outside a session.

        Raises:
            GitError: there is no such checkpoint, or a file cannot be restored.
        """
        with self._found(which) as (shadow, checkpoint):
            return shadow.restore(checkpoint, _below(checkpoint, paths) or None, session=session)

    def undo(self, turn: str) -> list[RestoreResult]:
        """Restore what a turn changed: the files that its tools named, and all files of folders with commands.

        Later changes by tools of other conversations stay.
        """
        done = []
        for shadow in self._shadows() if turn else ():
            listed = shadow.all()
            own = [checkpoint for checkpoint in reversed(listed) if checkpoint.turn == turn]
            for checkpoint in {checkpoint.paths: checkpoint for checkpoint in reversed(own)}.values():
                changed = shadow.noted_changes(checkpoint)
                others = {
                    path
                    for other in listed
                    if other.at >= checkpoint.at and other.session != checkpoint.session and other.session
                    for path in shadow.noted_changes(other)
                }
                paths = None if EVERYTHING in changed else changed
                restored = shadow.restore(checkpoint, paths, without=others)
                if restored.before:
                    done.append(restored)
        return done

    def prune(self) -> int:
        """Remove checkpoints beyond the limits and of deleted folders; return the number of removed ones."""
        count = 0
        if not self._store.is_dir():
            return 0
        oldest = time.time() - self.limits.retention_days * 86_400
        for shadow in self._shadows():
            listed = shadow.all()
            old = [
                checkpoint
                for number, checkpoint in enumerate(listed)
                if checkpoint.at < oldest or number >= self.limits.max_snapshots
            ]
            shadow.drop(old)
            if len(old) == len(listed) and not Path(shadow.git.folder).is_dir():
                import shutil  # as in `_find_git`

                shutil.rmtree(shadow.repository)
            elif old:
                shadow.pack()
            count += len(old)
        while _size(self._store) > self.limits.max_total_size_mb * 1e6 and (every := self.all()):
            going = {checkpoint.ref + checkpoint.folder for checkpoint in every[-max(1, len(every) // 4) :]}
            for shadow in self._shadows():
                shadow.drop([checkpoint for checkpoint in shadow.all() if checkpoint.ref + checkpoint.folder in going])
                shadow.pack()
            count += len(going)
        return count


def choose_checkpoint(
    listed: Sequence[Checkpoint], which: str, others: Callable[[], Sequence[Checkpoint]] = tuple
) -> Checkpoint:
    """Return the checkpoint of a list that a user names, as `Checkpoints.choose` describes.

    Args:
        others: returns further checkpoints that an id may name.

    Raises:
        GitError: there is no such checkpoint, or several begin like that.
    """
    found = [checkpoint for checkpoint in listed if checkpoint.id == which]
    number = int(which) if not found and re.fullmatch(r"[0-9]{1,9}", which) else 0
    if 1 <= number <= len(listed):
        return listed[number - 1]
    found = found or _beginning(listed, which) or _beginning(others(), which)
    if len({(checkpoint.id, checkpoint.folder) for checkpoint in found}) > 1:
        names = ", ".join(sorted(f"{checkpoint.id} ({checkpoint.folder})" for checkpoint in found[:5]))
        raise GitError(f"several checkpoints begin with {which!r}: {names}", hint="Write more of the id.")
    if not found:
        numbers = f"numbers go from 1 to {len(listed)}, and " if listed else ""
        raise GitError(
            f"there is no checkpoint {which!r}: {numbers}an id has at least four characters",
            hint="`hermes rollback list` shows both, `hermes rollback list --all` the ids of all folders.",
        )
    return found[0]


def _size(place: Path) -> int:
    return sum(path.lstat().st_size for path in place.rglob("*") if path.is_file())


def _beginning(checkpoints: Collection[Checkpoint], id_: str) -> list[Checkpoint]:
    """Return the checkpoints with an id that begins so; a longer commit id is cut."""
    if not re.fullmatch(r"[0-9a-f]{4,40}", id_):
        return []
    return [checkpoint for checkpoint in checkpoints if checkpoint.id.startswith(id_[:10])]


def _is_near(checkpoint: Checkpoint, near: str) -> bool:
    if not near:
        return True
    if checkpoint.paths is not None:
        return any(is_inside(f"{checkpoint.folder.rstrip('/')}/{path}", near) for path in checkpoint.paths)
    return is_inside(near, checkpoint.folder) or is_inside(checkpoint.folder, near)


def _below(checkpoint: Checkpoint, paths: Collection[str]) -> list[str]:
    """Return resolved paths relative to the folder of the checkpoint.

    Raises:
        GitError: a path is outside the folder of the checkpoint.
    """
    for path in paths:
        if not is_inside(path, checkpoint.folder):
            raise GitError(f"{path} is not in {checkpoint.folder}, which the checkpoint {checkpoint.id} is of")
    return [os.path.relpath(path, checkpoint.folder) for path in paths]


MOST = 20


def checkpoint_rows(checkpoints: Sequence[Checkpoint], *, folders: bool, numbers: bool = True) -> list[str]:
    """Return a line for each checkpoint, with its number from 1.

    Args:
        folders: whether the lines name the folder.
        numbers: whether they are numbered; `Checkpoints.choose` takes numbers of the list of one folder only.
    """
    lines = []
    for number, checkpoint in enumerate(checkpoints, 1):
        what = ", ".join(f"/{path}" for path in checkpoint.paths) if checkpoint.paths is not None else checkpoint.folder
        where = f"  {printable(what)}" if folders or checkpoint.paths is not None else ""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.at))
        first = f"{number:>3}  " if numbers else ""
        lines.append(
            f"{first}{checkpoint.id}  {when}  before {printable(checkpoint.why.removeprefix('before '))[:100]}{where}"
        )
    return lines


def restore_text(done: Sequence[RestoreResult]) -> str:
    """Return a text about what was restored; empty for nothing."""
    lines = []
    for result in done:
        count = len(result.written) + len(result.removed)
        if not result.before:
            lines.append("Nothing is different.")
            continue
        lines.append(f"Put back in {printable(result.checkpoint.folder)}:")
        names = [
            *(f"  {printable(path)}" for path in result.written),
            *(f"  {printable(path)} (removed)" for path in result.removed),
        ]
        lines += [*names[:MOST], *([f"  … and {count - MOST} more"] if count > MOST else [])]
        lines.append(f"What was there is kept: hermes rollback restore {result.before}")
    return "\n".join(lines)


SHOWN = 10
DIFF_CHARS = 8_000
CHECKPOINTS_OFF = "No checkpoints are made; to have them: hermes config set checkpoints.enabled true"


def register_rollback(ctx: Registrar, checkpoints: Checkpoints, default_cwd: Path, sees: Callable[[str], bool]) -> None:
    """Register `/rollback`.

    Args:
        sees: returns whether a session belongs to the caller; checkpoints of others are not listed, shown or restored.
    """
    ctx.register_slash_command(
        SlashCommand(
            "rollback",
            partial(_run, checkpoints, default_cwd, sees),
            "List the checkpoints of this folder, show what changed since one, put files back",
            "[diff] [NUMBER|ID [FILE]]",
            during_turn=False,
            where=FOR_OPERATORS,
            right="known",
            values=("diff",),
        )
    )


def _run(checkpoints: Checkpoints, default_cwd: Path, sees: Callable[[str], bool], raw_args: str) -> str:
    scope = current_scope.get()
    cwd = str(default_cwd if scope is None else scope.cwd)
    words = raw_args.split(maxsplit=1)
    try:
        listed = [checkpoint for checkpoint in checkpoints.all(cwd) if sees(checkpoint.session)]
        if not listed:
            return "There are no checkpoints of this folder yet." if checkpoints.limits.enabled else CHECKPOINTS_OFF
        if not words:
            return "\n".join(
                [
                    *checkpoint_rows(listed[:SHOWN], folders=False),
                    "/rollback NUMBER (or ID) puts everything back as it was.",
                ]
            )
        if words[0] == "diff":
            which, *file = words[1].split(maxsplit=1) if words[1:] else ["1"]
            chosen = choose_checkpoint(listed, which)
            diff = checkpoints.diff(chosen, [checkpoint_path(name, cwd) for name in file])
            return shorten(diff, DIFF_CHARS + 1) if diff else "Nothing is different."
        chosen = choose_checkpoint(listed, words[0])
        session = "" if scope is None else scope.session_id
        return restore_text(
            [checkpoints.restore(chosen, [checkpoint_path(name, cwd) for name in words[1:]], session=session)]
        )
    except GitError as trouble:
        return f"{trouble.message}. /rollback lists what there is."


def checkpoint_path(name: str, cwd: str) -> str:
    """Return the path of a file in checkpoints; a link counts itself, not its target."""
    directory, last = os.path.split(os.path.normpath(os.path.join(cwd, name)))  # noqa: PTH118 - as text
    return f"{os.path.realpath(directory).rstrip('/')}/{last}"
