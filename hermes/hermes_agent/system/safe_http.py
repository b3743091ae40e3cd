"""HTTP requests to URLs from untrusted text, without access to private addresses and metadata.

The host is resolved once for each redirect. Each of its addresses is checked, and the connection goes to the checked
address. So a name that resolves differently a moment later has no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from hermes_agent.core.text import shorten

if TYPE_CHECKING:
    import httpx


TIMEOUT_S = 30.0
USER_AGENT = "Mozilla/5.0 (compatible; hermes-agent)"
MAX_HOPS = 5
METADATA_NAMES = frozenset({"metadata.google.internal", "metadata", "instance-data"})
"""Services that give a machine its credentials; never requested."""
METADATA_ADDRESSES = frozenset({"100.100.100.200", "fd00:ec2::254"})
"""Their addresses that are not link-local."""

NAT64 = "64:ff9b::/96"
"""Network of the addresses that contain an IPv4 address, for a gateway."""

AddressPolicy = Callable[[str, int], bool]
"""Returns whether an IP address and port may be requested."""


class AddressRejected(ValueError):
    """An address that is not requested, with the reason."""


class HostNotFound(AddressRejected):
    """A host without an address."""


def safe_url_for_log(url: str, max_len: int = 80) -> str:
    """Return a URL for the log, without user, password, query and fragment, at most `max_len` characters."""
    if not url:
        return ""
    try:
        parts = urlsplit(str(url))
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(an address that cannot be read)"[:max_len]
    if not parts.scheme or not host:
        text = str(url).partition("?")[0].partition("#")[0]
    else:
        text = f"{parts.scheme}://{host}{port}{parts.path}"
    return shorten(text, max_len, mark="...")


def parse_http_url(url: str) -> SplitResult:
    """Return the parts of an HTTP URL.

    Raises:
        AddressRejected: it is no HTTP URL, or names a metadata service.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".").lower()
        parts.port  # noqa: B018 - reading it checks it
    except ValueError as exc:
        raise AddressRejected(f"this address cannot be read: {exc}") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise AddressRejected(f"cannot fetch {safe_url_for_log(url)!r}: expected http:// or https://")
    if host in METADATA_NAMES:
        raise AddressRejected(f"{safe_url_for_log(url)} is not fetched: it serves the machine's own credentials")
    return parts


def is_public(address: str) -> bool:
    """Return whether an IP address is public, also an IPv4 address inside an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(ip.is_global and not ip.is_multicast for ip in (found, *_embedded_addresses(found)))


def is_allowed_address(address: str, private: bool) -> bool:
    """Return whether an IP address may be requested.

    Args:
        private: allow private networks and this machine; metadata services are never allowed.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_link_local or found.is_multicast or found.is_unspecified or str(found) in METADATA_ADDRESSES:
        return False
    return private or is_public(address)


def _embedded_addresses(found: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address leads to."""
    if isinstance(found, ipaddress.IPv6Address):
        if found in ipaddress.ip_network(NAT64):
            yield ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        for inner in (found.ipv4_mapped, found.sixtofour, *(found.teredo or ())):
            if inner is not None:
                yield inner


async def resolve_host(host: str, port: int, may: Callable[[str], bool]) -> list[str]:
    """Return the IP addresses of a host, all of them allowed.

    Args:
        may: returns whether an IP address may be requested.

    Raises:
        AddressRejected: an address is not allowed or missing, or the host is a metadata service.
    """
    if host.rstrip(".").lower() in METADATA_NAMES:
        raise AddressRejected(f"{host} serves the machine's own credentials")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise HostNotFound(f"{host} has no address: {exc}") from exc
    addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    for address in addresses:
        if not may(address):
            raise AddressRejected(f"{address} is not a public address")
    return addresses


async def check_host(url: str, *, private: bool | AddressPolicy) -> list[str]:
    """Return the IP addresses of the host of `url`, all of them allowed.

    Args:
        private: allow private addresses, or a function that decides for each address.

    Raises:
        AddressRejected: an address is not allowed or missing.
    """
    parts = parse_http_url(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        if callable(private):
            return await resolve_host(host, port, lambda address: private(address, port))
        return await resolve_host(host, port, lambda address: is_allowed_address(address, private))
    except HostNotFound as exc:
        raise HostNotFound(f"{safe_url_for_log(url)} is not fetched: {exc}") from exc
    except AddressRejected as exc:
        raise AddressRejected(f"{safe_url_for_log(url)} is not fetched: {exc}") from exc


@contextlib.asynccontextmanager
async def open_url(
    url: str,
    *,
    private: bool | AddressPolicy = False,
    accept: str = "*/*",
    timeout_s: float = TIMEOUT_S,
    proxy_for: Callable[[str], str | None] | None = None,
    check: Callable[[str], None] | None = None,
) -> AsyncIterator[tuple[str, httpx.Response]]:
    """Request `url`, follow redirects, and yield the last URL with its response before the body is read.

    Args:
        private: as for `check_host`.
        proxy_for: returns the proxy for a host, or None. A proxy resolves names itself, so the checked address may
            differ from the requested one; the operator chose it. Where private addresses are allowed, it may know a
            host that this machine does not.
        check: called with each URL before its request; raises to reject it.

    Raises:
        AddressRejected: a URL on the way may not be requested, or there are more than `MAX_HOPS` redirects.
        httpx.HTTPError: the network or the server failed, or the trusted certificates cannot be read.
    """
    for _ in range(MAX_HOPS + 1):
        if check is not None:
            check(url)
        host = parse_http_url(url).hostname or ""
        proxy = proxy_for(host) if proxy_for is not None else None
        try:
            addresses = await check_host(url, private=private)
        except HostNotFound:
            if proxy is None or private is not True:
                raise
            addresses = [host]
        async with _request(url, addresses, {"Accept": accept}, timeout_s, proxy) as response:
            if not response.has_redirect_location:
                yield url, response
                return
            url = urljoin(url, response.headers["location"])
    raise AddressRejected(f"{safe_url_for_log(url)} leads on and on: more than {MAX_HOPS} times")


async def post_url(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    private: bool | AddressPolicy = False,
    timeout_s: float = TIMEOUT_S,
) -> httpx.Response:
    """Send `body` to `url`, follow no redirect, and return the response without its body.

    Args:
        private: as for `check_host`.

    Raises:
        AddressRejected: the URL may not be requested.
        httpx.HTTPError: the network or the server failed.
    """
    addresses = await check_host(url, private=private)
    async with _request(url, addresses, headers, timeout_s, None, body) as response:
        return response


@contextlib.asynccontextmanager
async def _request(
    url: str,
    addresses: list[str],
    more: Mapping[str, str],
    timeout_s: float,
    proxy: str | None,
    body: bytes | None = None,
) -> AsyncIterator[httpx.Response]:
    import httpx  # 60 ms, and most processes fetch nothing

    from hermes_agent.system.certificates import trusted_certificates  # with `ssl`

    asked = httpx.URL(url)
    headers = {**more, "Host": asked.netloc.decode("ascii"), "User-Agent": USER_AGENT}
    try:
        verify = trusted_certificates() if asked.scheme == "https" else False
    except OSError as exc:
        raise httpx.ConnectError(f"the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {exc}") from exc
    async with httpx.AsyncClient(timeout=timeout_s, proxy=proxy, trust_env=False, verify=verify) as client:
        places = addresses if proxy is None else [asked.host]
        while True:
            request = client.build_request(
                "GET" if body is None else "POST",
                asked.copy_with(host=places.pop(0)),
                headers=headers,
                content=body,
                extensions={"sni_hostname": asked.host},
            )
            try:
                response = await client.send(request, stream=True)
                break
            except httpx.ConnectError:
                if not places:
                    raise
        try:
            yield response
        finally:
            await response.aclose()
