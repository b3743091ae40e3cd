"""Log records as structured entries of the journal (extra `service`: systemd-python)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

from hermes_agent.service.context import record_fields
from hermes_agent.service.formats import JournalText, redact_text, report_failure, syslog_priority

__all__ = ["JournalHandler", "journal_sender", "stderr_is_journal"]

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
