"""The process that searches files for `search_files`.

A regular expression can run without end and blocks the interpreter. So the agent never runs the pattern of a model
itself: it starts this module, reads one JSON object per line, and ends the process when the time is over.
It imports the standard library and the path rules only, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hermes_agent.config.home import FileAccess
from hermes_agent.core.text import shorten
from hermes_agent.system.files import open_beneath, open_directory
from hermes_agent.workspace.paths import PathRules

BINARY_SAMPLE = 8_192
"""First bytes of a file in which a NUL byte marks it as binary; binary files are skipped."""
MAX_FILE_BYTES = 10_000_000
"""Largest file that is searched for content."""
LINE_CHARS = 500
"""Most characters of a line in the result."""
SKIPPED_DIRECTORIES = (
    ".git",
    ".hg",
    ".svn",
    ".jj",
    "node_modules",
    "__pycache__",
    ".venv",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".direnv",
)


def main() -> None:
    """Read a request from standard input, write the results, and `{"end": {…}}` last.

    The request has `root`, `files` (paths below it, or null for all), `target`, `pattern`, `glob` (may be empty),
    `mode`, `context`, `skip` and `take` (numbers of results to skip and write), `places` and `reader` (`FileAccess`).
    """
    request = json.load(sys.stdin)
    scan = _Scan(request)
    results = scan.names() if request["target"] == "files" else scan.contents()
    for number, result in enumerate(results):
        if number >= request["skip"]:
            print(json.dumps(result), flush=True)
        if number + 1 >= request["skip"] + request["take"]:
            break
    print(json.dumps({"end": {"files": scan.searched, "large": scan.large}}), flush=True)


class _Scan:
    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._root: str = request["root"]
        try:
            self._top = open_directory(self._root)
        except OSError as exc:
            raise SystemExit(f"{self._root}: {exc.strerror}") from exc
        folders, *others = request["reader"]
        reader = FileAccess(frozenset(folders), *others)
        hermes_home, user_home, credentials, opened = request["places"]
        self._places = PathRules(hermes_home, user_home, credentials, opened, lambda: reader)
        self._wanted = glob_matcher(request["glob"])
        self.searched = 0
        self.large = 0

    def names(self) -> Iterator[dict[str, Any]]:
        pattern = self._request["pattern"]
        matches = glob_matcher(pattern if re.search(r"[*?\[{]", pattern) else f"*{pattern}*")
        for path in self._files():
            self.searched += 1
            if matches(path) and self._wanted(path):
                yield {"path": path}

    def contents(self) -> Iterator[dict[str, Any]]:
        find = re.compile(self._request["pattern"]).search
        for path in self._files():
            if not self._wanted(path):
                continue
            lines = self._lines(path)
            if lines is None:
                continue
            self.searched += 1
            hits = (number for number, line in enumerate(lines) if find(line))
            yield from self._results(path, lines, hits)

    def _results(self, path: str, lines: list[str], hits: Iterator[int]) -> Iterator[dict[str, Any]]:
        if self._request["mode"] == "files_only":
            if next(hits, None) is not None:
                yield {"path": path}
        elif self._request["mode"] == "count":
            if count := sum(1 for _ in hits):
                yield {"path": path, "count": count}
        else:
            around = self._request["context"]
            for hit in hits:
                near = range(max(hit - around, 0), min(hit + around + 1, len(lines)))
                yield {"path": path, "line": hit + 1, "lines": [[n + 1, _cut(lines[n])] for n in near]}

    def _files(self) -> Iterator[str]:
        if self._request["files"] is not None:
            yield from self._request["files"]
        else:
            yield from _walk(self._top, self._root, self._is_listed)

    def _is_listed(self, path: str) -> bool:
        return self._places.unlisted_reason(path) is None and self._places.foreign_reason(path) is None

    def _lines(self, path: str) -> list[str] | None:
        """Return the lines of a text file, or None when it is skipped."""
        full = f"{self._root.rstrip('/')}/{path}"
        try:
            handle = open_beneath(self._top, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            return None
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or self._places.closed_reason(full, status) is not None:
                return None
            if status.st_size > MAX_FILE_BYTES:
                self.large += 1
                return None
            try:
                data = file.read(MAX_FILE_BYTES)
            except OSError:
                return None
        if b"\0" in data[:BINARY_SAMPLE]:
            return None
        lines = data.decode("utf-8", "replace").split("\n")
        if lines[-1] == "":
            lines.pop()
        return lines


def _walk(top: int, root: str, is_listed: Callable[[str], bool]) -> Iterator[str]:
    """Yield the visible regular files below `root`, sorted by name; links are not followed."""
    waiting = [("", True)]
    while waiting:
        path, is_directory = waiting.pop()
        if is_directory:
            waiting += reversed(_entries(top, root, path, is_listed))
        else:
            yield path


def _entries(top: int, root: str, below: str, is_listed: Callable[[str], bool]) -> list[tuple[str, bool]]:
    """Return the files and directories in a directory, each with whether it is a directory."""
    found: list[tuple[str, bool]] = []
    with contextlib.suppress(OSError), _listed(top, below) as entries:
        for entry in sorted(entries, key=lambda entry: os.fsencode(entry.name)):
            path = f"{below}/{entry.name}" if below else entry.name
            if not is_listed(f"{root.rstrip('/')}/{path}"):
                continue
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    found.append((path, False))
                elif entry.is_dir(follow_symlinks=False) and not _is_skipped(root, path, entry.name):
                    found.append((path, True))
    return found


@contextlib.contextmanager
def _listed(top: int, below: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    handle = open_beneath(top, below, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(handle) as entries:
            yield entries
    finally:
        os.close(handle)


def _is_skipped(root: str, path: str, name: str) -> bool:
    return name in SKIPPED_DIRECTORIES or (root == "/" and path in ("dev", "proc", "sys"))


def _cut(line: str) -> str:
    return shorten(line.removesuffix("\r"), LINE_CHARS + 1)


def glob_matcher(glob: str) -> Any:
    """Return a predicate over paths below the root.

    `*`, `?`, `[…]` stay within a name, `**` crosses directories, `{a,b}` is a choice. A glob without a slash is
    about the name of the file only. An empty glob matches everything.
    """
    if not glob:
        return lambda path: True
    found = re.compile(_expression(glob.removeprefix("./").lstrip("/")), re.DOTALL).fullmatch
    if "/" in glob.removeprefix("./"):
        return lambda path: found(path) is not None
    return lambda path: found(path.rpartition("/")[2]) is not None


def _expression(glob: str) -> str:
    out, position, braces = [], 0, 0
    token = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^]]*\]|\{(?=[^{}]*\})|\}|,|.", re.DOTALL)
    while position < len(glob):
        match = token.match(glob, position)
        assert match is not None
        text, position = match[0], match.end()
        if text == "{":
            braces += 1
            out.append("(?:")
        elif text == "}" and braces:
            braces -= 1
            out.append(")")
        elif text == "," and braces:
            out.append("|")
        else:
            out.append(_piece(text))
    return "".join(out)


def _piece(text: str) -> str:
    fixed = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if text in fixed:
        return fixed[text]
    if len(text) > 2 and text[0] == "[":
        inside = text[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        inverted, inside = inside.startswith("!"), inside.removeprefix("!")
        inside = inside.replace("]", "\\]").replace("^", "\\^")
        return f"[{'^' if inverted else ''}{inside}]"
    return re.escape(text)
