"""The tool `search_files`: find text in files, or files by name.

Patterns have the syntax of Python's `re` and match single lines. A process of its own (`workspace.search_process`) does
the matching within a deadline. If `rg` is on the PATH, it first finds the files with a text that every match contains
(`required_literals`), which makes large trees fast. Source: plugin contract §4.12.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hermes_agent
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.processes import CommandResult, run, tool_environment
from hermes_agent.tools import tool_error, tool_result
from hermes_agent.workspace import search_process, tool_context
from hermes_agent.workspace.paths import check_readable
from hermes_agent.workspace.sandbox.file_rules import is_inside
from hermes_agent.workspace.tool_context import ToolContext

if TYPE_CHECKING:
    from hermes_agent.workspace.remote_files import RemoteFiles


LEAST = 2
"""Shortest useful literal; a shorter one is in nearly every file."""
_OTHER_CASE = frozenset("iks")
"""ASCII letters that some engine folds with letters beyond ASCII."""


def required_literals(pattern: str) -> tuple[list[str], bool] | None:
    """Return ASCII texts of which every match contains one, and whether case is ignored, or None.

    Only ASCII counts: its bytes are the same in files that are not UTF-8.
    """
    from re import _parser  # type: ignore[attr-defined]  # private, and the only reader that surely agrees with `re`

    tree = _parser.parse(pattern)
    folded = bool(tree.state.flags & re.IGNORECASE)
    found = _of_sequence(tree, folded)
    return None if found is None else (sorted(found), folded)


def _of_sequence(items: Iterable[Any], folded: bool) -> set[str] | None:
    """Return the longest required texts of one of the items."""
    candidates: list[set[str]] = []
    run = ""
    for op, value in [*items, ("", None)]:
        char = chr(value) if str(op) == "LITERAL" else ""
        if char.isascii() and char.isprintable() and char and not (folded and char.lower() in _OTHER_CASE):
            run += char
            continue
        candidates += [{run}] if len(run) >= LEAST else []
        run = ""
        inner = _of_item(str(op), value, folded)
        candidates += [inner] if inner else []
    return max(candidates, key=lambda texts: min(map(len, texts)), default=None)


def _of_item(op: str, value: Any, folded: bool) -> set[str] | None:
    if op == "SUBPATTERN":
        _, added, removed, inner = value
        return None if added or removed else _of_sequence(inner, folded)
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, _, inner = value
        return _of_sequence(inner, folded) if least else None
    if op == "BRANCH":
        branches = [_of_sequence(branch, folded) for branch in value[1]]
        return None if None in branches else set().union(*branches)  # type: ignore[arg-type]
    return None


DEADLINE_S = 30.0
"""Seconds that a search may take; then the result is what was found so far."""
CANDIDATE_BYTES = 8_000_000
"""Most bytes of file names from `rg`."""
OUTPUT_BYTES = 8_000_000
RESULT_CHARS = 50_000
MAX_RESULTS = 500
MAX_CONTEXT = 10
MAX_PATTERN = 2_000
MAX_NESTING = 100

_START = "import sys; sys.path.insert(0, sys.argv[1]); from hermes_agent.workspace.search_process import main; main()"


@lazy_dataclass(frozen=True, slots=True)
class _Query:
    """The arguments of a search."""

    pattern: str
    target: str
    mode: str
    glob: str
    limit: int
    offset: int
    context: int
    root: str
    file: str
    """The file to search; empty for all files below `root`."""


@lazy_dataclass(frozen=True, slots=True)
class SearchFilesTool:
    """The handler of `search_files`.

    Attributes:
        environ: the environment of the agent; it has the PATH for `rg`, and the processes get the listed part.
        deadline_s: seconds that a search may take.
    """

    context: ToolContext
    environ: Mapping[str, str]
    deadline_s: float = DEADLINE_S

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `matches`, `files` or `counts`, and if they apply `next_offset`, `incomplete`, `note`."""
        try:
            if remote := self.context.remote_files():
                return self._search_remote(remote, args)
            query = self._query(args)
            deadline = time.monotonic() + self.deadline_s
            files = [query.file] if query.file else self._candidates(query)
            done = self._scan(query, files, deadline)
            return self._result(query, done)
        except ToolFailed as exc:
            return tool_error(exc)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the files of which a result shows lines."""
        matches = _parsed(result).get("matches") or ()
        lines = matches.split("\n") if isinstance(matches, str) else matches
        return [self.context.resolve(path) for path in {path for line in lines for path in _line_paths(line)}]

    def _search_remote(self, remote: RemoteFiles, args: Mapping[str, Any]) -> str:
        """Search in the remote backend with standard programs; patterns are those of `grep -E`."""
        names = tool_context.parse_choice(args, "target", ("content", "files")) == "files"
        mode = tool_context.parse_choice(args, "output_mode", ("content", "files_only", "count"))
        limit = tool_context.parse_number(args, "limit", default=50, least=1, most=MAX_RESULTS)
        offset = tool_context.parse_number(args, "offset", default=0, least=0)
        path = remote.resolve(tool_context.parse_text(args, "path", default="."))
        glob = tool_context.parse_text(args, "file_glob", default="", may_be_empty=True)
        most = 100_000 if mode != "content" else offset + limit + 1
        lines = remote.search(tool_context.parse_text(args, "pattern"), path, glob, names=names, limit=most)
        key = "files" if names or mode == "files_only" else "counts" if mode == "count" else "matches"
        if not names and mode != "content":
            found = Counter(line.partition(":")[0] for line in lines)
            lines = list(found) if mode == "files_only" else [f"{name}:{count}" for name, count in found.items()]
        page = [line[: search_process.LINE_CHARS] for line in lines[offset : offset + limit]]
        result: dict[str, Any] = {key: "\n".join(page) if key == "matches" else page}
        if len(lines) > offset + limit:
            result["next_offset"] = offset + limit
        return tool_result(result if page else result | {"note": _nothing(names)})

    def _query(self, args: Mapping[str, Any]) -> _Query:
        pattern = tool_context.parse_text(args, "pattern")
        target = tool_context.parse_choice(args, "target", ("content", "files"))
        if len(pattern) > MAX_PATTERN:
            raise ToolFailed(f"`pattern` has {len(pattern)} characters: at most {MAX_PATTERN}")
        if target == "content":
            _check(pattern)
        root, file = self._place(tool_context.parse_text(args, "path", default="."))
        return _Query(
            pattern,
            target,
            tool_context.parse_choice(args, "output_mode", ("content", "files_only", "count")),
            tool_context.parse_text(args, "file_glob", default="", may_be_empty=True),
            tool_context.parse_number(args, "limit", default=50, least=1, most=MAX_RESULTS),
            tool_context.parse_number(args, "offset", default=0, least=0),
            tool_context.parse_number(args, "context", default=0, least=0, most=MAX_CONTEXT),
            root,
            file,
        )

    def _place(self, path: str) -> tuple[str, str]:
        root = self.context.resolve(path)
        check_readable(self.context.places, root, None)
        if any(is_inside(root, special) for special in ("/proc", "/sys", "/dev")):
            raise ToolFailed(f"{root} holds no files to search")
        try:
            mode = Path(root).stat().st_mode
        except FileNotFoundError:
            raise ToolFailed(f"{path} does not exist") from None
        except OSError as exc:
            raise ToolFailed(f"{path[:200]} cannot be searched: {exc.strerror}") from exc
        if stat.S_ISDIR(mode):
            return root, ""
        if stat.S_ISREG(mode):
            return os.path.split(root)
        raise ToolFailed(f"{path} is neither a file nor a directory")

    def _candidates(self, query: _Query) -> list[str] | None:
        """Return the files in which `rg` finds a required text, or None to search all."""
        program = shutil.which("rg", path=self.environ.get("PATH"))
        if program is None or query.target == "files" or query.root == "/":
            return None

        wanted = required_literals(query.pattern)
        if wanted is None:
            return None
        texts, folded = wanted
        flags = "--no-config --files-with-matches --null --text --hidden --no-ignore --no-messages --encoding=none"
        argv = [
            program,
            *flags.split(),
            "--sort=path",
            f"--max-filesize={search_process.MAX_FILE_BYTES}",
            "--fixed-strings",
        ]
        argv.append("--ignore-case" if folded else "--case-sensitive")
        if re.fullmatch(r"[\w.*-]+", query.glob) and "**" not in query.glob:
            argv.append(f"--glob={query.glob}")
        argv += [f"--glob=!{name}/" for name in search_process.SKIPPED_DIRECTORIES]
        argv += [*(f"--regexp={text}" for text in texts), "--", "."]
        done = self._run(argv, Path(query.root), self.deadline_s * 2 / 3, CANDIDATE_BYTES)
        if done.cancelled:
            raise ToolFailed("interrupted by the user")
        if done.timed_out or done.truncated or (done.exit_code not in (0, 1) and b"\0" not in done.head):
            return None  # not all of them, or nothing but errors
        names = done.head.split(b"\0")[:-1]
        return [os.fsdecode(name).removeprefix("./") for name in names]

    def _scan(self, query: _Query, files: list[str] | None, deadline: float) -> CommandResult:
        places = self.context.places
        folders, *others = places.reader()
        request = {
            "root": query.root,
            "files": files,
            "target": query.target,
            "pattern": query.pattern,
            "glob": query.glob,
            "mode": query.mode,
            "context": query.context,
            "skip": query.offset,
            "take": query.limit + 1,
            "places": [places.hermes_home, places.user_home, places.credentials, places.opened],
            "reader": [sorted(folders), *others],
        }
        source = str(Path(hermes_agent.__file__).parents[1])
        argv = [sys.executable, "-I", "-S", "-c", _START, source]
        limit_s = max(deadline - time.monotonic(), 1)
        return self._run(argv, Path(query.root), limit_s, OUTPUT_BYTES, stdin=json.dumps(request).encode())

    def _run(self, argv: list[str], cwd: Path, timeout_s: float, limit: int, **more: Any) -> CommandResult:
        try:
            return run(
                argv,
                cwd=cwd,
                env=tool_environment(self.environ),
                timeout_s=timeout_s,
                output_limit_bytes=limit,
                cancelled=self.context.cancelled(),
                head_only=True,
                **more,
            )
        except OSError as exc:
            raise ToolFailed(f"{cwd} cannot be searched: {exc.strerror or exc}") from exc

    def _result(self, query: _Query, done: CommandResult) -> str:
        if done.cancelled:
            raise ToolFailed("interrupted by the user")
        found = [_parsed(line) for line in done.head.splitlines()]
        end = next((item["end"] for item in found if "end" in item), None)
        items = [item for item in found if "path" in item]
        if end is None and not done.timed_out and not done.truncated and done.exit_code != 0:
            raise ToolFailed(f"the search failed: {done.head[-500:].decode('utf-8', 'replace')}")
        result, taken = self._fit_result(query, items[: query.limit])
        if taken < len(items):
            result["next_offset"] = query.offset + taken
        if end is None:
            result["incomplete"] = (
                f"stopped after {self.deadline_s:g} s: narrow `path` or `file_glob`, or use a simpler pattern"
            )
        elif not items:
            result["note"] = _nothing(query.target == "files")
        if query.file and end is not None and end["large"]:
            result["note"] = (
                f"not searched: it is over {search_process.MAX_FILE_BYTES // 1_000_000} MB; use `terminal` with grep"
            )
        return tool_result(result)

    def _fit_result(self, query: _Query, items: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
        """Return the result, and how many items fit into it."""
        fitting, chars = 0, 0
        for item in items:
            chars += sum(len(text) + 8 for _, text in item.get("lines", ())) + len(item["path"])
            if chars > RESULT_CHARS and fitting:
                break
            fitting += 1
        paths = {item["path"]: self._path(query, item["path"]) for item in items[:fitting]}
        if query.target == "files" or query.mode == "files_only":
            return {"files": list(paths.values())}, fitting
        if query.mode == "count":
            return {"counts": [f"{paths[item['path']]}:{item['count']}" for item in items[:fitting]]}, fitting
        return {"matches": _lines(paths, items[:fitting])}, fitting

    def _path(self, query: _Query, path: str) -> str:
        return self.context.display_path(f"{query.root.rstrip('/')}/{path}").replace("\n", "\\n")


def _nothing(names: bool) -> str:
    """Return the note of an empty result, which says whether names or contents were searched."""
    if not names:
        return "no match"
    return "no file has such a name; what is in the files was not searched (target=content searches it)"


def _check(pattern: str) -> None:
    depth = max(accumulate((char == "(") - (char == ")") for char in re.sub(r"\\.", "", pattern)), default=0)
    if depth > MAX_NESTING:  # compiling it may use up the stack, which also finalizers of other objects run on
        raise ToolFailed(f"`pattern` is nested too deeply: {depth} groups in each other, at most {MAX_NESTING}")
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as exc:
        raise ToolFailed(
            f"`pattern` is not a regular expression: {exc}. To find it literally, write {re.escape(pattern)}"
        ) from exc


def _line_paths(line: str) -> list[str]:
    """Return the possible files of a line of `matches`; a name with numbers has several."""
    return [line[: mark.start()] for mark in islice(re.finditer(r"[:-](?=\d+[:-])", line), 8)]


def _parsed(line: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:  # the last line of a process that was stopped, or a traceback
        return {}
    return value if isinstance(value, dict) else {}


def _lines(paths: Mapping[str, str], items: list[dict[str, Any]]) -> list[str]:
    """Return lines in the form of grep: `path:12:text`, `path-11-text` for context, `--` between groups."""
    files: dict[str, dict[int, tuple[str, str]]] = {}
    for item in items:
        lines = files.setdefault(item["path"], {})
        for number, text in item["lines"]:
            if number == item["line"] or number not in lines:
                lines[number] = (":" if number == item["line"] else "-", text)
    around = any(len(item["lines"]) > 1 for item in items)
    out: list[str] = []
    for path, lines in files.items():
        last = 0
        for number in sorted(lines):
            if around and out and number != last + 1:
                out.append("--")
            mark, text = lines[number]
            out.append(f"{paths[path]}{mark}{number}{mark}{text}")
            last = number
    return out
