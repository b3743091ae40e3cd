"""The input of the live screen: buffer, history, completion, and folded pastes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from hermes_agent.console.menus import match_rank
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.system.files import PRIVATE

if TYPE_CHECKING:
    from hermes_agent.commands import HelpRow

MAX_FILES = 20_000
"""Files that `@` offers at most."""
FILES_TTL_S = 10.0
MAX_COMPLETIONS = 50
_MENTION = re.compile(r"(?:^|\s)@(\S*)$")
_SESSION = "session:"


AfterLoad = Callable[[Callable[[], None]], None]
"""Calls its argument when the agent is loaded; immediately if it is."""


class CompletionSource(LazyNamedTuple):
    """Where completions come from; the functions are called in a worker thread."""

    commands: Callable[[], list[HelpRow]]
    arguments: Callable[[str], list[tuple[str, str]]]
    """Returns the values, with descriptions, for the argument of the command of that name."""
    sessions: Callable[[], list[tuple[str, str]]]
    directory: Callable[[], Path]


class ChatCompleter(Completer):
    """Completes commands after `/`, their arguments, and files and sessions after `@`."""

    def __init__(self, source: CompletionSource) -> None:
        self._source = source
        self._files: list[str] = []
        self._listed_at = 0.0

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what matches the text before the cursor."""
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            yield from self._command_completions(text)
            if " " not in text:
                return
        mention = _MENTION.search(text)
        if mention:
            yield from self._mention_completions(mention[1])

    def _command_completions(self, text: str) -> Iterator[Completion]:
        name, blank, typed = text[1:].partition(" ")
        if not blank:
            for entry in sorted(self._source.commands()):
                if entry.name.startswith(name.lower()):
                    display = f"/{entry.name} {entry.hint}".rstrip()
                    yield Completion(f"/{entry.name}", -len(text), display=display, display_meta=entry.description)
            return
        values = self._source.arguments(name.lower())
        if values and values[0][0].startswith("/"):  # more skills after a skill
            typed = typed.rpartition(" ")[2]
            values = values if typed.startswith("/") else []
        for value in _ranked(typed, values):
            yield Completion(value[0], -len(typed), display_meta=value[1])

    def _mention_completions(self, typed: str) -> Iterator[Completion]:
        if typed.startswith(_SESSION) or _SESSION.startswith(typed or "-"):
            wanted = typed.removeprefix(_SESSION) if typed.startswith(_SESSION) else ""
            for value in _ranked(wanted, self._source.sessions(), is_named=True):
                yield Completion(f"@{_SESSION}{value[0]}", -len(typed) - 1, display_meta=value[1])
        for path, _ in _ranked(typed, [(path, "") for path in self._list_files()]):
            yield Completion(f'@"{path}"' if " " in path else f"@{path}", -len(typed) - 1, display=path)

    def _list_files(self) -> list[str]:
        if time.monotonic() - self._listed_at > FILES_TTL_S:
            self._files, self._listed_at = list_files(self._source.directory()), time.monotonic()
        return self._files


def _ranked(typed: str, values: Iterable[tuple[str, str]], *, is_named: bool = False) -> list[tuple[str, str]]:
    """Return the values that match, best first.

    Args:
        is_named: whether a description is a name, of which some characters may be typed; else a part of it counts.
    """
    if not typed:
        return list(values)[:MAX_COMPLETIONS]
    found = []
    for value in values:
        text, description = value
        rank = match_rank(typed, text)
        if rank is None and description:
            rank = match_rank(typed, description)
            rank = None if rank is None or (rank[0] > 1 and not is_named) else (rank[0] + 10, rank[1])
        if rank is not None:
            found.append((rank, value))
    return [value for _, value in sorted(found)[:MAX_COMPLETIONS]]


def list_files(directory: Path) -> list[str]:
    """Return the files below a directory, relative to it.

    In a git repository these are its files without the ignored ones, otherwise all files that are not hidden."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=directory, capture_output=True, timeout=5, check=False, env={"PATH": os.environ.get("PATH", "")},
        )  # fmt: skip
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace").split("\0")[:-1][:MAX_FILES]
    except (OSError, subprocess.TimeoutExpired):
        pass
    found: list[str] = []
    until = time.monotonic() + 2
    for root, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        base = os.path.relpath(root, directory)
        found += [name if base == "." else f"{base}/{name}" for name in sorted(names) if not name.startswith(".")]
        if len(found) >= MAX_FILES or time.monotonic() > until:
            break
    return found[:MAX_FILES]


def hint_for(text: str, entries: Callable[[], list[HelpRow]]) -> str:
    """Return the argument hint and description of the command at the beginning of `text`, or ""."""
    name, blank, _ = text.removeprefix("/").lower().partition(" ")
    if not text.startswith("/") or not blank:
        return ""
    entry = next((e for e in entries() if e.name == name), None)
    return "" if entry is None else f"{entry.hint}  {entry.description}".strip()


class _MaskedHistory(FileHistory):
    """Submitted lines: as they are in this process, without known secrets in the file.

    Args:
        after_load: calls its argument when the secrets are known; until then lines wait for the file.
    """

    def __init__(self, file: Path, after_load: AfterLoad) -> None:
        super().__init__(str(file))
        self._waiting: list[str] | None = []
        after_load(self._write_waiting)

    def store_string(self, string: str) -> None:
        """Write a line."""
        if self._waiting is None:
            super().store_string(redactor.mask_known(string))
        else:
            self._waiting.append(string)

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for line in waiting:
            self.store_string(line)


def input_buffer(
    history: Path, after_load: AfterLoad, source: CompletionSource, accept: Callable[[Buffer], bool]
) -> Buffer:
    """Return the buffer of the input; it remembers lines in the file `history` (0600).

    Args:
        after_load: calls its argument when the agent is loaded and its secrets are known.
    """
    history.touch(mode=PRIVATE)
    return Buffer(
        history=_MaskedHistory(history, after_load),
        completer=ThreadedCompleter(ChatCompleter(source)),
        complete_while_typing=True,
        multiline=True,
        accept_handler=accept,
        name="input",
    )
