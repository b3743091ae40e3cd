"""The built-in reader of web pages: their text, without menus and advertisements."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.proxies import resolve_proxy_url
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.installation import install_hint
from hermes_agent.system.safe_http import AddressPolicy, AddressRejected, open_url, safe_url_for_log

if TYPE_CHECKING:
    import httpx


MAX_BYTES = 5_000_000
"""Bytes that are read of a page."""
MAX_PARALLEL = 5
OTHER_REMEDY = "configure a provider that reads pages (`web.extract_backend`)"
_TEXTS = ("application/json", "application/xml", "application/rss+xml", "application/atom+xml", "application/yaml")
_HTML = ("text/html", "application/xhtml+xml")


@lazy_dataclass(frozen=True, slots=True)
class FetchedPage:
    """The response of an address, or why there is none."""

    url: str
    kind: str = ""
    """Media type, lower case, without parameters."""
    charset: str = ""
    body: bytes = b""
    cut: bool = False
    """Whether there was more than `MAX_BYTES`."""
    error: str = ""


def can_read() -> bool:
    """Return whether the library that reads HTML is installed, without an import."""
    return importlib.util.find_spec("trafilatura") is not None


async def fetch_all(
    urls: Sequence[str], *, private: bool | AddressPolicy, check: Callable[[str], None]
) -> list[FetchedPage]:
    """Fetch addresses, up to `MAX_PARALLEL` in parallel; the pages have their order.

    Args:
        private: as for `system.safe_http.open_url`.
        check: as for `system.safe_http.open_url`.
    """
    slots = asyncio.Semaphore(MAX_PARALLEL)

    async def fetch(url: str) -> FetchedPage:
        async with slots:
            return await _fetch(url, private=private, check=check)

    return list(await asyncio.gather(*map(fetch, urls)))


async def _fetch(url: str, *, private: bool | AddressPolicy, check: Callable[[str], None]) -> FetchedPage:
    import httpx  # 60 ms, and most processes fetch nothing

    def proxy_for(host: str) -> str | None:
        return resolve_proxy_url(target_hosts=[host])

    try:
        async with open_url(
            url, private=private, accept="text/html, text/*, */*;q=0.5", proxy_for=proxy_for, check=check
        ) as (at, response):
            if response.is_error:
                return FetchedPage(at, error=f"the server answered {response.status_code}")
            kind, charset = _media_type(response)
            if not _is_text(kind):
                return FetchedPage(at, kind, error=f"{kind or 'an unknown type'} is no text: it is not read")
            body, cut = await _body(response)
            return FetchedPage(at, kind, charset, body, cut)
    except AddressRejected as exc:
        return FetchedPage(url, error=str(exc))
    except httpx.HTTPError as exc:
        reason = "" if isinstance(exc, httpx.RemoteProtocolError) else str(exc)  # it would quote the server
        return FetchedPage(url, error=f"{safe_url_for_log(url)} cannot be read: {reason or type(exc).__name__}")


async def _body(response: httpx.Response) -> tuple[bytes, bool]:
    data = bytearray()
    async for piece in response.aiter_bytes(65_536):
        data += piece
        if len(data) > MAX_BYTES:
            return bytes(data[:MAX_BYTES]), True
    return bytes(data), False


def _media_type(response: httpx.Response) -> tuple[str, str]:
    from email.message import Message  # 1 MiB, needed only for a page

    header = Message()
    header["content-type"] = response.headers.get("content-type", "text/html")
    return header.get_content_type(), str(header.get_content_charset() or "")


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in _TEXTS or kind in _HTML or kind.endswith(("+json", "+xml"))


def read_page(page: FetchedPage) -> dict[str, Any]:
    """Return `url`, `title`, `content` (Markdown for HTML, else the text) and perhaps `error`.

    It takes time for HTML, so it does not run on a loop.
    """
    result: dict[str, Any] = {"url": page.url, "title": "", "content": ""}
    if page.error:
        return {**result, "error": page.error}
    if page.kind in _HTML:
        return {**result, **_read_html(page)}
    text = _decode(page)
    if page.kind.endswith("json"):
        try:
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=1)
        except (ValueError, RecursionError):
            return {**result, "content": text}
    return {**result, "content": text}


def _decode(page: FetchedPage) -> str:
    try:
        return page.body.decode(page.charset or "utf-8", errors="replace")
    except LookupError:
        return page.body.decode("utf-8", errors="replace")


def _read_html(page: FetchedPage) -> dict[str, Any]:
    if not can_read():
        how = install_hint("web")
        return {"error": f"web pages need the package trafilatura, which is not installed: {how}; or {OTHER_REMEDY}"}
    import trafilatura  # half a second, and lxml with it

    html: str | bytes = _decode(page) if page.charset else page.body  # the library finds the encoding itself
    text = trafilatura.extract(html, url=page.url, output_format="markdown", include_links=True, include_tables=True)
    facts = trafilatura.extract_metadata(html, default_url=page.url)
    title = str(getattr(facts, "title", None) or "")
    if not text:
        return {"title": title, "error": "there is no readable text on this page (it may be made by scripts)"}
    return {"title": title, "content": text}
