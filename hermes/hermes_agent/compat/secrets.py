"""Upstream's functions over secrets: one by name, a text without them, what was fetched and kept.

Source: plugin contract §11.2, §11.3.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.compat.settings import get_env_value, load_config_readonly
from hermes_agent.config import hermes_home
from hermes_agent.core.redact import MASK, redactor
from hermes_agent.io.files import PRIVATE, write_atomic

__all__ = ["CachedFetch", "DiskCache", "UnscopedSecretError", "get_secret", "redact_sensitive_text"]

logger = logging.getLogger(__name__)

_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)|(?<=[?&])((?:api_?key|token|secret|password)=)[^&\s#]+", re.I)


class UnscopedSecretError(RuntimeError):
    """A secret was asked for outside the scope that it belongs to. One process serves one home here: never raised."""


def get_secret(name: str, default: str | None = None) -> str | None:
    """Return the secret or variable `name` of this home, `default` when there is none."""
    value = get_env_value(name)
    return default if value is None else value


def redact_sensitive_text(
    text: str,
    *,
    force: bool = False,
    code_file: bool = False,
    file_read: bool = False,
    redact_url_credentials: bool = False,
) -> str:
    """Return `text` with the secrets that are known, and what looks like one, masked.

    Args:
        force: mask even when `security.redact_secrets` is off.
        code_file: taken and not needed: what is masked does not depend on it.
        file_read: as `code_file`.
        redact_url_credentials: mask user, password and key parameters of addresses, too.
    """
    if not text or not isinstance(text, str):
        return text
    security = load_config_readonly().get("security") or {}
    if not force and security.get("redact_secrets") is False:
        return text
    masked = redactor(text)
    if redact_url_credentials:
        masked = _IN_URL.sub(lambda m: (m.group(1) or "") + MASK, masked)
    return masked


@dataclass
class CachedFetch:
    """Secrets, and when they were fetched."""

    secrets: dict[str, str]
    fetched_at: float
    """Seconds since the epoch."""

    def is_fresh(self, ttl_seconds: float) -> bool:
        """Say whether they are younger than `ttl_seconds`; with 0 or less nothing is."""
        return 0 <= time.time() - self.fetched_at < ttl_seconds


class DiskCache:
    """Fetched secrets in a file below `HOME/cache/`, readable by its owner alone.

    Args:
        filename: `vault_cache.json`.
        key_serializer: makes text of a key.
    """

    def __init__(self, filename: str, *, key_serializer: Callable[[Any], str] = str) -> None:
        if Path(filename).name != filename:
            raise ValueError(f"{filename!r} is no file name")
        self._filename = filename
        self._text = key_serializer

    def path(self, home_path: Path | None = None) -> Path:
        """Return the file in `home_path` (None: this home)."""
        return (home_path or hermes_home()) / "cache" / self._filename

    def read(self, key: Any, ttl_seconds: float, home_path: Path | None = None) -> CachedFetch | None:
        """Return what was kept under `key`, None when there is nothing fresh."""
        kept = self._entries(home_path).get(self._text(key))
        if not isinstance(kept, Mapping):
            return None
        secrets, fetched_at = kept.get("secrets"), kept.get("fetched_at")
        if not isinstance(secrets, Mapping) or not isinstance(fetched_at, int | float):
            return None
        found = CachedFetch({str(k): str(v) for k, v in secrets.items()}, float(fetched_at))
        return found if found.is_fresh(ttl_seconds) else None

    def write(self, key: Any, entry: CachedFetch, ttl_seconds: float, home_path: Path | None = None) -> None:
        """Keep `entry`; with a `ttl_seconds` of 0 or less nothing is. What cannot be written is told in the log."""
        if ttl_seconds <= 0:
            return
        entries = self._entries(home_path)
        entries[self._text(key)] = {"secrets": dict(entry.secrets), "fetched_at": entry.fetched_at}
        file = self.path(home_path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, json.dumps(entries), mode=PRIVATE)
        except OSError as exc:
            logger.warning("fetched secrets cannot be kept in %s: %s", file, exc.strerror or exc)

    def _entries(self, home_path: Path | None) -> dict[str, Any]:
        try:
            loaded = json.loads(self.path(home_path).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there yet, or broken: it is only a cache
            return {}
        return loaded if isinstance(loaded, dict) else {}
