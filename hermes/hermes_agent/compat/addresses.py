"""Which addresses a tool may open: public ones, and those that the operator allows. Source: plugin contract §11.3."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import yaml

from hermes_agent.compat.settings import load_config_readonly

__all__ = ["check_website_access", "is_safe_url", "redirect_target_from_response"]

METADATA = frozenset({"metadata.google.internal", "metadata", "instance-data"})
"""Names of the services that give a machine its credentials; never opened."""


def is_safe_url(url: str) -> bool:
    """Say whether a tool may open `url`: HTTP, and every address of its host is public.

    `security.allow_private_urls` lets private addresses pass, never those of a metadata service. A host that cannot be
    resolved is not safe.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".").lower()
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host or host in METADATA:
        return False
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    private = (load_config_readonly().get("security") or {}).get("allow_private_urls") is True
    return bool(found) and all(_may_open(str(address), private) for address in found)


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
    block = (values.get("security") or {}).get("website_blocklist")
    if not isinstance(block, Mapping) or block.get("enabled") is False:
        return None
    host = (urlsplit(url if "://" in url else f"https://{url}").hostname or "").lower()
    for rule in block.get("domains") or ():
        pattern = str(rule).strip().lower()
        if pattern and (
            host == pattern or host.endswith(f".{pattern.removeprefix('*.')}") or fnmatchcase(host, pattern)
        ):
            message = f"Blocked by website policy: '{host}' matches '{pattern}' of security.website_blocklist"
            return {"host": host, "rule": pattern, "source": "config", "message": message}
    return None


def _may_open(address: str, private: bool) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or str(ip) in ("100.100.100.200", "fd00:ec2::254"):
        return False  # metadata services live there
    return private or ip.is_global
