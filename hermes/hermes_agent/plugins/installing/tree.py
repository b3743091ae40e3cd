"""Copy a tree of a stranger: plain files and folders, links that stay inside, bounded in size and number."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from hermes_agent.core.errors import UserError

__all__ = ["MAX_BYTES", "MAX_FILES", "Budget", "copy_tree", "stays_inside"]

MAX_FILES = 10_000
MAX_BYTES = 256 * 1024 * 1024
LEFT_OUT = frozenset({".git", "__pycache__", ".hg", ".svn"})


class Budget:
    """How much a plugin may still bring.

    Args:
        name: of the source, for the refusal.
    """

    def __init__(self, name: str, files: int = MAX_FILES, size: int = MAX_BYTES) -> None:
        self._name, self._files, self._size = name, files, size
        self._limits = f"at most {files} files and {size // 1024 // 1024} MB are taken"

    def spend(self, size: int, *, files: int = 1) -> None:
        """Take one more file of `size` bytes.

        Raises:
            UserError: it is too much.
        """
        self._files -= files
        self._size -= size
        if self._files < 0 or self._size < 0:
            raise UserError(f"{self._name} is too large for a plugin: {self._limits}")


def copy_tree(source: Path, target: Path, name: str) -> None:
    """Copy the directory `source` to `target`, which is made; version control and bytecode stay behind.

    Raises:
        UserError: something in it is no file, folder or inner link, or there is too much of it.
    """
    budget = Budget(name)
    root = source.resolve()
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        into = target / here.relative_to(root)
        into.mkdir(mode=0o755, parents=True, exist_ok=True)
        for entry in sorted(folders):
            if entry in LEFT_OUT:
                folders.remove(entry)
            elif (here / entry).is_symlink():
                folders.remove(entry)
                files.append(entry)
        for entry in files:
            _copy(here / entry, into / entry, root, budget)


def _copy(path: Path, target: Path, root: Path, budget: Budget) -> None:
    info = path.lstat()
    name = path.relative_to(root)
    if stat.S_ISLNK(info.st_mode):
        leads = os.readlink(path)  # noqa: PTH115
        if not stays_inside(name, leads):
            raise UserError(f"{name} is a link to {leads!r}, out of the plugin", hint="Such a plugin is not installed.")
        budget.spend(0)
        target.symlink_to(leads)
    elif stat.S_ISREG(info.st_mode):
        budget.spend(info.st_size)
        shutil.copyfile(path, target)
        target.chmod(0o755 if info.st_mode & 0o111 else 0o644)
    else:
        raise UserError(f"{name} is neither a file nor a folder", hint="Such a plugin is not installed.")


def stays_inside(name: Path, leads: str) -> bool:
    """Say whether a link at the relative path `name` leads to a place inside of the same tree."""
    if not leads or leads.startswith("/"):
        return False
    reached = os.path.normpath(os.path.join(name.parent, leads))  # noqa: PTH118
    return reached != ".." and not reached.startswith("../")
