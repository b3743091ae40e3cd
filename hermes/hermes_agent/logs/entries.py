"""Entries of the log, from the file or the journal, as `hermes logs` shows them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.log_context import format_fields
from hermes_agent.logs.handlers import CONTINUED

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""Lowest first."""

_FIELDS = ("session", "turn", "plugin", "tool")
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d) (\S+) (.+?): (.*)", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][\w.]*): (.*)", re.DOTALL)
_LAST_FIELD = re.compile(r' ([a-z0-9_]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"=]+))$')


@lazy_dataclass(frozen=True, slots=True)
class LogEntry:
    """A record, or (`continued`) another line of the record before it."""

    time: float
    """Seconds since 1970."""
    level: str
    """One of `LEVELS`, or a plugin's name for its own level."""
    logger: str
    message: str
    fields: Mapping[str, str] = field(default_factory=dict)
    """Keys among session, turn, plugin, tool."""
    continued: bool = False
    cursor: str = ""
    """The journal's name of the position; empty in a file."""


@lazy_dataclass(frozen=True, slots=True)
class LogFilter:
    """Which entries are shown."""

    level: str = "DEBUG"
    """The lowest level."""
    session: str | None = None
    plugin: str | None = None
    since: float | None = None
    """Seconds since 1970."""

    def matches(self, entry: LogEntry) -> bool:
        """Return whether `entry`, which is not a continued line, is shown."""
        return (
            severity(entry.level) >= severity(self.level)
            and (self.session is None or entry.fields.get("session") == self.session)
            and (self.plugin is None or entry.fields.get("plugin") == self.plugin)
            and (self.since is None or entry.time >= self.since)
        )


def severity(level: str) -> int:
    """Return the number of a level's name; that of a custom level (`Level 25`) is in the name."""
    known = logging.getLevelNamesMapping().get(level)
    if known is not None:
        return known
    digits = re.search(r"\d+", level)
    return int(digits[0]) if digits else logging.INFO


def from_line(line: str) -> LogEntry:
    """Read a line of agent.log; a line that does not begin a record is a continued line."""
    match = _LINE.fullmatch(line)
    if match is None:
        return LogEntry(0.0, "", "", line.removeprefix(CONTINUED), continued=True)
    message, fields = _split_fields(match[4])
    return LogEntry(datetime.fromisoformat(match[1]).timestamp(), match[2], match[3], message, fields)


def from_journal(value: Mapping[str, Any]) -> LogEntry:
    """Read an entry of `journalctl -o json`, structured or a line with an `<N>` prefix."""
    message = _text(value.get("MESSAGE"))
    logger = _text(value.get("LOGGER"))
    fields = {name: text for name in _FIELDS if (text := _text(value.get(f"HERMES_{name.upper()}")))}
    continued = False
    if not logger and value.get("_TRANSPORT") == "stdout":
        continued = message.startswith(CONTINUED)
        if continued:
            message = message.removeprefix(CONTINUED)
        elif (named := _NAMED.fullmatch(message)) is not None:
            logger, (message, fields) = named[1], _split_fields(named[2])
    return LogEntry(
        int(value.get("__REALTIME_TIMESTAMP", 0)) / 1e6,
        _level(_text(value.get("PRIORITY"))),
        logger or _text(value.get("SYSLOG_IDENTIFIER")) or "?",
        message,
        fields,
        continued,
        _text(value.get("__CURSOR")),
    )


def select(entries: Iterable[LogEntry], wanted: LogFilter) -> Iterator[LogEntry]:
    """Yield the matching entries and their continued lines."""
    shown = False
    for entry in entries:
        if not entry.continued:
            shown = wanted.matches(entry)
        if shown:
            yield entry


def group(entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    """Yield whole records: continued lines become lines of their message."""
    whole: LogEntry | None = None
    for entry in entries:
        if not entry.continued:
            if whole is not None:
                yield whole
            whole = entry
        elif whole is not None:
            whole = replace(whole, message=f"{whole.message}\n{entry.message}")
    if whole is not None:
        yield whole


def as_text(entry: LogEntry) -> str:
    """Return the form of agent.log, in local time."""
    first, *more = entry.message.split("\n")
    if entry.continued:
        return "\n".join(CONTINUED + line for line in (first, *more))
    head = f"{_stamp(entry.time)} {entry.level} {entry.logger}: {first}{format_fields(entry.fields)}"
    return "\n".join([head, *(CONTINUED + line for line in more)])


def as_json(entry: LogEntry) -> str:
    """Return one line of JSON: time, level, logger, message, the fields, and `continued`."""
    value: dict[str, Any] = {"message": entry.message, "continued": True}
    if not entry.continued:
        value = {"time": _stamp(entry.time), "level": entry.level, "logger": entry.logger, "message": entry.message}
        value |= entry.fields
    return json.dumps(value, ensure_ascii=False)


def _split_fields(text: str) -> tuple[str, dict[str, str]]:
    """Split ` session=… plugin=…` from the end of a line; other names stay in the message."""
    fields: dict[str, str] = {}
    rest = text
    while (match := _LAST_FIELD.search(rest)) is not None and match[1] in _FIELDS and match[1] not in fields:
        fields[match[1]] = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        rest = rest[: match.start()]
    return rest, dict(reversed(fields.items()))


def _stamp(time: float) -> str:
    return datetime.fromtimestamp(time).astimezone().isoformat(" ", "milliseconds")


def _level(priority: str) -> str:
    number = int(priority) if priority.isdigit() else 6
    return {0: "CRITICAL", 1: "CRITICAL", 2: "CRITICAL", 3: "ERROR", 4: "WARNING", 7: "DEBUG"}.get(number, "INFO")


def _text(value: Any) -> str:
    """Return the text of a field.

    JSON of the journal has a list of bytes for invalid UTF-8, of texts for repeats.
    """
    if isinstance(value, list):
        if all(isinstance(item, int) for item in value):
            return bytes(value).decode("utf-8", "backslashreplace")
        return _text(value[0]) if value else ""
    return "" if value is None else str(value)
