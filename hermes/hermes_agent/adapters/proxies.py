"""HTTP proxies for adapters, and their arguments for aiohttp. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

from hermes_agent.system.safe_http import safe_url_for_log

__all__ = [
    "is_host_excluded_by_no_proxy",
    "proxy_kwargs_for_aiohttp",
    "proxy_kwargs_for_bot",
    "resolve_proxy_url",
    "safe_url_for_log",
]

logger = logging.getLogger(__name__)

_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def resolve_proxy_url(
    platform_env_var: str | None = None,
    *,
    target_hosts: str | list[str] | tuple[str, ...] | set[str] | None = None,
) -> str | None:
    """Return the URL of the proxy: from the platform's variable, the usual variables, or macOS settings.

    Args:
        target_hosts: the hosts to reach; the result is None if `NO_PROXY` excludes all of them.
    """
    own = os.environ.get(platform_env_var, "").strip() if platform_env_var else ""
    if own:
        return _normal(own)
    hosts = [target_hosts] if isinstance(target_hosts, str) else list(target_hosts or ())
    if hosts and all(is_host_excluded_by_no_proxy(host) for host in hosts):
        return None
    for name in _VARIABLES:
        value = (os.environ.get(name) or os.environ.get(name.lower()) or "").strip()
        if value:
            return _normal(value)
    if sys.platform == "darwin":
        import urllib.request  # 3 MiB, needed on macOS only

        system = urllib.request.getproxies()
        found = system.get("https") or system.get("http")
        return _normal(found) if found else None
    return None


def is_host_excluded_by_no_proxy(hostname: str, no_proxy_value: str | None = None) -> bool:
    """Return whether a host is reached without a proxy.

    Args:
        no_proxy_value: names, `.domains`, addresses and networks, separated by commas; None: `NO_PROXY`.
    """
    text = no_proxy_value
    if text is None:
        text = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    host = hostname.strip().rstrip(".").lower().strip("[]")
    return bool(host) and any(_matches(host, pattern) for pattern in _patterns(text))


def proxy_kwargs_for_aiohttp(proxy_url: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords of a proxy for `ClientSession(…)` and for its requests.

    A SOCKS proxy needs the package `aiohttp_socks`; without it, no proxy is used and a warning is logged.
    """
    if not proxy_url:
        return {}, {}
    if proxy_url.lower().startswith("socks"):
        connector = _socks_connector(proxy_url)
        return ({"connector": connector}, {}) if connector is not None else ({}, {})
    return {}, {"proxy": proxy_url}


def proxy_kwargs_for_bot(proxy_url: str | None) -> dict[str, Any]:
    """Return the keywords of a proxy for a bot library that is based on aiohttp."""
    session, request = proxy_kwargs_for_aiohttp(proxy_url)
    return {**session, **request}


def _normal(url: str) -> str:
    """Return the URL of a proxy with a scheme; `socks://` is version 5."""
    if "://" not in url:
        return f"http://{url}"
    scheme, _, rest = url.partition("://")
    return f"socks5://{rest}" if scheme.lower() == "socks" else url


def _patterns(text: str) -> Iterable[str]:
    return (part.strip().lower() for part in text.replace(" ", ",").split(",") if part.strip())


def _matches(host: str, pattern: str) -> bool:
    if pattern == "*":
        return True
    if _is_in_network(host, pattern):
        return True
    name = pattern.partition(":")[0].removeprefix("*").lstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _is_in_network(host: str, pattern: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(pattern, strict=False)
    except ValueError:  # one of them is a name
        return False


def _socks_connector(proxy_url: str) -> Any:
    try:
        connector = importlib.import_module("aiohttp_socks").ProxyConnector  # an optional package
    except ImportError:
        logger.warning(
            "proxy %s is not used: install the package aiohttp_socks for SOCKS proxies",
            safe_url_for_log(proxy_url),
        )
        return None
    return connector.from_url(proxy_url, rdns=True)
