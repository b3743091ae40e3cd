"""Fetch a picture or recording that a message points to. Source: plugin contract §11.2, §11.3.

The address is a stranger's, so it may lead to public addresses alone (`security.allow_private_urls` lifts that): each
hop is checked before it is asked, and the address that answered is checked before its answer is read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_agent.config import hermes_home, load
from hermes_agent.contracts.platform.media_cache import (
    MAX_INBOUND_BYTES,
    cache_audio_from_bytes,
    cache_image_from_bytes,
    validate_inbound_media_size,
)
from hermes_agent.contracts.platform.proxies import resolve_proxy_url, safe_url_for_log
from hermes_agent.core.errors import ConfigError

if TYPE_CHECKING:
    import httpx

__all__ = ["cache_audio_from_url", "cache_image_from_url", "ssrf_redirect_guard"]

TIMEOUT_S = 30.0
PAUSE_S = 0.3
"""Before the second attempt; longer before each further one."""
MAX_HOPS = 5


async def cache_image_from_url(url: str, ext: str = ".jpg", retries: int = 2) -> str:
    """Fetch and keep a picture, and return its path.

    Args:
        retries: further attempts after a failure of the network or the server.

    Raises:
        ValueError: the address is not allowed, or what it gives is no picture or too large.
        httpx.HTTPError: it cannot be fetched.
    """
    return cache_image_from_bytes(await _fetched(url, retries, "image"), ext)


async def cache_audio_from_url(url: str, ext: str = ".ogg", retries: int = 2) -> str:
    """Fetch and keep a recording, and return its path; fails as `cache_image_from_url` does."""
    return cache_audio_from_bytes(await _fetched(url, retries, "audio"), ext)


async def ssrf_redirect_guard(response: httpx.Response) -> None:
    """Refuse a redirect to an address that is not public: an event hook (`response`) of `httpx.AsyncClient`.

    Raises:
        ValueError: it leads to one.
    """
    if response.is_redirect and response.next_request is not None:
        await _check(str(response.next_request.url))


async def _fetched(url: str, retries: int, what: str) -> bytes:
    import httpx  # 60 ms, and most processes fetch nothing

    for attempt in range(retries + 1):
        try:
            return await _fetch(url, what)
        except httpx.HTTPStatusError as exc:
            if attempt == retries or (exc.response.status_code < 500 and exc.response.status_code != 429):
                raise
        except httpx.TransportError:
            if attempt == retries:
                raise
        await asyncio.sleep(PAUSE_S * (attempt + 1))
    raise ValueError(f"retries is {retries}: expected 0 or more")


async def _fetch(url: str, what: str) -> bytes:
    import httpx  # as above

    host = urlsplit(url).hostname or ""
    proxy = resolve_proxy_url(target_hosts=[host])
    async with httpx.AsyncClient(timeout=TIMEOUT_S, proxy=proxy, trust_env=False) as client:
        for _ in range(MAX_HOPS):
            await _check(url)
            async with client.stream("GET", url, headers={"Accept": f"{what}/*, */*;q=0.5"}) as response:
                if proxy is None:
                    _check_peer(response, url)
                if response.is_redirect and response.next_request is not None:
                    url = str(response.next_request.url)
                    continue
                response.raise_for_status()
                return await _read(response, what)
    raise ValueError(f"{safe_url_for_log(url)} leads on and on: more than {MAX_HOPS} addresses")


async def _read(response: httpx.Response, what: str) -> bytes:
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        validate_inbound_media_size(len(data), media_type=what, max_bytes=MAX_INBOUND_BYTES)
    return bytes(data)


async def _check(url: str) -> None:
    """Refuse an address that is no public web address.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ValueError(f"this address cannot be read: {exc}") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"cannot fetch {safe_url_for_log(url)!r}: expected http:// or https://")
    if _private_is_allowed():
        return
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ValueError(f"{safe_url_for_log(url)} has no address: {exc}") from exc
    for *_, place in found:
        if not _is_public(str(place[0])):
            raise ValueError(f"{safe_url_for_log(url)} is not fetched: {place[0]} is not a public address")


def _check_peer(response: httpx.Response, url: str) -> None:
    """Refuse an answer of an address that is not public: a name may have had another one a moment ago."""
    stream: Any = response.extensions.get("network_stream")
    peer = stream.get_extra_info("server_addr") if stream is not None else None
    if peer and not _private_is_allowed() and not _is_public(str(peer[0])):
        raise ValueError(f"{safe_url_for_log(url)} is not fetched: {peer[0]} is not a public address")


def _is_public(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return (
        found.is_global and not found.is_multicast and (inner is None or (inner.is_global and not inner.is_multicast))
    )


def _private_is_allowed() -> bool:
    try:
        return bool(load(hermes_home()).get("security.allow_private_urls"))
    except ConfigError:  # a broken config allows nothing
        return False
