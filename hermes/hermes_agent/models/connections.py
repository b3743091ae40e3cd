"""The connections to a provider, for the HTTP library: those of `httpx.AsyncHTTPTransport`, but cheaper to look at.

Before each request the pool asks every idle connection whether its server has closed it. By itself each gathers its
addresses, its TLS and more for that, which with twenty conversations costs as much as a tenth of a turn.

Imported at the first request: the libraries take their time.
"""

# ruff: noqa: ASYNC109 - the library's names
from __future__ import annotations

import select
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

import httpcore
import httpx

__all__ = ["Connections"]


_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


class Connections(httpx.AsyncBaseTransport):
    """A pool without a proxy.

    Args:
        idle: connections that are kept for a next request.
        idle_s: how long.
    """

    def __init__(self, tls: ssl.SSLContext, *, idle: int, idle_s: float) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=None,
            max_keepalive_connections=idle,
            keepalive_expiry=idle_s,
            network_backend=_Network(),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its answer is there when the headers are.

        Raises:
            httpx.TransportError: there is none.
        """
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        asked = httpcore.Request(
            request.method,
            target,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            answer = await self._pool.handle_async_request(asked)
        except _ERRORS as exc:
            raise _translated(exc) from exc
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def _translated(error: Exception) -> Exception:
    """Return the error of the same name that the caller expects."""
    kind: type[Exception] = getattr(httpx, type(error).__name__, httpx.TransportError)
    return kind(str(error))


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._answer.stream, AsyncIterable)
        try:
            async for piece in self._answer.stream:
                yield piece
        except _ERRORS as exc:
            raise _translated(exc) from exc

    async def aclose(self) -> None:
        await self._answer.aclose()


class _Network(httpcore.AnyIOBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that knows its socket."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._socket = stream.get_extra_info("socket")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info != "is_readable":
            return self._stream.get_extra_info(info)
        number = self._socket.fileno()
        if number < 0:  # it is closed
            return True
        look = select.poll()
        look.register(number, select.POLLIN)
        return bool(look.poll(0))
