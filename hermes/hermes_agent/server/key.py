"""The key that every request bears: as configured, or a file of the home that is made at the first start."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import stat
from dataclasses import replace
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.core.redact import redactor
from hermes_agent.server.settings import HttpSettings

__all__ = ["KEY_NAME", "file_key", "with_key"]

logger = logging.getLogger(__name__)

KEY_NAME = "api_server.key"
KEY_BYTES = 32
"""Randomness of a key that we make."""
LONGEST_FILE = 4096
SHORT = 16
"""A configured key with fewer characters than this can be guessed."""

_KEY = re.compile(r"[\x21-\x7e]+")


def with_key(settings: HttpSettings, home: Path) -> HttpSettings:
    """Return `settings` with its key, from the file of `home` when none is configured; the redactor learns it.

    Raises:
        UserError: the file cannot be used.
    """
    if not settings.key:
        settings = replace(settings, key=file_key(home))
    elif len(settings.key) < SHORT:
        logger.warning("the HTTP server's key has %d characters: take 32 or more at random", len(settings.key))
    redactor.learn([settings.key])
    return settings


def file_key(home: Path) -> str:
    """Return the key of the file `api_server.key`; it is made when it is not there.

    Of two processes that make it at once, both return the key of the one that was first.

    Raises:
        UserError: others can read the file, it belongs to somebody else, or it has no key in it.
    """
    path = home / KEY_NAME
    key = _read(path)
    if key is None:
        _make(path)
        key = _read(path)
    if key is None:
        raise UserError(f"the key file {path} vanished while it was read", hint="Start again.")
    return key


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise UserError(f"cannot read the key file {path}: {exc.strerror}", hint=_hint(path)) from exc
    with os.fdopen(fd, "rb") as file:
        _check(path, os.fstat(fd))
        text = file.read(LONGEST_FILE + 1).decode("ascii", "replace").strip()
    if not _KEY.fullmatch(text) or len(text) > LONGEST_FILE:
        raise UserError(f"the key file {path} has no key in it: expected one word of ASCII", hint=_hint(path))
    return text


def _check(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise UserError(f"the key file {path} is not a regular file", hint=_hint(path))
    if info.st_uid != os.geteuid():
        raise UserError(
            f"the key file {path} belongs to uid {info.st_uid}, and the daemon runs as uid {os.geteuid()}",
            hint=_hint(path),
        )
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o077:
        raise UserError(
            f"the key file {path} can be read by others (mode {mode:04o})",
            hint=f"Whoever had the key can use the agent. {_hint(path)} To keep the key: `chmod 600 {path}`.",
        )


def _make(path: Path) -> None:
    """Write a key beside the place and link it there: it appears whole, and never over another one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o600)  # whatever the umask and a default ACL say
                file.write(f"{secrets.token_urlsafe(KEY_BYTES)}\n".encode())
                file.flush()
                os.fsync(fd)
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(draft, path)
                logger.info("made a key for the HTTP server: %s (`hermes gateway key` prints it)", path)
        finally:
            draft.unlink()
    except OSError as exc:
        raise UserError(
            f"cannot make the key file {path}: {exc.strerror}",
            hint="The home must exist and be writable. Or set API_SERVER_KEY to a key of your own.",
        ) from exc


def _hint(path: Path) -> str:
    return f"Remove {path} and start again to get a new key, or set API_SERVER_KEY to a key of your own."
