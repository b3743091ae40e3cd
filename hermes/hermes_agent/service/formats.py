"""Log records as text: one form for files and terminals, one for stderr that a service manager reads.

Every form goes through `redact`: no handler writes a text that did not.
"""

from __future__ import annotations

import logging
import sys
from datetime import datetime

from hermes_agent.core.redact import redactor
from hermes_agent.service.context import format_fields, record_fields

__all__ = [
    "CONTINUED",
    "JournalText",
    "LineFormatter",
    "PrefixFormatter",
    "PluginDebugFormatter",
    "ScreenFormatter",
    "syslog_priority",
    "redact_text",
    "report_failure",
]

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
