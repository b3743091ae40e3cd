"""Fetch a picture or recording that a message points to. Source: plugin contract §11.2, §11.3.

The address is a stranger's, so it may lead to public addresses alone (`security.allow_private_urls` lifts that).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_agent.config import hermes_home, load
from hermes_agent.contracts.platform.media_cache import (
    MAX_INBOUND_BYTES,
    cache_audio_from_bytes,
    cache_image_from_bytes,
    validate_inbound_media_size,
)
from hermes_agent.contracts.platform.proxies import resolve_proxy_url
from hermes_agent.core.errors import ConfigError
from hermes_agent.io.http import check_host, open_url

if TYPE_CHECKING:
    import httpx

__all__ = ["cache_audio_from_url", "cache_image_from_url", "fetch_media", "ssrf_redirect_guard"]

RETRY_PAUSE_S = 0.3
"""Before the second attempt; longer before each further one."""


async def cache_image_from_url(url: str, ext: str = ".jpg", retries: int = 2) -> str:
    """Fetch and keep a picture, and return its path.

    Args:
        retries: further attempts after a failure of the network or the server.

    Raises:
        ValueError: the address is not allowed, or what it gives is no picture or too large.
        httpx.HTTPError: it cannot be fetched.
    """
    return cache_image_from_bytes(await fetch_media(url, retries, what="image"), ext)


async def cache_audio_from_url(url: str, ext: str = ".ogg", retries: int = 2) -> str:
    """Fetch and keep a recording, and return its path; fails as `cache_image_from_url` does."""
    return cache_audio_from_bytes(await fetch_media(url, retries, what="audio"), ext)


async def ssrf_redirect_guard(response: httpx.Response) -> None:
    """Refuse a redirect to an address that is not public: an event hook (`response`) of `httpx.AsyncClient`.

    Raises:
        ValueError: it leads to one.
    """
    if response.is_redirect and response.next_request is not None:
        await check_host(str(response.next_request.url), private=_private_is_allowed())


async def fetch_media(url: str, retries: int = 2, *, what: str = "*", max_bytes: int = MAX_INBOUND_BYTES) -> bytes:
    """Fetch a file and return it; fails as `cache_image_from_url` does.

    Args:
        what: the first half of the MIME type that is asked for.
    """
    import httpx  # 60 ms, and most processes fetch nothing

    for attempt in range(retries + 1):
        try:
            return await _fetch(url, what, max_bytes)
        except httpx.HTTPStatusError as exc:
            if attempt == retries or (exc.response.status_code < 500 and exc.response.status_code != 429):
                raise
        except httpx.TransportError:
            if attempt == retries:
                raise
        await asyncio.sleep(RETRY_PAUSE_S * (attempt + 1))
    raise ValueError(f"retries is {retries}: expected 0 or more")


async def _fetch(url: str, what: str, max_bytes: int) -> bytes:
    async with open_url(
        url,
        private=_private_is_allowed(),
        accept=f"{what}/*, */*;q=0.5",
        proxy_for=lambda host: resolve_proxy_url(target_hosts=[host]),
    ) as (_, response):
        response.raise_for_status()
        data = bytearray()
        async for piece in response.aiter_bytes():
            data += piece
            validate_inbound_media_size(len(data), media_type=what, max_bytes=max_bytes)
        return bytes(data)


def _private_is_allowed() -> bool:
    try:
        return bool(load(hermes_home()).get("security.allow_private_urls"))
    except ConfigError:  # a broken config allows nothing
        return False
