"""Files of a plugin that its pin covers: their hashes, and how the present files differ.

A start reads no unchanged file: size, times and inode of each file are compared with the values recorded when it was
hashed, as git does. `hashlib` is imported only if a file must be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from hermes_agent.core.lazy_types import LazyNamedTuple

MAX_FILES = 20_000
SKIPPED = frozenset({"__pycache__", ".git"})
"""Folders that no pin covers: the loader reads no bytecode of a pinned plugin."""
CODE = (".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".bash", ".js", ".mjs", ".cjs", ".pl", ".rb", ".exe")
"""Suffixes of files that Python or another program may run."""
MANIFESTS = ("plugin.yaml", "plugin.yml", "plugin.json", "mcp.json")
EXAMPLE = ".example"


class PinnedFile(LazyNamedTuple):
    """State of a file when it was hashed."""

    sha256: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    def is_at(self, info: os.stat_result) -> bool:
        """Return whether size, times and inode are those of the hashed file."""
        return (self.size, self.mtime_ns, self.ctime_ns, self.inode) == _stamp(info)


class PinChanges(LazyNamedTuple):
    """Differences between a plugin's files and its pin: relative paths, sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    @property
    def text(self) -> str:
        """The first four files in one line: `tools.py, new extra.py, gone old.py`."""
        words = [*self.changed, *(f"new {n}" for n in self.added), *(f"gone {n}" for n in self.removed)]
        more = f" and {len(words) - 4} more" if len(words) > 4 else ""
        return ", ".join(words[:4]) + more


class TooManyFiles(Exception):
    """The directory has too many files to be pinned; the text says so."""


def pin_files(directory: str) -> dict[str, PinnedFile]:
    """Hash every file of the plugin, except data files with a template `NAME.example` in the same folder.

    Raises:
        TooManyFiles: there are more than `MAX_FILES`.
        OSError: a file cannot be read.
    """
    found = dict(_walk(directory))
    return {
        name: PinnedFile(_sha256(f"{directory}/{name}"), *_stamp(info))
        for name, info in sorted(found.items())
        if is_code(name, info) or f"{name}{EXAMPLE}" not in found
    }


def compare_with_pins(
    directory: str, pinned: Mapping[str, PinnedFile], *, code_only: bool = False
) -> tuple[PinChanges, dict[str, PinnedFile]]:
    """Return how the files differ from `pinned`, and new stamps for files with the same content.

    A new file counts only if it may be run (`is_code`); other new files are the plugin's data.

    Args:
        code_only: ignore also those pinned files that may not be run.

    Raises:
        TooManyFiles: there are more than `MAX_FILES`.
        OSError: a file that may have changed cannot be read.
    """
    added, changed, touched, seen = [], [], {}, set()
    for name, info in _walk(directory):
        before = pinned.get(name)
        if before is None:
            if is_code(name, info) or _is_package_skill(directory, name):
                added.append(name)
            continue
        seen.add(name)
        if before.is_at(info) or (code_only and not is_code(name, info)):
            continue
        sha256 = _sha256(f"{directory}/{name}")
        if sha256 == before.sha256:
            touched[name] = PinnedFile(sha256, *_stamp(info))
        else:
            changed.append(name)
    removed = (n for n in pinned if n not in seen and not (code_only and not _has_code_name(n)))
    return PinChanges(tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed))), touched


def changes_between(before: Mapping[str, PinnedFile], now: Mapping[str, PinnedFile]) -> PinChanges:
    """Return how the content `now` differs from `before`."""
    return PinChanges(
        tuple(sorted(set(now) - set(before))),
        tuple(sorted(n for n in now if n in before and now[n].sha256 != before[n].sha256)),
        tuple(sorted(set(before) - set(now))),
    )


def unpinned_files(directory: str, pinned: Mapping[str, PinnedFile]) -> list[str]:
    """Return the data files that no pin covers, which the plugin or the operator created."""
    return sorted(name for name, info in _walk(directory) if name not in pinned and not is_code(name, info))


def is_code(name: str, info: os.stat_result) -> bool:
    """Return whether the file may be run, by its name or its mode; a manifest counts as code."""
    return _has_code_name(name) or bool(info.st_mode & 0o111)


def _is_package_skill(directory: str, name: str) -> bool:
    """Return whether a file is a skill of a portable package, which is used without code that names it."""
    parts = name.split("/")
    return (
        len(parts) == 3
        and (parts[0], parts[2]) == ("skills", "SKILL.md")
        and os.path.exists(f"{directory}/plugin.json")  # noqa: PTH110
        and not any(os.path.lexists(f"{directory}/plugin.{ending}") for ending in ("yaml", "yml"))
    )


def content_hash(pinned: Mapping[str, PinnedFile]) -> str:
    """Return the SHA-256 of the paths and hashes of all files."""
    import hashlib  # a few ms that a start without changes saves

    digest = hashlib.sha256()
    for name in sorted(pinned):
        digest.update(f"{pinned[name].sha256}  {name}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _has_code_name(name: str) -> bool:
    return name.endswith(CODE) or name in MANIFESTS


def _stamp(info: os.stat_result) -> tuple[int, int, int, int]:
    return (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)


def _sha256(path: str) -> str:
    import hashlib  # as above

    with open(path, "rb") as file:  # noqa: PTH123 - thousands of files
        return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield relative path and state of every regular file; linked directories are visited once."""
    waiting, entered, count = [""], {os.path.realpath(directory)}, 0
    while waiting:
        below = waiting.pop()
        with os.scandir(f"{directory}/{below}" if below else directory) as entries:
            for entry in entries:
                name = f"{below}/{entry.name}" if below else entry.name
                if entry.is_dir():
                    if entry.name in SKIPPED:
                        continue
                    real = os.path.realpath(entry.path) if entry.is_symlink() else ""
                    if real not in entered:
                        waiting.append(name)
                        if real:
                            entered.add(real)
                elif entry.is_file():  # no device, no pipe; a dangling link is no file
                    count += 1
                    if count > MAX_FILES:
                        raise TooManyFiles(f"{directory} has more than {MAX_FILES} files")
                    yield name, entry.stat()
