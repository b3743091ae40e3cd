"""Which addresses a tool may open: public ones, and those that the operator allows. Source: plugin contract §11.3."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import yaml

from hermes_agent.compat.settings import load_config_readonly
from hermes_agent.io.http import AddressRejected, is_allowed_address, parse_http_url
from hermes_agent.policy.sites import blocked_site

__all__ = ["check_website_access", "is_safe_url", "redirect_target_from_response"]


def is_safe_url(url: str) -> bool:
    """Say whether a tool may open `url`: HTTP, and every address of its host is public.

    `security.allow_private_urls` lets private addresses pass, never those of a metadata service. A host that cannot be
    resolved is not safe.
    """
    private = (load_config_readonly().get("security") or {}).get("allow_private_urls") is True
    try:
        parts = parse_http_url(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = {str(info[4][0]) for info in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)}
    except (AddressRejected, OSError, UnicodeError):
        return False
    return bool(found) and all(is_allowed_address(address, private) for address in found)


def redirect_target_from_response(response: Any) -> str | None:
    """Return the address that a response sends one on to, None when it is no redirect."""
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    if status not in (301, 302, 303, 307, 308):
        return None
    location = response.headers.get("location") or response.headers.get("Location")
    return urljoin(str(response.url), location) if location else None


def check_website_access(url: str, config_path: Path | None = None) -> dict[str, str] | None:
    """Return why the operator's `security.website_blocklist` forbids `url`, None when it does not.

    Args:
        config_path: a config file in place of the home's.

    Returns:
        `host`, `rule`, `source` and `message`.
    """
    if config_path is None:
        values = load_config_readonly()
    else:
        values = yaml.safe_load(Path(config_path).read_text(encoding="utf-8")) or {}
    return blocked_site((values.get("security") or {}).get("website_blocklist"), url)
