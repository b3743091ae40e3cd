"""The environment of processes that work for the model: a list of names, so that no key gets into it by accident."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["find_shell", "tool_environment"]

logger = logging.getLogger(__name__)

_NAMES = """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TERM COLORTERM NO_COLOR TZ TZDIR TMPDIR TMP TEMP COLUMNS LINES
    LOCALE_ARCHIVE SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE GIT_SSL_CAINFO
    NIX_PATH NIX_PROFILES NIX_REMOTE XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME XDG_CONFIG_DIRS
    XDG_DATA_DIRS NO_PROXY no_proxy
"""
_ALLOWED = frozenset(_NAMES.split())
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"})
_NEVER = frozenset(
    {"CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "JOURNAL_STREAM", "INVOCATION_ID", "MAINPID", "SYSTEMD_EXEC_PID"}
)
_NEVER_STARTS = ("WATCHDOG_", "LISTEN_", "MEMORY_PRESSURE_")


def tool_environment(environ: Mapping[str, str], *, passthrough: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a process that works for the model: what is listed, and nothing else.

    Args:
        passthrough: further names, from `terminal.env_passthrough`. What ties a process to the service manager
            (the notify socket, the credential directory, …) is left out even when it is named.
    """
    wanted = set(passthrough)
    for name in sorted(wanted):
        if name in _NEVER or name.startswith(_NEVER_STARTS):
            logger.warning("terminal.env_passthrough names %s: it is the service manager's and is not passed on", name)
            wanted.discard(name)
    return {name: value for name, value in environ.items() if name in wanted or _is_allowed(name, value)}


def _is_allowed(name: str, value: str) -> bool:
    if name in _PROXIES:
        return "@" not in value  # http://user:password@proxy
    return name in _ALLOWED or name.startswith("LC_")


def find_shell(environ: Mapping[str, str]) -> str:
    """Return the shell for command lines: bash, or sh where there is none."""
    for path in ("/bin/bash", shutil.which("bash", path=environ.get("PATH")), "/bin/sh"):
        if path and Path(path).exists():
            return path
    return "sh"
