"""Connections to hosts outside: to an address that was judged, or through the operator's proxy."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from hermes_agent.contracts.platform.proxies import resolve_proxy_url
from hermes_agent.workspace.egress.relay import Ends

__all__ = ["HostUnreachable", "connect"]


class HostUnreachable(OSError):
    """A host does not take a connection; the text says why."""


async def connect(host: str, port: int, addresses: Sequence[str]) -> Ends:
    """Return a connection to a host, at the first of its judged addresses that takes one.

    Raises:
        HostUnreachable: none does.
    """
    if (proxy := resolve_proxy_url(target_hosts=[host])) is not None:
        return await _through(proxy, host, port)
    why = "it has no address"
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port)
        except OSError as exc:
            why = exc.strerror or str(exc)
    raise HostUnreachable(f"{host}:{port} takes no connection: {why}")


async def _through(proxy: str, host: str, port: int) -> Ends:
    """Ask the operator's proxy; it looks the name up again."""
    parts = urlsplit(proxy)
    if parts.scheme != "http":
        raise HostUnreachable(f"the proxy of the environment is {parts.scheme}://: commands need one that is http://")
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except OSError as exc:
        raise HostUnreachable(f"the proxy of the environment takes no connection: {exc}") from exc
    try:
        name = f"[{host}]" if ":" in host else host
        lines = [f"CONNECT {name}:{port} HTTP/1.1", f"Host: {name}:{port}"]
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(None, 2)[1:2] != [b"200"]:
            raise HostUnreachable(f"the proxy of the environment refused {host}:{port}")
    except BaseException as exc:
        writer.close()
        if isinstance(exc, OSError | EOFError | asyncio.LimitOverrunError) and not isinstance(exc, HostUnreachable):
            raise HostUnreachable(f"the proxy of the environment does not answer: {exc}") from exc
        raise
    return reader, writer
