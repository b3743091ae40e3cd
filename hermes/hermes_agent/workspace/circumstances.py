"""Where a tool of this package works: the working directory of the call, the rules about paths, the stop signal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.core.errors import ToolFailed
from hermes_agent.tools import current_scope
from hermes_agent.workspace.places import Places, is_inside, resolve

__all__ = ["Circumstances"]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the tools share.

    Attributes:
        places: which paths hold credentials, and where writing needs a person's word.
        default_cwd: working directory of a call without a scope (`terminal.cwd`).
    """

    places: Places
    default_cwd: Path
    moved: Callable[[str], str] = lambda task_id: ""
    """Where a task's last command ended (`Shells.cwd`)."""

    def cwd(self) -> str:
        """Return the resolved working directory of this conversation."""
        scope = current_scope.get()
        return resolve(".", str(self.default_cwd if scope is None else scope.cwd), self.places.user_home)

    def task_id(self) -> str:
        """Return the task of this call; empty outside one."""
        scope = current_scope.get()
        return "" if scope is None else scope.task_id

    def at(self) -> str:
        """Return where relative paths count from: where the last command ended, as long as that is in `cwd`."""
        cwd, moved = self.cwd(), self.moved(self.task_id())
        return moved if moved and is_inside(moved, cwd) and Path(moved).is_dir() else cwd

    def resolve(self, path: str) -> str:
        """Return the real path that an argument means.

        Raises:
            ToolFailed: the path cannot be one (half a character in it, too long).
        """
        try:
            return resolve(path, self.at(), self.places.user_home)
        except (OSError, ValueError) as exc:
            raise ToolFailed(f"{path[:200]!r} is not a path: {exc}") from exc

    def cancelled(self) -> threading.Event:
        """Return the event that is set when the turn is interrupted."""
        scope = current_scope.get()
        return threading.Event() if scope is None else scope.cancelled

    def shown(self, path: str) -> str:
        """Return a resolved path as the model should write it: relative where that is shorter and means the same."""
        cwd = self.at().rstrip("/") + "/"
        shown = path[len(cwd) :] if path.startswith(cwd) else path
        return os.fsencode(shown).decode("utf-8", "replace")  # a name need not be UTF-8
