"""Instructions of the project's folders: told with the result of the first call that touches one.

The system prompt of a session stays as it is; it has the files of the working directory (`agent.context_files`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.agent.context_files import Found, instructions_in, root_of

__all__ = ["FolderContext"]

ARGUMENTS = {"terminal": ("workdir",)} | dict.fromkeys(("patch", "read_file", "search_files", "write_file"), ("path",))
"""By tool: the arguments that name a file or a folder."""
MAX_WORDS = 16
"""Words of a command that are looked at."""
MAX_ASKED = 4096
# begins where a word does: otherwise the time for a word without a slash grows with the square of its length
_WORD = re.compile(r"(?<![\w.@+~-])[\w.@+~-]*+/[\w./@+-]*|(?<=\bcd )[\w.@+-]+")
_HEAD = "[The project's own instructions for {folder}, from a file there:]"


class FolderContext:
    """Of one conversation.

    Args:
        cwd: its working directory.
    """

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._asked: set[str] = set()
        self._looked: set[Path] = set()
        self._lock = threading.Lock()

    def named(self, tool: str, arguments: Mapping[str, Any]) -> list[str]:
        """Return the paths that a call names and no earlier one did."""
        if tool not in ARGUMENTS:
            return []
        words = [arguments.get(name) for name in ARGUMENTS[tool]]
        if tool == "terminal":
            words += _WORD.findall(str(arguments.get("command") or ""))[:MAX_WORDS]
        found = [word for word in words if isinstance(word, str) and word and word not in self._asked]
        if len(self._asked) < MAX_ASKED:
            self._asked.update(found)
        return found

    def told(self, paths: Iterable[str], said: Iterable[str]) -> Found:
        """Return what the folders on the way to some files say that was not told in this session; in a worker.

        Args:
            said: the results that the model sees.
        """
        texts: list[str] = []
        notices: list[str] = []
        root, cwd = root_of(self._cwd), self._cwd.resolve()
        for path in paths:
            for folder, own in self._fresh(path, root.resolve(), cwd):
                head = _HEAD.format(folder=folder)
                found = instructions_in(folder, root, but=own)
                notices += found.notices
                if found.text and not any(head in text for text in said):
                    texts.append(f"\n\n{head}\n\n{found.text}")
        return Found("".join(texts), tuple(notices))

    def _fresh(self, path: str, root: Path, cwd: Path) -> list[tuple[Path, str]]:
        """Return the folders to look into, the outermost first, each with the name of the file that was read there."""
        try:
            place = (cwd / Path(path).expanduser()).resolve()
            folder = place if place.is_dir() else place.parent
            inside = folder.is_dir() and folder.is_relative_to(root)
        except (OSError, ValueError, RuntimeError):  # no such name, no such person's home
            return []
        way = [f for f in (folder, *folder.parents) if f.is_relative_to(root) and not cwd.is_relative_to(f)]
        with self._lock:
            fresh = [f for f in reversed(way) if f not in self._looked] if inside else []
            self._looked.update(fresh)
        return [(f, place.name if f == place.parent else "") for f in fresh]
