"""Which files of this machine may be sent into a chat. Source: plugin contract §8.2.2, §12.4.

What the agent keeps for itself (secrets, its config, its database) and what belongs to the system is never sent,
whatever an answer says: an answer may have been written by what the agent read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

from hermes_agent.config import hermes_home

__all__ = ["filter_local_delivery_paths", "filter_media_delivery_paths", "validate_media_delivery_path"]

logger = logging.getLogger(__name__)

RECENT_S = 600
"""How long a file that was just written is trusted where `HERMES_MEDIA_DELIVERY_STRICT` is set."""

_SYSTEM = ("/etc", "/proc", "/sys", "/dev", "/boot", "/run", "/var/run", "/var/log", "/var/spool")
_PRIVATE_OF_USER = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".git-credentials",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".local/share/keyrings",
    ".bash_history",
    ".zsh_history",
)
_OPEN_IN_HOME = (
    "cache",
    "workspace",
    "cron/output",
    "image_cache",
    "audio_cache",
    "video_cache",
    "document_cache",
    "browser_screenshots",
)
"""Folders of the agent's home that hold what is meant for people; the rest of it is not sent."""
_SECRET_NAMES = (".env", "auth.json", "credentials", "credentials.json", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa")
_SECRET_ENDS = (".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx", ".ovpn")


def validate_media_delivery_path(path: str) -> str | None:
    """Return the real path of a file that may be sent, None when there is none or it must not be.

    Links are followed first. With `HERMES_MEDIA_DELIVERY_STRICT`, only what lies in the caches, in
    `HERMES_MEDIA_ALLOW_DIRS` (separated like `PATH`), or was written in the last minutes is sent
    (`HERMES_MEDIA_TRUST_RECENT_FILES`, `HERMES_MEDIA_TRUST_RECENT_FILES_SECONDS`).
    """
    try:
        real = Path(path.removeprefix("file://")).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None
    if not real.is_file() or not os.access(real, os.R_OK) or _is_secret(real):
        return None
    allowed = _is_below(real, _allowed_roots())
    if allowed or not _is_on("HERMES_MEDIA_DELIVERY_STRICT", default=False):
        return str(real)
    return str(real) if _is_recent(real) else None


def filter_media_delivery_paths(media: Iterable[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return those of `(path, is voice)` that may be sent, with their real paths."""
    checked = ((_checked(path), is_voice) for path, is_voice in media)
    return [(path, is_voice) for path, is_voice in checked if path is not None]


def filter_local_delivery_paths(paths: Iterable[str]) -> list[str]:
    """Return those of `paths` that may be sent, as real paths."""
    return [real for path in paths if (real := _checked(path)) is not None]


def _checked(path: str) -> str | None:
    real = validate_media_delivery_path(path)
    if real is None:
        logger.warning("not sent into the chat: %s is not there, or is nothing that may be sent", path)
    return real


def _allowed_roots() -> list[Path]:
    named = [Path(p).expanduser() for p in os.environ.get("HERMES_MEDIA_ALLOW_DIRS", "").split(os.pathsep) if p]
    home = hermes_home()
    return [_real(place) for place in (*(home / name for name in _OPEN_IN_HOME), *named)]


def _is_secret(real: Path) -> bool:
    name = real.name.lower()
    if name in _SECRET_NAMES or name.startswith(".env.") or name.endswith(_SECRET_ENDS):
        return True
    home = _real(hermes_home())
    if _is_below(real, [home]) and not _is_below(real, _allowed_roots()):
        return True
    own = [_real(Path.home() / name) for name in _PRIVATE_OF_USER]
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    return _is_below(real, [*map(_real, map(Path, _SYSTEM)), *own, *([_real(Path(given))] if given else [])])


def _is_below(path: Path, roots: Iterable[Path]) -> bool:
    return any(path == root or root in path.parents for root in roots)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _is_recent(real: Path) -> bool:
    if not _is_on("HERMES_MEDIA_TRUST_RECENT_FILES", default=True):
        return False
    text = os.environ.get("HERMES_MEDIA_TRUST_RECENT_FILES_SECONDS", "")
    limit = int(text) if text.isdigit() else RECENT_S
    return time.time() - real.stat().st_mtime <= limit


def _is_on(variable: str, *, default: bool) -> bool:
    text = os.environ.get(variable, "").strip().lower()
    return text in ("1", "true", "yes", "on") if text else default
