"""`hermes plugins reload`: have the running daemon load a plugin anew."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.credentials import Credentials
from hermes_agent.server import KEY_NAME, file_key, read_settings
from hermes_agent.server.whereabouts import ask_daemon_http
from hermes_agent.service.lock import lock_holder
from hermes_agent.service.state import read_note

__all__ = ["request_daemon", "run_reload"]

RELOAD_LIMIT_S = 600.0
"""Longest wait for the answer; every plugin has `plugins.load_timeout_s` of its own."""


def run_reload(args: argparse.Namespace) -> int:
    """Print what became of each plugin; 1 when one of them did not load."""
    status, answer = request_daemon("POST", "/v1/plugins/reload", {"name": args.name} if args.name else None)
    if status not in (200, 409):
        raise UserError(str((answer.get("error") or {}).get("message") or f"the daemon answered with status {status}"))
    for one in answer.get("plugins", ()):
        print(f"{one['key']}: {one['outcome']}" + (f": {one['reason']}" if one["reason"] else ""))
    return EXIT_OK if status == 200 else EXIT_FAILED


def request_daemon(
    method: str, path: str, body: Any = None, *, timeout_s: float = RELOAD_LIMIT_S
) -> tuple[int, dict[str, Any]]:
    """Send a request to the daemon of this home, with its key.

    Raises:
        UserError: none runs, or it does not answer.
    """
    home = hermes_home()
    if lock_holder(home) is None:
        raise UserError(
            f"no daemon runs with the home {home}",
            hint="Plugins are loaded when it starts: `hermes gateway run`. In a conversation: `/plugins reload`.",
        )
    address = read_note(home, "http")
    if address is None:
        raise UserError("the daemon serves no HTTP", hint="Send it SIGHUP: it loads changed plugins then, too.")
    try:
        return ask_daemon_http(address, _key(home), method, path, body, timeout_s=timeout_s)
    except (OSError, ValueError) as exc:
        raise UserError(f"the daemon at {address} did not answer: {exc}") from exc


def _key(home: Path) -> str | None:
    """Return the key; its file is read but not made."""
    configured = read_settings(load(home), Credentials(home, os.environ)).key
    return configured or (file_key(home) if (home / KEY_NAME).exists() else None)
