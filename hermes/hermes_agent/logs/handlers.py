"""Log records as text: one form for files and terminals, one for stderr that a service manager reads.

Every form goes through `redact`: no handler writes a text that did not.

Log records as structured entries of the journal (extra `service`: systemd-python).

A log file that several processes write and rotate without losing a line.

What a user who starts the daemon in a terminal sees of its log: the first lines, and how many more there are.

The files of the log have everything. Once the start is over, so is the limit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TextIO

from hermes_agent.core.log_context import format_fields, record_fields
from hermes_agent.core.redaction import redactor
from hermes_agent.system.locks import FileLock

CONTINUED = "    "
"""Before every line of a record but the first, so that no message can pass for a record of its own."""

_LINES = "_hermes_lines"
"""Where a record keeps what it came to."""
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Control characters: an escape sequence in a log would be obeyed by the terminal that shows it."""


def redact_text(text: str) -> str:
    """Mask the secrets in `text`, and make visible what would act on a terminal or cannot be encoded."""
    text = redactor(text)
    if text.isascii() and text.isprintable():  # most are
        return text
    return text.replace("\r\n", "\n").translate(_VISIBLE).encode("utf-8", "backslashreplace").decode()


def syslog_priority(level: int) -> int:
    """Return syslog's number for a level: 2 critical, 3 error, 4 warning, 6 info, 7 debug."""
    if level >= logging.CRITICAL:
        return 2
    if level >= logging.ERROR:
        return 3
    if level >= logging.WARNING:
        return 4
    return 6 if level >= logging.INFO else 7


class JournalText(logging.Formatter):
    """Message and traceback, redacted; the base of the other forms."""

    def __init__(self, form: str = "%(message)s") -> None:
        super().__init__(form)

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole text of `record`; one whose arguments do not fit its message keeps both."""
        try:
            text = super().format(record)
        except (TypeError, ValueError, KeyError) as exc:
            record.msg = f"{record.msg} (logged with arguments that do not fit: {record.args!r}, {exc})"
            record.args = None
            text = super().format(record)
        text = redact_text(text)
        # The text of the traceback is kept in the record, where handlers of others would find it as it was.
        record.exc_text = None
        return text


class _NamedText(JournalText):
    """`hermes_agent.agent: text session=… plugin=…`; made once for all handlers of a record."""

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _with_fields(super().formatMessage(record), record)

    def lines(self, record: logging.LogRecord) -> list[str]:
        """Return the lines of `record`, the further ones indented."""
        lines: list[str] | None = record.__dict__.get(_LINES)
        if lines is None:
            first, *more = super().format(record).split("\n")
            lines = record.__dict__[_LINES] = [first, *(CONTINUED + line for line in more)]
        return lines


class LineFormatter(_NamedText):
    """`2026-11-21 23:04:02.125+00:00 INFO hermes_agent.agent: text session=… plugin=…`, further lines indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole text of `record`."""
        when = datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")
        return f"{when} {record.levelname} " + "\n".join(self.lines(record))


class ScreenFormatter(JournalText):
    """`23:04:02 INFO text: ValueError: reason`, on a terminal: no traceback; `agent.log` has it."""

    def formatException(self, exc_info: object) -> str:
        """Return nothing: `formatMessage` names the error."""
        return ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message with the error that belongs to it."""
        text, error = super().formatMessage(record), record.exc_info[1] if record.exc_info else None
        return text if error is None or str(error) in text else f"{text}: {type(error).__name__}: {error}"

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole text of `record`."""
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        return f"{when} {record.levelname} " + super().format(record).replace("\n", f"\n{CONTINUED}")


class PrefixFormatter(_NamedText):
    """`<6>hermes_agent.agent: text session=…`: each line with its priority, as sd-daemon(3) has it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole text of `record`."""
        mark = f"<{syslog_priority(record.levelno)}>"
        return "\n".join(mark + line for line in self.lines(record))


class PluginDebugFormatter(JournalText):
    """`[plugins] DEBUG text`, the form that HERMES_PLUGINS_DEBUG promises."""

    def __init__(self) -> None:
        super().__init__("[plugins] %(levelname)s %(message)s")


def _with_fields(text: str, record: logging.LogRecord) -> str:
    """The fields end the first line, where a reader finds them however long the message is."""
    first, line_break, rest = text.partition("\n")
    return first + format_fields(record_fields(record)) + line_break + rest


def report_failure(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Say once per handler on stderr that a record could not be written.

    `logging.Handler.handleError` would print the record's arguments as they are.
    """
    if getattr(handler, "failed", False):
        return
    handler.failed = True  # type: ignore[attr-defined]  # a mark on the handler, whichever class it has
    error = sys.exc_info()[1]
    place = f"{type(error).__name__}: {error}" if error else "unknown error"
    stream = sys.stderr
    if stream is not None and not stream.closed:
        stream.write(redact_text(f"hermes: cannot write the log ({handler!r}, record of {record.name}): {place}\n"))


JournalSend = Callable[..., object]
"""`systemd.journal.send`: the message, then fields by keyword."""

IDENTIFIER = "hermes-agent"


def stderr_is_journal(environ: Mapping[str, str], fd: int = 2) -> bool:
    """Say whether what is written to `fd` goes to the journal: JOURNAL_STREAM names its device and inode."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def journal_sender() -> JournalSend | None:
    """Return `systemd.journal.send`, or None when the extra `service` is not installed."""
    try:
        from systemd import journal  # optional, and needed only under systemd
    except ImportError:
        return None
    send: JournalSend = journal.send
    return send


class JournalHandler(logging.Handler):
    """Sends each record with its fields: PRIORITY, LOGGER, CODE_*, THREAD_NAME, EXCEPTION and HERMES_*."""

    def __init__(self, send: JournalSend, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._send = send
        self.setFormatter(JournalText())

    def emit(self, record: logging.LogRecord) -> None:
        """Send one entry."""
        try:
            self._send(self.format(record), **_fields(record))
        except Exception:  # noqa: BLE001 - a log that cannot be written must not end the program; report() tells
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that the journal does not take entries."""
        report_failure(self, record)

    def __repr__(self) -> str:
        return "journal"


def _fields(record: logging.LogRecord) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        "PRIORITY": str(syslog_priority(record.levelno)),
        "SYSLOG_IDENTIFIER": IDENTIFIER,
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
        "CODE_FILE": record.pathname,
        "CODE_LINE": record.lineno,
        "CODE_FUNC": record.funcName or "",
    }
    if record.exc_info and record.exc_info[0] is not None:
        fields["EXCEPTION"] = record.exc_info[0].__qualname__
    for name, value in record_fields(record).items():
        fields[f"HERMES_{name.upper()}"] = redact_text(value)
    return fields


LOOK_S = 0.05
"""Far less than a follower waits before it leaves a file that was rotated away."""


class RotatingFile(logging.Handler):
    """Appends records to `path`; at `max_bytes` it becomes `path.1`, up to `path.<backups>`.

    The file is made at the first record, with mode 0600. A rotation by another process is noticed before the next
    record, or `LOOK_S` later where the file has so much room that none is near.
    (`logging.handlers.RotatingFileHandler` would go on writing into the renamed file.)

    Args:
        max_bytes: size that a file does not exceed, unless a single record does; 0 means never rotate.
        backups: old files that are kept; 0 means none.
    """

    def __init__(self, path: Path, *, max_bytes: int, backups: int, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._fd: int | None = None
        self._file = (0, 0)
        """Device and inode of the open file."""
        self._looked = 0.0
        """When it was looked whether the file still has its name."""
        self._size = 0
        """What it had then, and what was written since."""
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, as one piece."""
        try:
            data = f"{self.format(record)}\n".encode()
            fd, size = self._current()
            if self._is_full(size, len(data)):
                fd = self._rotate(len(data))
            os.write(fd, data)
            self._size += len(data)
        except Exception:  # noqa: BLE001 - a log that cannot be written must not end the program; report() tells
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that the file cannot be written."""
        report_failure(self, record)

    def close(self) -> None:
        """Close the file."""
        with self.lock or contextlib.nullcontext():
            self._drop()
        super().close()

    def __repr__(self) -> str:
        return str(self.path)

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _current(self, *, look: bool = False) -> tuple[int, int]:
        """Return a descriptor of the file that has the name now, and its size. `look`: at the disk, in any case."""
        if self._fd is not None:
            now = time.monotonic()
            if not look and now - self._looked < LOOK_S and self._size < self._max_bytes // 2:
                return self._fd, self._size
            self._looked = now
            try:
                there = os.stat(self.path)  # noqa: PTH116 - for each record, and quicker
                if (there.st_dev, there.st_ino) == self._file:
                    self._size = there.st_size
                    return self._fd, self._size
            except FileNotFoundError:
                pass
            self._drop()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        made = os.fstat(self._fd)
        self._file, self._size = (made.st_dev, made.st_ino), made.st_size
        return self._fd, self._size

    def _is_full(self, size: int, more: int) -> bool:
        return self._max_bytes > 0 and size > 0 and size + more > self._max_bytes

    def _rotate(self, more: int) -> int:
        with rotation_lock(self.path.parent):
            fd, size = self._current(look=True)  # another process may have been quicker
            if not self._is_full(size, more):
                return fd
            for number in range(self._backups - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._backup(number).replace(self._backup(number + 1))
            if self._backups:
                self.path.replace(self._backup(1))
            else:
                self.path.unlink()
            return self._current(look=True)[0]

    def _backup(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def rotation_lock(directory: Path, *, shared: bool = False) -> FileLock:
    """Return the lock that keeps the names of the log files as they are; it is on the directory itself.

    Args:
        shared: for a reader; others may read at the same time.
    """
    return FileLock(directory, shared=shared, subject=f"the log in {directory}")


FIRST_LINES = 6
"""Until the start is over."""
LAST_LINES = 2
"""From then on, of which one says that the daemon is ready."""
START_S = 10.0
"""How long after that things of the start are still reported: platforms that do not connect, say."""
REST = "`hermes gateway status` and `hermes doctor` say what is wrong, `hermes logs` everything"


class StartScreen(logging.StreamHandler[TextIO]):
    """Lines to a terminal."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._left, self._held = FIRST_LINES, 0
        self._until: float | None = None
        """When the limit ends; None during the start."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, or count it."""
        if self._until is not None and time.monotonic() > self._until:
            super().emit(record)
            return
        try:
            lines = self.format(record).count("\n") + 1
        except Exception:  # noqa: BLE001 - a record that cannot be formatted is reported by the handler
            lines = 1
        if self._held == 0 and lines <= self._left:
            self._left -= lines
            super().emit(record)
            return
        self._held += 1
        if self._until is not None and self._held == 1:
            self._print(f"more follows: {REST}")

    def end_start(self) -> None:
        """Say how much was left out; what comes next is shown. Safe to call again."""
        self.acquire()
        try:
            if self._until is not None:
                return
            if self._held:
                self._print(f"and {self._held} more: {REST}")
            self._left, self._held, self._until = LAST_LINES, 0, time.monotonic() + START_S
        finally:
            self.release()

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a record that cannot be written."""
        report_failure(self, record)

    def _print(self, text: str) -> None:
        self.stream.write(f"{text}\n")
        self.flush()
