"""Sites that the operator forbids: `security.website_blocklist`. Source: plugin contract §11.3."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

__all__ = ["blocked_site"]


def blocked_site(block: Any, url: str) -> dict[str, str] | None:
    """Return why the blocklist forbids `url`, None when it does not.

    Args:
        block: `{"enabled": true, "domains": ["bad.example", "*.worse.example"]}`; a domain stands for those below it.

    Returns:
        `host`, `rule`, `source` and `message`.
    """
    if not isinstance(block, Mapping) or block.get("enabled") is False:
        return None
    host = _ascii((urlsplit(url if "://" in url else f"https://{url}").hostname or "").rstrip("."))
    for rule in block.get("domains") or ():
        pattern = _ascii(str(rule).strip())
        if pattern and (
            host == pattern or host.endswith(f".{pattern.removeprefix('*.')}") or fnmatchcase(host, pattern)
        ):
            message = f"Blocked by website policy: '{host}' matches '{pattern}' of security.website_blocklist"
            return {"host": host, "rule": pattern, "source": "config", "message": message}
    return None


def _ascii(host: str) -> str:
    """Return a host as it is asked for: `bücher.example` and `ｂücher.example` are `xn--bcher-kva.example`."""
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:  # a glob of characters, or no host at all
        return host.lower()
