"""Readers of the log: agent.log with its rotated files, and the journal through `journalctl`.

`choose_reader` decides which of them `hermes logs` uses.
"""

from __future__ import annotations

import grp
import json
import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Literal

from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.logs.entries import LogEntry, LogFilter, from_journal, from_line, group, select
from hermes_agent.logs.handlers import rotation_lock
from hermes_agent.service.daemon_state import STATE_NAME, Scope, read_state

POLL_S = 0.25
"""Seconds between two looks at a file; there is no portable notification."""
BLOCK = 1 << 16


def wait_for_more() -> bool:
    """Wait a little; return True to continue."""
    time.sleep(POLL_S)
    return True


class LogFile:
    """One reader of agent.log; `recent` comes first, then `follow`, and no line is lost between them.

    Args:
        path: the newest file; `path.1`, `path.2`, … are older.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._rest = b""

    def exists(self) -> bool:
        """Whether there is a log."""
        return self.path.exists() or bool(self._backups())

    def recent(self, count: int, wanted: LogFilter) -> list[LogEntry]:
        """Return the last `count` matching records, oldest first.

        Raises:
            UserError: a file cannot be read.
        """
        opened = self._open_newer()
        self._fd = opened.pop() if opened else None
        found: deque[LogEntry] = deque(_last(self._take(), wanted, count))
        for fd in reversed(opened):
            if len(found) < count:
                found.extendleft(reversed(_last(_lines(_read(fd)), wanted, count - len(found))))
            os.close(fd)
        return list(found)

    def follow(self, wanted: LogFilter, wait: Callable[[], bool] = wait_for_more) -> Iterator[LogEntry]:
        """Yield matching entries as they are written, across rotations.

        Args:
            wait: called if there is nothing new; False ends the iteration.
        """
        yield from select(self._entries(wait), wanted)

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _entries(self, wait: Callable[[], bool]) -> Iterator[LogEntry]:
        while True:
            yield from map(from_line, self._take())
            gone = self._fd is not None and not self._is_current(self.path)
            if not wait():
                yield from map(from_line, self._take())
                return
            if gone:
                # A writer that looked before the rotation may have written after it: read once more.
                yield from map(from_line, self._take())
                yield from self._move_on()
            elif self._fd is None:
                yield from self._move_on()

    def _move_on(self) -> Iterator[LogEntry]:
        """Read the files newer than the rotated one; the newest stays open."""
        opened = self._open_newer()
        if not opened:
            return
        self.close()
        self._fd, self._rest = opened.pop(), b""
        for fd in opened:
            lines = _lines(_read(fd))
            os.close(fd)
            yield from map(from_line, lines)

    def _open_newer(self) -> list[int]:
        """Open the files newer than the open one (all if none is open), oldest first."""
        try:
            with rotation_lock(self.path.parent, shared=True):
                opened = [self._open(path) for path in reversed(self._newer())]
        except FileNotFoundError:
            return []
        except PermissionError as exc:
            raise _unreadable(self.path.parent, exc) from exc
        return [fd for fd in opened if fd is not None]

    def _newer(self) -> list[Path]:
        """Return the files newer than the open one, newest first."""
        files = [self.path, *self._backups()]
        if self._fd is None:
            return files
        newer = list(takewhile(lambda file: not self._is_current(file), files))
        if len(newer) < len(files):
            return newer
        # The open file has no name any more: rotated out, or removed by hand.
        last_written = os.fstat(self._fd).st_mtime_ns
        return [file for file in files if file.exists() and file.stat().st_mtime_ns > last_written]

    def _take(self) -> list[str]:
        """Return the lines that were completed since the last call."""
        if self._fd is None:
            return []
        if os.fstat(self._fd).st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            os.lseek(self._fd, 0, os.SEEK_SET)  # the file was truncated
            self._rest = b""
        data = [self._rest, _read(self._fd)]
        text, line_break, rest = b"".join(data).rpartition(b"\n")
        self._rest = rest
        return _lines(text + line_break)

    def _backups(self) -> list[Path]:
        """Return the rotated files, newest first."""
        found = [
            (int(number), path)
            for path in self.path.parent.glob(f"{self.path.name}.*")
            if (number := path.name[len(self.path.name) + 1 :]).isdigit()
        ]
        return [path for _, path in sorted(found)]

    def _is_current(self, path: Path) -> bool:
        try:
            return self._fd is not None and os.path.samestat(os.fstat(self._fd), path.stat())
        except FileNotFoundError:
            return False

    @staticmethod
    def _open(path: Path) -> int | None:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unreadable(path, exc) from exc


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot read {path}: {error.strerror}", hint="Read it as the user that it belongs to.")


def _last(lines: Iterable[str], wanted: LogFilter, count: int) -> list[LogEntry]:
    return list(deque(group(select(map(from_line, lines), wanted)), maxlen=count))


def _read(fd: int) -> bytes:
    """Return the rest of an open file."""
    data = []
    while block := os.read(fd, BLOCK):
        data.append(block)
    return b"".join(data)


def _lines(data: bytes) -> list[str]:
    """Return the complete lines; `str.splitlines` would also split at other characters."""
    return data.decode("utf-8", "backslashreplace").split("\n")[:-1]


_PRIORITY = {"DEBUG": "7", "INFO": "6", "WARNING": "4", "ERROR": "3", "CRITICAL": "2"}


@lazy_dataclass(slots=True)
class JournalReader:
    """One reader of a unit's journal.

    `recent` comes first, then `follow`, and no entry is lost between them.
    """

    unit: str | None
    """Name of the unit; None if only `invocation` is known."""
    scope: Scope | None = "system"
    """The manager of the unit; None looks at both."""
    invocation: str | None = None
    """systemd's id of one start."""
    _cursor: str = ""

    def recent(self, count: int, wanted: LogFilter) -> list[LogEntry]:
        """Return the last `count` matching records, oldest first.

        Raises:
            UserError: there is no journalctl, or it fails.
        """
        found: list[LogEntry] = []
        lines: list[LogEntry] = []
        for entry in self._read(wanted, "--reverse"):
            self._cursor = self._cursor or entry.cursor
            lines.append(entry)
            if entry.continued:
                continue
            if len(found) < count:
                found += group(select(reversed(lines), wanted))
            lines = []
            if len(found) >= count:
                break
        return found[::-1]

    def follow(self, wanted: LogFilter) -> Iterator[LogEntry]:
        """Yield matching entries as they come, until the caller stops.

        Raises:
            UserError: there is no journalctl, or it fails.
        """
        place = ["--after-cursor", self._cursor] if self._cursor else ["--lines=all"]
        yield from select(self._read(wanted, "--follow", *place), wanted)

    def may_be_hidden(self) -> bool:
        """Whether this user sees only its own entries, so that some may be hidden."""
        if os.geteuid() == 0 or self.scope == "user":
            return False
        mine = {os.getegid(), *os.getgroups()}
        return not any(_group_id(name) in mine for name in ("systemd-journal", "adm", "wheel"))

    def _read(self, wanted: LogFilter, *options: str) -> Iterator[LogEntry]:
        command = ["journalctl", "--quiet", "--no-pager", "--all", "--output=json", *self._match(), *options]
        command.append(f"--priority={_PRIORITY[wanted.level]}")
        if wanted.since is not None:
            command.append(f"--since=@{int(wanted.since)}")
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except FileNotFoundError as exc:
            raise UserError(
                "the daemon logs to the journal, and there is no journalctl to read it",
                hint="Run `hermes logs` where systemd is installed; `--source file` reads agent.log.",
            ) from exc
        assert process.stdout is not None and process.stderr is not None
        try:
            for line in process.stdout:
                yield from_journal(json.loads(line))
            if process.wait():
                text = process.stderr.read().decode("utf-8", "replace").strip()
                raise UserError(f"journalctl failed with status {process.returncode}: {text}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    def _match(self) -> list[str]:
        if self.unit is None:
            return [f"_SYSTEMD_INVOCATION_ID={self.invocation}"]
        both = (("system", "--unit"), ("user", "--user-unit"))
        return [f"{option}={self.unit}" for scope, option in both if self.scope in (None, scope)]


def _group_id(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


LogSource = Literal["auto", "journal", "file"]
_AGO = re.compile(r"(\d+)\s*(s|sec|m|min|h|d|w)(?:\s+ago)?")
_UNIT_S = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def choose_reader(home: Path, *, source: LogSource = "auto", unit: str | None = None) -> LogFile | JournalReader:
    """Return the reader for the log of the daemon's last start with this home.

    Args:
        source: `journal` or `file` require one; `auto` uses the journal if the daemon logs there.
        unit: read the journal of this unit, whatever the last start recorded.

    Raises:
        UserError: the journal is required, and no unit is known.
    """
    file = LogFile(home / "logs" / "agent.log")
    if source == "file":
        return file
    state = read_state(home)
    if unit is not None:
        name = unit if "." in unit else f"{unit}.service"
        return JournalReader(name, state.scope if state is not None and state.unit == name else None)
    if state is not None and (state.log == "journal" or source == "journal") and (state.unit or state.invocation):
        return JournalReader(state.unit, state.scope, state.invocation)
    if source == "journal":
        raise UserError(
            f"no daemon that systemd started has run with this home: {home / STATE_NAME} names no unit",
            hint="Name the unit: `hermes logs --unit hermes-agent`.",
        )
    return file


def parse_since(text: str, now: float | None = None) -> float:
    """Return the time that `text` means, in seconds since 1970.

    Args:
        text: a date, a date and time (local, or with an offset), `today`, `yesterday`, or a time span in the past:
            `90s`, `10m`, `2h`, `3d`, `1w`.

    Raises:
        UserError: it is none of these.
    """
    moment = time.time() if now is None else now
    word = text.strip().lower()
    if (ago := _AGO.fullmatch(word)) is not None:
        return moment - int(ago[1]) * _UNIT_S[ago[2]]
    midnight = datetime.fromtimestamp(moment).replace(hour=0, minute=0, second=0, microsecond=0)
    if word == "today":
        return midnight.timestamp()
    if word == "yesterday":
        return (midnight - timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise UserError(
            f"--since {text!r} is no time",
            hint="Write 2026-11-21, '2026-11-21 08:30', today, yesterday, or how long ago: 90s, 10m, 2h, 3d, 1w.",
            exit_status=EXIT_USAGE,
        ) from None
