"""The border to the HTTP library: one request out, the pieces of its answer in.

No vendor's SDK: that of OpenAI costs a second of CPU to import (the HTTP library alone 0.2 s) and 1.2 ms for each
request more than this, and what it would do (a header with the key, JSON, a pool) is little.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import math
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

from hermes_agent import __version__
from hermes_agent.models.encoding import joined

if TYPE_CHECKING:
    import httpx

__all__ = ["Broken", "Deadlines", "Reply", "Transport", "load_http", "reason"]

IDLE, IDLE_S = 20, 30.0
"""How many connections to a provider are kept for a next request, and for how many seconds."""
AGENT = f"hermes-agent/{__version__}"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long to wait for a provider, in seconds."""

    connect_s: float = 10.0
    """For the connection."""
    first_byte_s: float = 300.0
    """For the first byte after the request is out: long prompts and queues take their time."""
    idle_s: float = 120.0
    """Between two pieces of the answer."""
    whole_s: float | None = None
    """From the request to the end of the answer; None sets no limit."""


class Broken(Exception):
    """The connection failed; the message says how, in words for a person."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer whose headers are there."""

    status: int
    content_type: str
    """Lower case, without parameters; empty when it was not said."""
    retry_after_s: float | None
    pieces: AsyncIterator[bytes]
    """The body as it comes; raises `Broken`."""


def load_http() -> ModuleType:
    """Import the HTTP library: 0.2 s of CPU, done at the first request, or by a host that has time."""
    return importlib.import_module("httpx")


@functools.cache
def _tls() -> ssl.SSLContext:
    """The trusted certificates, read once for all providers of the process: 20 ms of CPU."""
    context: ssl.SSLContext = load_http().create_ssl_context()
    return context


class Transport:
    """Sends requests to one endpoint, with one pool of connections for its life.

    Args:
        base_url: address of the endpoint.
        is_child: the server is a process of ours: a proxy of the environment has no business between us, and no
            connection is used twice, since llama.cpp's server may close one just when the next request is sent.
    """

    def __init__(self, base_url: str, deadlines: Deadlines, *, is_child: bool = False) -> None:
        self._is_child = is_child
        self._base_url = base_url
        self._deadlines = deadlines
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.asynccontextmanager
    async def exchange(
        self, path: str, headers: Mapping[str, str], body: dict[str, Any] | None = None
    ) -> AsyncIterator[Reply]:
        """Send a request; leaving the block, also by cancellation, closes the answer.

        Args:
            path: below the address of the endpoint.
            headers: the key included.
            body: JSON of a POST (`models.encoding`); None sends a GET.

        Raises:
            Broken: no answer came.
        """
        httpx = load_http()
        client = self._http_client(httpx)
        content = None if body is None else joined(body)
        kind = {} if content is None else {"content-type": "application/json"}
        method = "GET" if content is None else "POST"
        request = client.build_request(method, self._base_url + path, content=content, headers={**kind, **headers})
        whole_s = self._deadlines.whole_s
        end = asyncio.get_running_loop().time() + whole_s if whole_s else math.inf
        try:
            async with asyncio.timeout(_left(self._deadlines.first_byte_s, end)):
                response = await client.send(request, stream=True)
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise Broken(self._timed_out(exc)) from exc
        except _errors() as exc:
            raise Broken(reason(exc, "without an answer")) from exc
        try:
            yield _reply(response, self._pieces(response, end))
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def _http_client(self, httpx: ModuleType) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # connections belong to the loop that made them; a command line runs one loop after another
            from hermes_agent.models.connections import Connections  # it brings the library

            deadlines = self._deadlines
            idle = 0 if self._is_child else IDLE
            proxied = not self._is_child and bool(getproxies())
            self._loop = loop
            self._client = httpx.AsyncClient(
                headers={"user-agent": AGENT, "accept": "*/*"},
                timeout=httpx.Timeout(deadlines.first_byte_s, connect=deadlines.connect_s),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=idle, keepalive_expiry=IDLE_S),
                transport=None if proxied else Connections(_tls(), idle=idle, idle_s=IDLE_S),
                verify=_tls(),
                trust_env=not self._is_child,
                follow_redirects=True,
            )
        return self._client

    async def _pieces(self, response: Any, end: float) -> AsyncIterator[bytes]:
        pieces = aiter(response.aiter_bytes())
        wait_s = self._deadlines.first_byte_s
        while True:
            try:
                async with asyncio.timeout(_left(wait_s, end)):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Broken(self._stalled(wait_s, end)) from None
            except _errors() as exc:
                raise Broken(reason(exc)) from exc
            wait_s = self._deadlines.idle_s
            yield piece

    def _stalled(self, wait_s: float, end: float) -> str:
        if asyncio.get_running_loop().time() >= end:
            return f"it was not whole after {self._deadlines.whole_s:g} seconds"
        return f"nothing came for {wait_s:g} seconds"

    def _timed_out(self, exc: BaseException) -> str:
        kinds = {type(link).__name__ for link in _chain(exc)}
        if kinds & {"ConnectTimeout", "PoolTimeout"}:
            return f"no connection within {self._deadlines.connect_s:g} seconds"
        return f"no answer within {self._deadlines.first_byte_s:g} seconds"


def _errors() -> tuple[type[Exception], ...]:
    httpx = load_http()
    return (httpx.HTTPError, httpx.StreamError)


def _left(wait_s: float, end: float) -> float:
    """The shorter of a wait and what is left until `end` on the loop's clock, in seconds."""
    return min(wait_s, max(0.0, end - asyncio.get_running_loop().time()))


def reason(exc: BaseException, closed: str = "in the middle") -> str:
    """Return in words why a connection failed, out of the innermost error that says it.

    Args:
        closed: where in the exchange it was, for a connection that the other side just closed.
    """
    links = list(_chain(exc))
    for link in links:
        if isinstance(link, socket.gaierror):
            return "the name does not resolve"
        if isinstance(link, ssl.SSLError):
            return f"TLS failed ({getattr(link, 'verify_message', '') or link.reason or link})"
    for link in links:
        if isinstance(link, ConnectionRefusedError):
            return "the connection was refused"
        if isinstance(link, ConnectionResetError | BrokenPipeError):
            return "the connection was reset"
        if isinstance(link, OSError) and link.strerror:
            return link.strerror.lower()
    return _named(links, closed)


def _named(links: list[BaseException], closed: str) -> str:
    """In words, an error that is the HTTP library's own."""
    kinds = {type(link).__name__ for link in links}
    if "RemoteProtocolError" in kinds:
        return f"the connection was closed {closed}"
    if kinds & {"ReadError", "WriteError", "CloseError"}:
        return "the connection broke"
    texts = [str(link) for link in links if str(link)]
    return texts[-1] if texts else type(links[-1]).__name__


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it, outermost first, through groups."""
    seen: set[int] = set()
    queue = [exc]
    while queue:
        link = queue.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        queue += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            queue += link.exceptions


def _reply(response: Any, pieces: AsyncIterator[bytes]) -> Reply:
    headers: Mapping[str, str] = response.headers
    return Reply(
        status=response.status_code,
        content_type=headers.get("content-type", "").partition(";")[0].strip().lower(),
        retry_after_s=_retry_after(headers),
        pieces=pieces,
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` (or `retry-after-ms`, which several send) asks to wait; None without it."""
    value = headers.get("retry-after", "")
    for text, unit_s in ((headers.get("retry-after-ms", ""), 0.001), (value, 1.0)):
        with contextlib.suppress(ValueError):
            if math.isfinite(number := float(text)):
                return max(0.0, number * unit_s)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
