"""Tool calls as lines: what a call does, how long it took, how large its result is, what it changed."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.console.styled import Line, Piece, crop, fit, line, printable, wrap
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import ToolStatus, error_object
from hermes_agent.core.redaction import redactor

MAX_DIFF_LINES = 40
"""Lines of a diff that are shown unless the view is verbose."""
MAX_REASONING_LINES = 200
"""Lines of reasoning that the verbose view shows."""
MAX_REASONING_CHARS = 40_000
MAX_FILE_BYTES = 200_000
"""A larger file is not compared."""


class Diff(LazyNamedTuple):
    """A change as styled lines."""

    lines: list[Line]
    added: int
    removed: int


def unified_diff(text: str, *, limit: int = MAX_DIFF_LINES) -> Diff:
    """Return a unified diff as styled lines with line numbers.

    Args:
        text: the diff, of one file or several.
        limit: at most so many lines; a last line says how many more there are.
    """
    source = [printable(each).expandtabs(4) for each in text.splitlines()]
    lines: list[Line] = []
    added = removed = number = 0
    in_hunk = False
    several = sum(each.startswith("+++ ") for each in source) > 1
    for each in source:
        if each.startswith("--- ") and not in_hunk:
            continue
        if each.startswith("+++ ") and not in_hunk:
            if several:
                lines.append(line(each[4:], "hunk"))
        elif each.startswith("@@"):
            if in_hunk:
                lines.append(line("      ⋯", "dim"))
            in_hunk, number = True, _first_line(each)
        elif in_hunk and each.startswith("-"):
            if each.startswith("--- ") and several:  # the next file
                in_hunk = False
                continue
            removed += 1
            lines.append((Piece("dim", "      "), Piece("removed", each)))
        elif in_hunk and each.startswith("+"):
            added += 1
            lines.append((Piece("dim", f"{number:>5} "), Piece("added", each)))
            number += 1
        elif in_hunk:
            lines.append((Piece("dim", f"{number:>5} "), Piece("", each)))
            number += 1
    return Diff(_shorten(lines, limit), added, removed)


def changed_text(old: str, new: str, *, limit: int = MAX_DIFF_LINES) -> Diff:
    """Return the difference of two texts."""
    found = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))
    return unified_diff("\n".join(found), limit=limit)


def readable_text(path: Path) -> str | None:
    """Return the text of a file that may be compared; None for a large or binary file, "" for no file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES or not path.is_file():
            return None
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None


def _first_line(header: str) -> int:
    """Return the number of the first new line of a hunk."""
    new = header.partition("+")[2].partition(" ")[0].partition(",")[0]
    return int(new) if new.isdecimal() else 1


def _shorten(lines: list[Line], limit: int) -> list[Line]:
    if len(lines) <= limit:
        return lines
    return [*lines[:limit], line(f"      … {len(lines) - limit} more lines", "dim")]


class _Wording(LazyNamedTuple):
    doing: str
    done: str
    arguments: tuple[str, ...] = ()
    """The arguments that name the object; the first that is set is shown."""


_WORDINGS = {
    "clarify": _Wording("Asking", "Asked", ("question",)),
    "cronjob": _Wording("Scheduling", "Scheduled", ("name", "schedule", "action", "job_id")),
    "delegate_task": _Wording("Delegating", "Delegated", ("goal", "tasks")),
    "execute_code": _Wording("Running code", "Ran code", ("code",)),
    "image_generate": _Wording("Drawing", "Drew", ("prompt",)),
    "memory": _Wording("Remembering", "Remembered", ("content", "old_text", "action")),
    "patch": _Wording("Editing", "Edited", ("path", "patch")),
    "process": _Wording("Checking process", "Checked process", ("session_id", "action")),
    "read_file": _Wording("Reading", "Read", ("path",)),
    "search_files": _Wording("Searching", "Searched", ("pattern",)),
    "session_search": _Wording("Searching sessions", "Searched sessions", ("query", "session_id")),
    "skill_view": _Wording("Opening skill", "Opened skill", ("name",)),
    "skills_list": _Wording("Listing skills", "Listed skills", ("category",)),
    "terminal": _Wording("Running", "Ran", ("command",)),
    "text_to_speech": _Wording("Speaking", "Spoke", ("text",)),
    "todo": _Wording("Planning", "Planned", ("todos",)),
    "tool_call": _Wording("Calling", "Called", ("name",)),
    "tool_describe": _Wording("Looking up tool", "Looked up tool", ("name",)),
    "tool_search": _Wording("Looking for a tool", "Looked for a tool", ("query",)),
    "video_generate": _Wording("Filming", "Filmed", ("prompt",)),
    "vision_analyze": _Wording("Looking at", "Looked at", ("image_url",)),
    "web_extract": _Wording("Reading", "Read", ("urls",)),
    "web_search": _Wording("Searching the web", "Searched the web", ("query",)),
    "write_file": _Wording("Writing", "Wrote", ("path",)),
}
"""How the agent's own tools are called; a tool of a plugin is called by its name."""

_COUNTED = {"matches": "match", "files": "file", "results": "result", "sessions": "session", "todos": "step"}
_PLURALS = {"match": "matches"}
_SHORT_RESULT = 60
"""Characters of a plugin's result that are shown in the line."""
MAX_RESULT_LINES = 12
"""Lines of a result that the verbose view shows."""


def running_line(name: str, arguments: Mapping[str, Any], seconds: float, width: int) -> Line:
    """Return the line of a call that runs."""
    wording = _WORDINGS.get(name)
    verb = wording.doing if wording else f"Using {printable(name)}"
    age = f"  {duration(seconds)}" if seconds >= 1 else ""
    room = max(width - len(verb) - len(age) - 4, 8)
    return (Piece("verb", verb), Piece("", f" {fit(object_of(name, arguments), room)}"), Piece("dim", age))


def finished_line(
    name: str, arguments: Mapping[str, Any], result: str, status: ToolStatus, duration_ms: int, width: int
) -> Line:
    """Return the line of a call that ended."""
    wording = _WORDINGS.get(name)
    verb = wording.done if wording else printable(name)
    size = measure(name, result)
    failed = status != "ok" or bool(_exit_code(name, result))
    mark = Piece("failed", "✗ ") if failed else Piece("ok", "● ")
    answer = "" if wording or failed else _short_result(result)
    details = ", ".join(filter(None, [f"{answer}" if answer else size, duration(duration_ms / 1000)]))
    arrow = " → " if answer else "  "
    target = object_of(name, arguments)
    problem = f"{arrow}{_problem(status, result)}" if status != "ok" else ""
    room = width - len(verb) - 3
    if problem:
        shown = fit(target, max(room // 2, 8))
        return crop(
            (mark, Piece("verb", verb), Piece("", f" {shown}" if shown else ""), Piece("failed", problem)), width
        )
    tail = f"{arrow}{details}"
    shown = fit(target, max(room - len(tail), 8))
    return crop((mark, Piece("verb", verb), Piece("", f" {shown}" if shown else ""), Piece("dim", tail)), width)


def object_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what a call is about, on one line and without known secrets."""
    wording = _WORDINGS.get(name)
    keys = wording.arguments if wording else ()
    value = next((arguments[key] for key in keys if arguments.get(key)), None)
    if value is None and not wording:
        if len(arguments) == 1:
            value = next(iter(arguments.values()))
        else:
            value = " ".join(f"{key}={_text(each)}" for key, each in arguments.items())
    return redactor.mask_known(" ".join(printable(_text(value)).split())) if value is not None else ""


def measure(name: str, result: str) -> str:
    """Return how large a result is, in words."""
    value = _object(result)
    if name in ("read_file", "web_extract") and isinstance(value.get("content"), str):
        return _count(value["content"].count("\n") + 1, "line")
    if name in ("terminal", "execute_code"):
        code, output = value.get("exit_code"), str(value.get("output") or "").rstrip("\n")
        lines = _count(output.count("\n") + 1, "line") if output else "no output"
        return f"exit status {code}, {lines}" if code else lines
    if name == "write_file" and "lines_added" in value:
        return f"+{value['lines_added']} −{value['lines_removed']}"
    if name == "search_files" and isinstance(value.get("matches"), str):
        found = value["matches"]
        return _count(found.count("\n") + 1 if found else 0, "match")
    for key, word in _COUNTED.items():
        if isinstance(value.get(key), list):
            return _count(len(value[key]), word)
    return f"{len(result):,} characters" if len(result) > _SHORT_RESULT else ""


def result_lines(result: str, width: int, limit: int = MAX_RESULT_LINES) -> list[Line]:
    """Return the beginning of a result, for the verbose view."""
    value = _object(result)
    texts = [str(value[key]) for key in ("output", "content", "error") if value.get(key)]
    text = "\n".join(texts) or result
    shown = [printable(redactor.mask_known(each)).expandtabs(4) for each in text.rstrip().splitlines()]
    lines = [crop((Piece("dim", "  │ "), Piece("dim", each)), width) for each in shown[:limit]]
    if len(shown) > limit:
        lines.append(line(f"  │ … {len(shown) - limit} more lines", "dim"))
    return lines


def reasoning_lines(text: str, width: int, limit: int = MAX_REASONING_LINES) -> list[Line]:
    """Return the reasoning of a model, for the verbose view."""
    shown = printable(redactor.mask_known(text[:MAX_REASONING_CHARS])).expandtabs(4).strip()
    mark = line("  │ ", "dim")
    lines = [each for part in shown.split("\n") for each in wrap(line(part, "dim"), width, mark, mark)]
    if len(lines) > limit:
        lines = [*lines[:limit], line(f"  │ … {len(lines) - limit} more lines", "dim")]
    return lines


def last_lines(output: str, width: int, limit: int = 4) -> list[Line]:
    """Return the last whole lines of a command that runs: half of a secret would not be known as one."""
    output = output.rpartition("\n")[0]
    shown = [printable(each).expandtabs(4) for each in redactor.mask_known(output).rstrip().splitlines()[-limit:]]
    return [crop((Piece("dim", "  │ "), Piece("dim", each)), width) for each in shown]


def plan_lines(arguments: Mapping[str, Any], width: int) -> list[Line]:
    """Return the steps of a plan (tool `todo`)."""
    steps = arguments.get("todos")
    if not isinstance(steps, list):
        return []
    marks = {"completed": ("ok", "✓"), "in_progress": ("verb", "▸"), "cancelled": ("dim", "–")}
    lines = []
    for step in steps:
        if isinstance(step, Mapping):
            style, mark = marks.get(str(step.get("status")), ("dim", "○"))
            text = printable(" ".join(str(step.get("content", "")).split()))
            lines.append(crop((Piece(style, f"  {mark} "), Piece(style, redactor.mask_known(text))), width))
    return lines


def diff_of(name: str, result: str) -> str:
    """Return the unified diff of a result that has one, or ""."""
    diff = _object(result).get("diff") if name == "patch" else None
    return redactor.mask_known(diff) if isinstance(diff, str) else ""


def duration(seconds: float) -> str:
    """Return a time: `12 ms`, `3.2 s`, `2 min 5 s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _problem(status: ToolStatus, result: str) -> str:
    error = (error_object(_first_object(result)) or {}).get("error")
    text = " ".join(printable(redactor.mask_known(_text(error or result))).split())
    return f"{'' if status == 'error' else f'{status}: '}{text}"


def _first_object(result: str) -> str:
    """Return the JSON object at the beginning of a result; a notice to the model may follow it."""
    with contextlib.suppress(ValueError, RecursionError):
        _, end = json.JSONDecoder().raw_decode(result.lstrip())
        return result.lstrip()[:end]
    return result


def _exit_code(name: str, result: str) -> int:
    code = _object(result).get("exit_code") if name in ("terminal", "execute_code") else 0
    return code if isinstance(code, int) else 0


def _short_result(result: str) -> str:
    value = _object(result)
    shown = value.get("result", value.get("output")) if value else result
    if shown is None or isinstance(shown, list | dict):
        return ""
    text = " ".join(printable(redactor.mask_known(str(shown))).split())
    return text if len(text) <= _SHORT_RESULT else ""


def _object(result: str) -> Mapping[str, Any]:
    if not result.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, list):
        return f"{len(value)} steps" if len(value) != 1 else "1 step"
    return json.dumps(value, ensure_ascii=False)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word if number == 1 else _PLURALS.get(word, word + 's')}"
