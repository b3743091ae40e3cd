"""Isolated environment of a test: its own home, environment variables and log."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from hermes_agent.adapters.base import set_direct_loop
from hermes_agent.compat import adapter_loop, import_hook
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.host import use_host
from hermes_agent.plugins.loader import MEMORY_PARENT, PARENT

__all__ = ["IsolatedEnvironment", "LogLine", "captured_log", "install_direct_loop", "isolated_environment"]

_NAMES = """
    PATH LANG LANGUAGE TERM NO_COLOR TZ TZDIR TMPDIR TMP TEMP USER LOGNAME SHELL LOCALE_ARCHIVE SSL_CERT_FILE
    NIX_SSL_CERT_FILE NIX_PATH VIRTUAL_ENV LD_LIBRARY_PATH NIX_LD_LIBRARY_PATH CI
"""
KEPT = frozenset(_NAMES.split())
KEPT_STARTS = ("LC_", "PYTHON", "PYTEST_", "COV_", "COVERAGE_")
"""Prefixes of the other variables that stay visible. A secret in the environment must not influence a test."""
PYTEST_PREFIX = "PYTEST_"
"""Prefix of variables that pytest changes while a test runs."""


class IsolatedEnvironment(LazyNamedTuple):
    """Paths of an isolated environment."""

    base: Path
    """`$HOME`; removed at the end."""
    home: Path
    """`$HERMES_HOME`, the folder `.hermes` in `base`."""
    workspace: Path
    """`terminal.cwd`: working directory of the file tools and of the tool `terminal`."""
    site: Path
    """Entry of `sys.path` for the metadata of entry points."""
    made_modules: list[str]
    """Names to remove from `sys.modules` at the end."""


@contextlib.contextmanager
def isolated_environment(env: Mapping[str, str] | None = None) -> Iterator[IsolatedEnvironment]:
    """Create a home, an environment and an entry of `sys.path`; restore the process at the end.

    Restored are `os.environ`, `sys.path`, the import hook of upstream's names, the host of the process, and the
    entries of `sys.modules` that plugins and that hook added. Isolated environments may be nested; they must not
    overlap otherwise.

    Args:
        env: environment variables, in addition to the few that are kept.
    """
    base = Path(tempfile.mkdtemp(prefix="hermes-testing-"))
    ground = IsolatedEnvironment(base, base / ".hermes", base / "workspace", base / "site", [])
    for folder in (ground.home / "plugins", ground.workspace, ground.site):
        folder.mkdir(parents=True)
    environ, path, served = dict(os.environ), list(sys.path), import_hook.installed()
    secrets = redactor.snapshot()
    modules = {name: module for name, module in sys.modules.items() if _is_plugin_module(name)}
    try:
        _forget_plugin_modules()
        import_hook.uninstall()
        _set_environ({n: v for n, v in environ.items() if n in KEPT or n.startswith(KEPT_STARTS)})
        own = {"HOME": str(base), "HERMES_HOME": str(ground.home), "HERMES_BUNDLED_SKILLS": "none"}
        os.environ.update({**own, **(env or {})})
        sys.path.append(str(ground.site))
        import_hook.install()
        with use_host(None):
            yield ground
    finally:
        import_hook.uninstall()
        _forget_plugin_modules()
        for name in ground.made_modules:
            sys.modules.pop(name, None)
        if served:
            import_hook.install()
        sys.modules.update(modules)
        redactor.restore(secrets)
        sys.path[:] = path
        _set_environ(environ)
        shutil.rmtree(base, ignore_errors=True)


def _is_plugin_module(name: str) -> bool:
    return name.partition(".")[0] in (PARENT, MEMORY_PARENT) or import_hook.is_served(name)


def _forget_plugin_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in (PARENT, MEMORY_PARENT)]:
        del sys.modules[name]


def _set_environ(wanted: Mapping[str, str]) -> None:
    """Make `os.environ` equal to `wanted`, except for the variables of pytest."""
    for name in [n for n in os.environ if n not in wanted and not n.startswith(PYTEST_PREFIX)]:
        del os.environ[name]
    os.environ.update({n: v for n, v in wanted.items() if not n.startswith(PYTEST_PREFIX)})


def install_direct_loop() -> None:
    """Let platform adapters without a gateway pass messages to their message handler from now on."""
    set_direct_loop(adapter_loop.receive_message)


FROM_DEBUG = ("hermes_agent", PARENT)
"""Loggers that are recorded from `DEBUG` up; other loggers keep their level."""


class LogLine(LazyNamedTuple):
    """One log line, with secrets masked as in the log files."""

    level: str
    """`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`."""
    logger: str
    text: str

    def __str__(self) -> str:
        return f"{self.level} {self.logger}: {self.text}"


class _LogCollector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(LogLine(record.levelname, record.name, redactor(record.getMessage())))


@contextlib.contextmanager
def captured_log() -> Iterator[list[LogLine]]:
    """Record the log lines of the agent and of plugins from `DEBUG` up during the block.

    Other handlers receive these lines, too.
    """
    keep = _LogCollector()
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in FROM_DEBUG}
    root.addHandler(keep)
    for name in FROM_DEBUG:
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        yield keep.lines
    finally:
        root.removeHandler(keep)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
