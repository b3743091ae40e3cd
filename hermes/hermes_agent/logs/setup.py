"""The handlers of a process's log, chosen once at its start.

If stderr is the journal (JOURNAL_STREAM), the log goes there: structured entries with the extra `service`, else lines
with an `<N>` prefix that journald reads as the priority. There is no file then. Otherwise it goes to
`$HERMES_HOME/logs/agent.log` (INFO and up) and `errors.log` (WARNING and up). The daemon also writes gateway.log, and
to stderr: lines with the prefix, or short ones on a terminal.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.log_context import clear_attributions
from hermes_agent.logs.handlers import (
    JournalHandler,
    LineFormatter,
    PluginDebugFormatter,
    PrefixFormatter,
    RotatingFile,
    ScreenFormatter,
    StartScreen,
    journal_sender,
    report_failure,
    stderr_is_journal,
)

LogMode = Literal["terminal", "daemon"]
"""`terminal`: a command of a user or a script, which owns stderr. `daemon`: `hermes gateway run`."""

QUIET = ("aiohttp", "asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "mcp", "openai", "urllib3", "uvicorn")
"""Loggers of libraries, shown from WARNING up: below that they log every request, with addresses."""
PLUGIN_LOGGERS = (
    "hermes_agent.plugins",
    "hermes_agent.app.plugins",
    "hermes_agent.app.manifest_cache",
    "hermes_plugins",
)
GATEWAY_LOGGERS = (
    "gateway", "hermes_plugins", "plugins.platforms",
    "hermes_agent.gateway", "hermes_agent.server", "hermes_agent.app.daemon",
)  # fmt: skip
"""Loggers of upstream's gateway.log (plugin contract §12.5), and this program's front ends."""
MCP_STDERR = "hermes_agent.mcp.stderr"
"""Output of MCP servers, which has its own file."""
_OFF = ("", "0", "false", "no", "off")

logger = logging.getLogger(__name__)


class LogSettings(Protocol):
    """The settings of the block `logging`."""

    @property
    def level(self) -> str: ...

    @property
    def max_size_mb(self) -> float: ...

    @property
    def backup_count(self) -> int: ...


@lazy_dataclass(frozen=True, slots=True)
class LogSetup:
    """Where the log goes."""

    log: Literal["journal", "file"]
    """Where `hermes logs` finds it."""
    structured: bool
    """Whether entries of the journal have separate fields."""
    handlers: tuple[tuple[str, logging.Handler], ...]
    """Name of the logger and handler, for `release_logging`."""


class _Stream(logging.StreamHandler[TextIO]):
    """Writes lines to the current `sys.stderr`."""

    def handleError(self, record: logging.LogRecord) -> None:
        report_failure(self, record)

    def __repr__(self) -> str:
        return "stderr"


class _LoggerFilter(logging.Filter):
    """Passes records of some loggers and their children."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names

    def filter(self, record: logging.LogRecord) -> bool:
        return any(record.name == name or record.name.startswith(f"{name}.") for name in self._names)


_active: list[LogSetup] = []
_setup_lock = threading.RLock()


def configure_logging(
    settings: LogSettings,
    *,
    home: Path,
    mode: LogMode,
    level_name: str | None = None,
    environ: Mapping[str, str] | None = None,
    stderr: TextIO | None = None,
) -> LogSetup:
    """Set the handlers of this process; a second call replaces those of the first.

    Args:
        home: the files go to its folder `logs`, created with the first record.
        level_name: None uses the level of the config.
        environ: None is that of the process; JOURNAL_STREAM and HERMES_PLUGINS_DEBUG are read.
        stderr: None is `sys.stderr`.
    """
    env = os.environ if environ is None else environ
    stream = sys.stderr if stderr is None else stderr
    level = _level(level_name or settings.level)
    in_journal = stream is not None and stderr_is_journal(env, _descriptor(stream))
    handlers: list[logging.Handler] = []
    structured = False
    if in_journal:
        send = journal_sender()
        structured = send is not None
        handlers.append(JournalHandler(send) if send is not None else _stream(stream, PrefixFormatter()))
    else:
        handlers += _files(settings, home / "logs", level, mode)
        if mode == "daemon" and stream is not None:
            handlers.append(_screen(stream, level) if stream.isatty() else _stream(stream, PrefixFormatter()))
    wanted = [("", handler) for handler in handlers]
    if not in_journal:
        wanted.append((MCP_STDERR, RotatingFile(home / "logs" / "mcp-stderr.log", **_size(settings))))
    if env.get("HERMES_PLUGINS_DEBUG", "").strip().lower() not in _OFF and stream is not None:
        wanted += [(name, _stream(stream, PluginDebugFormatter())) for name in PLUGIN_LOGGERS]
    setup = LogSetup("journal" if in_journal else "file", structured, tuple(wanted))
    _install(setup, level, log_crashes=mode == "daemon")
    return setup


def release_logging() -> None:
    """Remove the handlers and close their files."""
    with _setup_lock:
        clear_attributions()
        while _active:
            for name, handler in _active.pop().handlers:
                logging.getLogger(name).removeHandler(handler)
                if name:
                    logging.getLogger(name).setLevel(logging.NOTSET)
                handler.close()
            logging.captureWarnings(False)
            sys.excepthook = sys.__excepthook__
            threading.excepthook = threading.__excepthook__


def _files(settings: LogSettings, directory: Path, level: int, mode: LogMode) -> list[logging.Handler]:
    size = _size(settings)
    files: list[logging.Handler] = [
        RotatingFile(directory / "agent.log", level=level, **size),
        RotatingFile(directory / "errors.log", level=max(level, logging.WARNING), **size),
    ]
    if mode == "daemon":
        gateway = RotatingFile(directory / "gateway.log", level=level, **size)
        gateway.addFilter(_LoggerFilter(GATEWAY_LOGGERS))
        files.append(gateway)
    return files


def _size(settings: LogSettings) -> dict[str, int]:
    return {
        "max_bytes": int(settings.max_size_mb * 1024 * 1024),
        "backups": settings.backup_count,
    }


def end_start() -> None:
    """Report the end of the start: a user in a terminal then sees all later lines."""
    for setup in _active:
        for _, handler in setup.handlers:
            if isinstance(handler, StartScreen):
                handler.end_start()


def _screen(stream: TextIO, level: int) -> logging.Handler:
    """Return the handler for a user in a terminal; a debug level shows all lines."""
    return _stream(stream, LineFormatter()) if level <= logging.DEBUG else StartScreen(stream, ScreenFormatter())


def _stream(stream: TextIO, formatter: logging.Formatter) -> _Stream:
    handler = _Stream(stream)
    handler.setFormatter(formatter)
    return handler


def _install(setup: LogSetup, level: int, *, log_crashes: bool) -> None:
    with _setup_lock:
        release_logging()
        for name, handler in setup.handlers:
            if name:
                handler.setLevel(logging.DEBUG)
                logging.getLogger(name).setLevel(logging.DEBUG)
            elif handler.level == logging.NOTSET:
                handler.setLevel(level)
            logging.getLogger(name).addHandler(handler)
        logging.getLogger().setLevel(level)
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.captureWarnings(True)
        if log_crashes:
            sys.excepthook = _log_crash
            threading.excepthook = _log_thread_crash
        _active.append(setup)


def _log_crash(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    """Log an uncaught exception; Python's own hook would write its secrets to stderr."""
    if issubclass(kind, KeyboardInterrupt):
        return
    logger.critical("daemon: uncaught error", exc_info=(kind, error, traceback))


def _log_thread_crash(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or issubclass(args.exc_type, SystemExit):
        return
    name = args.thread.name if args.thread is not None else "?"
    logger.error("thread %s ended with an error", name, exc_info=(args.exc_type, args.exc_value, args.exc_traceback))


def _level(name: object) -> int:
    """Return the number of a level's name; the schema of the config allows no other value."""
    number = logging.getLevelNamesMapping().get(str(name).upper())
    return logging.INFO if number is None else number


def _descriptor(stream: TextIO) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # a stream in memory has none
        return -1
