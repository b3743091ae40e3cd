"""Handlers and formatters of the log: files with rotation, the journal, stderr, the screen of a start.

Every form masks secrets (`redact_text`). A file may be written and rotated by several processes without losing a line.
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
"""Indentation of all lines of a record but the first, so that no message looks like another record."""

_LINES = "_hermes_lines"
"""Attribute of a record with its formatted lines."""
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Control characters: a terminal that shows a log would obey escape sequences."""


def redact_text(text: str) -> str:
    """Mask the secrets in `text`, and escape characters that act on a terminal or cannot be encoded."""
    text = redactor(text)
    if text.isascii() and text.isprintable():  # most texts are
        return text
    return text.replace("\r\n", "\n").translate(_VISIBLE).encode("utf-8", "backslashreplace").decode()


def syslog_priority(level: int) -> int:
    """Return syslog's number of a level: 2 critical, 3 error, 4 warning, 6 info, 7 debug."""
    if level >= logging.CRITICAL:
        return 2
    if level >= logging.ERROR:
        return 3
    if level >= logging.WARNING:
        return 4
    return 6 if level >= logging.INFO else 7


class JournalText(logging.Formatter):
    """Message and traceback, masked; the base of the other forms."""

    def __init__(self, form: str = "%(message)s") -> None:
        super().__init__(form)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of `record`; if its arguments do not fit its message, it has both."""
        try:
            text = super().format(record)
        except (TypeError, ValueError, KeyError) as exc:
            record.msg = f"{record.msg} (logged with arguments that do not fit: {record.args!r}, {exc})"
            record.args = None
            text = super().format(record)
        text = redact_text(text)
        # The record keeps the text of the traceback, where other handlers would find it unmasked.
        record.exc_text = None
        return text


class _NamedText(JournalText):
    """`hermes_agent.agent: text session=… plugin=…`, made once for all handlers of a record."""

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _with_fields(super().formatMessage(record), record)

    def lines(self, record: logging.LogRecord) -> list[str]:
        """Return the lines of `record`, all but the first indented."""
        lines: list[str] | None = record.__dict__.get(_LINES)
        if lines is None:
            first, *more = super().format(record).split("\n")
            lines = record.__dict__[_LINES] = [first, *(CONTINUED + line for line in more)]
        return lines


class LineFormatter(_NamedText):
    """A time, a level and `hermes_agent.agent: text session=… plugin=…`, with other lines indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole text of `record`."""
        when = datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")
        return f"{when} {record.levelname} " + "\n".join(self.lines(record))


class ScreenFormatter(JournalText):
    """A time, a level and the text, for a terminal; only agent.log has the traceback."""

    def formatException(self, exc_info: object) -> str:
        """Return nothing: `formatMessage` names the error."""
        return ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message with its error."""
        text, error = super().formatMessage(record), record.exc_info[1] if record.exc_info else None
        return text if error is None or str(error) in text else f"{text}: {type(error).__name__}: {error}"

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole text of `record`."""
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        return f"{when} {record.levelname} " + super().format(record).replace("\n", f"\n{CONTINUED}")


class PrefixFormatter(_NamedText):
    """`<6>hermes_agent.agent: text session=…`: each line with its priority, as in sd-daemon(3)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole text of `record`."""
        mark = f"<{syslog_priority(record.levelno)}>"
        return "\n".join(mark + line for line in self.lines(record))


class PluginDebugFormatter(JournalText):
    """`[plugins] DEBUG text`, the form that HERMES_PLUGINS_DEBUG promises."""

    def __init__(self) -> None:
        super().__init__("[plugins] %(levelname)s %(message)s")


def _with_fields(text: str, record: logging.LogRecord) -> str:
    """Return the text with the fields at the end of its first line, where a reader of the log finds them."""
    first, line_break, rest = text.partition("\n")
    return first + format_fields(record_fields(record)) + line_break + rest


def report_failure(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Report on stderr, once for each handler, that a record could not be written.

    `logging.Handler.handleError` would print the arguments of the record unmasked.
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
    """Return whether `fd` writes to the journal: JOURNAL_STREAM has its device and inode."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def journal_sender() -> JournalSend | None:
    """Return `systemd.journal.send`, or None without the extra `service`."""
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
        """Report once that the journal accepts no entries."""
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
"""Seconds; much less than a follower waits before it leaves a rotated file."""


class RotatingFile(logging.Handler):
    """Appends records to `path`; at `max_bytes` it becomes `path.1`, up to `path.<backups>`.

    The first record creates the file with mode 0600. A rotation by another process is noticed before the next record,
    or `LOOK_S` later if the file has so much room that none is near. `logging.handlers.RotatingFileHandler` would
    continue to write into the renamed file.

    Args:
        max_bytes: size that a file does not exceed, unless a single record does; 0 never rotates.
        backups: number of old files to keep.
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
        """Time of the last check that the file still has its name."""
        self._size = 0
        """Its size at that time, plus the bytes written since."""
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, in one piece."""
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
        """Report once that the file cannot be written."""
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
        """Return a descriptor of the file that has the name now, and its size.

        Args:
            look: check the file on disk in any case.
        """
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
            fd, size = self._current(look=True)  # another process may have rotated already
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
    """Return the lock on the names of the log files; it is on their directory.

    Args:
        shared: for a reader; other readers may hold it at the same time.
    """
    return FileLock(directory, shared=shared, subject=f"the log in {directory}")


FIRST_LINES = 6
"""Lines shown until the end of the start."""
LAST_LINES = 2
"""Lines shown after that; one of them says that the daemon is ready."""
START_S = 10.0
"""Seconds after that in which reports of the start still come, such as platforms that do not connect."""
REST = "`hermes gateway status` and `hermes doctor` say what is wrong, `hermes logs` everything"


class StartScreen(logging.StreamHandler[TextIO]):
    """Shows a user in a terminal the first lines of the daemon's log, and the number of the others.

    The log files have all lines. The limit ends after the start.
    """

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._left, self._held = FIRST_LINES, 0
        self._until: float | None = None
        """End of the limit; None during the start."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print or count a record."""
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
        """Report the number of lines left out; later lines are shown. A second call does nothing."""
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
