"""The checkpoints of one folder: a bare git repository with the folder as its work tree.

It is below `HERMES_HOME` and does not use a repository in the folder. Each checkpoint is a commit without parents under
`refs/checkpoints/MILLISECONDS`, so that the removal of a checkpoint affects no other.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import PRIVATE, hold_directory, open_beneath, open_directory, replace_at
from hermes_agent.system.locks import FileLock, LockTimeout
from hermes_agent.workspace.checkpoint_files import (
    EVERYTHING,
    SEEN,
    CheckpointContent,
    Git,
    GitError,
    RepositoryTooLarge,
)

MOST_LIST_BYTES = 8_000_000
MOST_NAMED = 1_000
"""Most files that a checkpoint names as left out or private; with more private files, all count as private."""
MOST_NESTED = 50
"""Most nested repositories of which the files are included."""
LOCK_S = 60.0
_REFS = "refs/checkpoints/"
_ATTRIBUTES = b"* -text -ident -filter -working-tree-encoding\n"


class Checkpoint(LazyNamedTuple):
    """The state of files at one time."""

    id: str
    """A unique prefix of the commit id."""
    ref: str
    at: float
    folder: str
    paths: tuple[str, ...] | None
    """The only files in it, as paths below the folder; None for all files."""
    session: str
    turn: str
    why: str
    left_out: tuple[str, ...]
    """Files that were left out: too large, or secret."""
    private: tuple[str, ...]
    """Files that only their owner could read, which git does not store; `EVERYTHING` for many."""


class RestoreResult(LazyNamedTuple):
    """The result of a restore."""

    checkpoint: Checkpoint
    before: str
    """Id of the checkpoint of the state before; empty when nothing was different."""
    written: list[str]
    removed: list[str]


class ShadowRepository:
    """The repository of one folder; use it within `locked`.

    Args:
        repository: its directory; made when missing.
        kept_out: returns whether to leave out a file, by its path below the folder and its status.
        most_bytes: size of the files above which no checkpoint is made.
        most_files: number of files above which no checkpoint of the whole folder is made.
    """

    def __init__(
        self,
        repository: Path,
        git: Git,
        kept_out: Callable[[str, os.stat_result], bool],
        *,
        most_bytes: int,
        most_files: int,
    ) -> None:
        self.repository = repository
        self.git = git
        self._kept_out = kept_out
        self._most_bytes, self._most_files = most_bytes, most_files

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the repository among all processes, and remove unfinished work of a dead process.

        Raises:
            GitError: another process holds the lock too long.
        """
        self.repository.mkdir(0o700, parents=True, exist_ok=True)
        lock = FileLock(self.repository / "lock", timeout_s=LOCK_S, subject=f"the store of {self.git.folder}")
        try:
            lock.acquire()
        except LockTimeout as exc:
            raise GitError(f"the checkpoints of {self.git.folder} are in use: {exc.message}") from None
        with lock:
            (self.repository / "index.lock").unlink(missing_ok=True)
            if not (self.repository / "folder").exists():
                self.git("init", "--quiet", "--bare", "--template=")
                (self.repository / "info").mkdir(exist_ok=True)
                (self.repository / "info" / "attributes").write_bytes(_ATTRIBUTES)
                (self.repository / "folder").write_bytes(os.fsencode(self.git.folder))
            yield

    def commit(self, *, paths: Collection[str] | None, session: str, turn: str, why: str) -> Checkpoint:
        """Make a checkpoint of the folder, or of some files in it only.

        Raises:
            GitError: the folder has too much content, or git fails.
        """
        tree, left_out, private = self.snapshot(paths)
        about: dict[str, object] = {"session": session, "turn": turn, "why": why, "left_out": left_out[:MOST_NAMED]}
        about["private"] = private
        if paths is not None:
            about["paths"] = sorted(paths)
        return self._commit(tree, about)

    def snapshot(self, paths: Collection[str] | None, more: Iterable[str] = ()) -> tuple[str, list[str], list[str]]:
        """Return the tree of the present files, the files that were left out, and the private ones.

        Args:
            more: files to include even if they are ignored or large.
        """
        try:
            top = open_directory(self.git.folder)
        except OSError:
            if os.path.isdir(self.git.folder):  # noqa: PTH112 - text
                raise
            return self.git("mktree").decode().strip(), [], []  # it was deleted whole
        try:
            content = CheckpointContent(top, self.repository, self.git, self._kept_out)
            for path in self._present() if paths is None else paths:
                content.add(path)
            if content.total > self._most_bytes:
                raise RepositoryTooLarge(f"{self.git.folder} holds {content.total:,} bytes: too much for a checkpoint")
            for path in more:
                content.add(path, always=True)
            entries = content.stored()
        finally:
            os.close(top)
        (self.repository / "index").unlink(missing_ok=True)
        self.git("update-index", "-z", "--index-info", stdin=entries)
        private = content.private if len(content.private) <= MOST_NAMED else [EVERYTHING]
        return self.git("write-tree").decode().strip(), content.left_out, private

    def _present(self) -> list[str]:
        """Return the files below the folder that are not ignored, also in nested repositories."""
        found: list[str] = []
        waiting = [""]
        for below in waiting:
            place = f"{self.git.folder}/{below}".rstrip("/")
            words = ("ls-files", "-z", "--others", "--exclude-standard")
            listed = self.git(
                *words, most=MOST_LIST_BYTES, folder=place, env={"GIT_INDEX_FILE": f"{self.repository}/none"}
            )
            for name in _names(listed):
                if name.endswith("/"):
                    waiting.append(f"{below}{name}")
                else:
                    found.append(f"{below}{name}")
            if len(found) > self._most_files or len(listed) >= MOST_LIST_BYTES or len(waiting) > MOST_NESTED:
                text = f"{self.git.folder} has over {self._most_files:,} files: too many for a checkpoint"
                raise RepositoryTooLarge(text)
        return found

    def _commit(self, tree: str, about: dict[str, object]) -> Checkpoint:
        at = time.time()
        commit = self.git("commit-tree", tree, stdin=json.dumps(about).encode()).decode().strip()
        number = int(at * 1000)
        while True:
            ref = f"{_REFS}{number:013}"
            try:
                self.git("update-ref", ref, commit, "0" * 40)
                break
            except GitError:
                if not (self.repository / ref).exists():
                    raise
                number += 1
        return self._checkpoint(ref, commit, json.dumps(about))

    def _checkpoint(self, ref: str, commit: str, about: str) -> Checkpoint:
        stored = json.loads(about)
        paths = stored.get("paths")
        return Checkpoint(
            commit[:10],
            ref,
            int(ref.removeprefix(_REFS)) / 1000,
            self.git.folder,
            None if paths is None else tuple(paths),
            stored["session"],
            stored["turn"],
            stored["why"],
            tuple(stored["left_out"]),
            tuple(stored.get("private", ())),
        )

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints, newest first."""
        form = "%(refname) %(objectname) %(contents:subject)"
        lines = self.git("for-each-ref", "--sort=-refname", f"--format={form}", _REFS).decode().splitlines()
        return [self._checkpoint(*line.split(" ", 2)) for line in lines]

    def note_change(self, checkpoint: Checkpoint, path: str) -> None:
        """Record that the turn of a checkpoint may change a path (or `EVERYTHING`)."""
        place = self.repository / "changed"
        place.mkdir(exist_ok=True)
        with (place / checkpoint.ref.removeprefix(_REFS)).open("a") as file:
            file.write(json.dumps(path) + "\n")

    def noted_changes(self, checkpoint: Checkpoint) -> set[str]:
        """Return the paths that the turn of a checkpoint may have changed."""
        try:
            lines = (self.repository / "changed" / checkpoint.ref.removeprefix(_REFS)).read_text().splitlines()
        except FileNotFoundError:
            return set()
        return {json.loads(line) for line in lines if line.endswith('"')}

    def diff(self, checkpoint: Checkpoint, paths: Collection[str] = ()) -> str:
        """Return the changes since a checkpoint as a patch."""
        now, *_ = self.snapshot(checkpoint.paths, self._existing(self._entries(checkpoint.id)))
        words = ("diff", "--no-color", "--no-ext-diff", "--no-renames", checkpoint.id, now, "--", *sorted(paths))
        return self.git(*words, most=2_000_000).decode("utf-8", "replace")

    def restore(
        self,
        checkpoint: Checkpoint,
        paths: Collection[str] | None = None,
        *,
        without: Collection[str] = (),
        session: str = "",
    ) -> RestoreResult:
        """Restore files, after a checkpoint of the present state.

        Later files are deleted; ignored files, and those left out of the checkpoint, stay.

        Args:
            paths: the files, or folders; None for all.
            without: files that stay as they are.
            session: the session of the checkpoint of the present state.

        Raises:
            GitError: a file cannot be restored; those before it are restored.
        """
        then = self._entries(checkpoint.id)
        tree, _, private = self.snapshot(checkpoint.paths, self._existing(then))
        now = self._entries(tree)
        chosen = [
            path
            for path in sorted({*then, *now})
            if then.get(path) != now.get(path) and path not in without and (paths is None or _is_below(path, paths))
        ]
        written = [path for path in chosen if path in then]
        gone = [path for path in chosen if path not in then and path not in checkpoint.left_out]
        if not written and not gone:
            return RestoreResult(checkpoint, "", [], [])
        about: dict[str, object] = {"session": session, "turn": "", "why": f"before going back to {checkpoint.id}"}
        about |= {
            "left_out": [],
            "private": private,
            **({} if checkpoint.paths is None else {"paths": list(checkpoint.paths)}),
        }
        before = self._commit(tree, about)
        for path in [path for path in gone if any(_conflict(path, other) for other in written)]:
            self._remove(path)
        for path in written:
            self._write(path, *then[path], private=not {path, EVERYTHING}.isdisjoint(checkpoint.private))
        ignored = self._ignored(gone) if checkpoint.paths is None else set()  # as the old rules say
        gone = [path for path in gone if path not in ignored]
        for path in gone:
            self._remove(path)
        return RestoreResult(checkpoint, before.id, written, gone)

    def has_all(self, checkpoint: Checkpoint) -> bool:
        """Return whether every file of the folder is in a checkpoint, also ignored ones and those of `.git`."""
        entries = self._entries(checkpoint.id)
        for directory, folders, names in os.walk(self.git.folder):
            links = [name for name in folders if os.path.islink(f"{directory}/{name}")]  # noqa: PTH114 - text
            for name in (*names, *links):
                if os.path.relpath(f"{directory}/{name}", self.git.folder) not in entries:
                    return False
        return True

    def _entries(self, tree: str) -> dict[str, tuple[str, str]]:
        """Return mode and object id by path."""
        found: dict[str, tuple[str, str]] = {}
        for line in _names(self.git("ls-tree", "-r", "-z", "--full-tree", tree)):
            head, _, path = line.partition("\t")
            mode, _, name = head.split(" ")
            found[path] = mode, name
        return found

    def _existing(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that are files or links, and not below a link."""
        found = []
        with contextlib.suppress(OSError), hold_directory(self.git.folder, make=False) as top:
            for path in paths:
                with contextlib.suppress(OSError):
                    handle = open_beneath(top, path, os.O_PATH)
                    mode = os.fstat(handle).st_mode
                    os.close(handle)
                    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                        found.append(path)
        return found

    def _ignored(self, paths: list[str]) -> set[str]:
        if not paths:
            return set()
        names = _joined(f"./{path}" for path in paths)  # not taken for `:(magic)`
        words = ("check-ignore", "-z", "--no-index", "--stdin")
        try:
            found = self.git(*words, stdin=names, env={"GIT_LITERAL_PATHSPECS": "0"})
        except GitError as exc:
            if "exit status 1" in str(exc):  # none is
                return set()
            raise
        return {name.removeprefix("./") for name in _names(found)}

    def _write(self, path: str, mode: str, name: str, *, private: bool) -> None:
        data = self.git("cat-file", "blob", name)
        directory, _, last = f"{self.git.folder.rstrip('/')}/{path}".rpartition("/")
        try:
            with hold_directory(directory) as handle:
                if mode == "120000":
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(last, dir_fd=handle)
                    os.symlink(data, last, dir_fd=handle)
                    return
                replace_at(handle, last, data, mode=PRIVATE if private and not _is_file(handle, last) else None)
                _set_executable(handle, last, mode == "100755")
        except OSError as exc:
            raise GitError(f"{path} cannot be put back: {exc.strerror or exc}") from exc

    def _remove(self, path: str) -> None:
        directory, _, last = f"{self.git.folder.rstrip('/')}/{path}".rpartition("/")
        with contextlib.suppress(OSError), hold_directory(directory, make=False) as handle:
            os.unlink(last, dir_fd=handle)
        while len(directory) > len(self.git.folder):
            directory, _, last = directory.rpartition("/")
            try:
                with hold_directory(directory, make=False) as handle:
                    os.rmdir(last, dir_fd=handle)
            except OSError:  # something is in it
                return

    def drop(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Remove checkpoints; `pack` frees their space."""
        for checkpoint in checkpoints:
            self.git("update-ref", "-d", checkpoint.ref)
            (self.repository / "changed" / checkpoint.ref.removeprefix(_REFS)).unlink(missing_ok=True)

    def pack(self) -> None:
        """Pack the needed objects, and remove the others."""
        for name in ("index", SEEN):  # it would keep its objects, and this one names them
            (self.repository / name).unlink(missing_ok=True)
        self.git("gc", "--quiet", "--prune=now")


def _is_file(directory: int, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False


def _set_executable(directory: int, name: str, wanted: bool) -> None:
    handle = open_beneath(directory, name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        now = os.fstat(handle).st_mode
        if bool(now & stat.S_IXUSR) != wanted:
            os.fchmod(handle, now & 0o666 | (now & 0o444) >> 2 if wanted else now & 0o666)
    finally:
        os.close(handle)


def _names(data: bytes) -> list[str]:
    return [os.fsdecode(name) for name in data.split(b"\0") if name]


def _joined(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _conflict(path: str, other: str) -> bool:
    """Return whether of two paths one is a directory where the other is a file."""
    return path.startswith(f"{other}/") or other.startswith(f"{path}/")


def _is_below(path: str, places: Collection[str]) -> bool:
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") or place in ("", ".") for place in places)
