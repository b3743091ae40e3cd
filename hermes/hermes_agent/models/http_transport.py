"""HTTP requests to model providers: one request, and the pieces of its answer.

aiohttp is used directly, for its cost per request. The measurements are in
`docs/decisions/0003-no-vendor-s-sdk-for-models.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import importlib
import math
import os
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from hermes_agent import __version__
from hermes_agent.contracts.model_provider import UnsignedRequest
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.models.wire_protocol import mapping_pieces
from hermes_agent.system.certificates import defaults_read_later, trusted_certificates, trusted_certificates_later
from hermes_agent.system.safe_http import safe_url_for_log

if TYPE_CHECKING:
    import aiohttp


IDLE_S = 30.0
"""Seconds for which an unused connection is kept."""
LONGEST_LINE = 64 * 1024
"""Longest header of an answer, in bytes."""
LONG_TEXT = 32 * 1024
"""Bytes from which on a text of a body is long."""
USER_AGENT = f"hermes-agent/{__version__}"


@lazy_dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """Time limits of a request, in seconds."""

    connect_s: float = 10.0
    """Until the connection is made."""
    first_byte_s: float = 300.0
    """Until the first byte after the request is sent: long prompts and queues take time."""
    idle_s: float = 120.0
    """Between two pieces of the answer."""
    whole_s: float | None = None
    """From the request to the end of the answer; None sets no limit."""


class TransportError(Exception):
    """A connection failed; the message says how, in words for users."""


@lazy_dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer after its headers have arrived."""

    status: int
    content_type: str
    """Lower case, without parameters; "" if the header is missing."""
    retry_after_s: float | None
    pieces: AsyncIterator[bytes]
    """The body as it arrives; raises `TransportError`."""
    has_ended: Callable[[], bool]
    """Returns whether `pieces` ends at once: its last piece was taken."""


class HttpExchange(contextlib.AbstractAsyncContextManager[HttpResponse]):
    """The block in which an answer is read; its end closes the answer."""

    def __init__(self, sent: Coroutine[Any, Any, tuple[aiohttp.ClientResponse, HttpResponse]]) -> None:
        self._sent = sent

    async def __aenter__(self) -> HttpResponse:
        self._response, answer = await self._sent
        return answer

    async def __aexit__(self, *_: object) -> None:
        self._response.close()  # after its end the connection is back in the pool already


def load_http() -> ModuleType:
    """Import the HTTP library, which takes 0.1 s of CPU; at the first request, or earlier by an idle host."""
    if "aiohttp" in sys.modules:
        return importlib.import_module("aiohttp")  # another thread may be importing it
    with defaults_read_later():  # its own contexts are for requests of plugins
        return importlib.import_module("aiohttp")


Sign = Callable[[UnsignedRequest], Awaitable[Mapping[str, str]]]


class HttpTransport:
    """HTTP requests to one endpoint, over one pool of connections.

    Args:
        base_url: of the endpoint; a user and password in it replace the header `authorization`.
        is_child: whether the server is a child process of the agent. Then no proxy is used, and no connection is used
            twice, since llama.cpp's server may close one while the next request is being sent.
    """

    def __init__(self, base_url: str, deadlines: HttpTimeouts, *, is_child: bool = False) -> None:
        self._is_child = is_child
        self._base_url = base_url
        self._has_login = "@" in urlsplit(base_url).netloc
        self._deadlines = deadlines
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        """By event loop, which owns its connections; a command may run several loops, one after another."""
        self._proxies = {} if is_child else getproxies()
        self._http: ModuleType | None = None

    def exchange(
        self, path: str, headers: Mapping[str, str], body: dict[str, Any] | None = None, sign: Sign | None = None
    ) -> HttpExchange:
        """Send a request on entering the block; leaving the block, also by cancellation, closes the answer.

        Args:
            path: below the base URL of the endpoint.
            headers: with the key.
            body: JSON of a POST (`models.wire_protocol`); None sends a GET.
            sign: returns additional headers for this request.

        Raises:
            TransportError: there is no answer.
        """
        return HttpExchange(self._send(path, headers, body, sign))

    async def _send(
        self, path: str, headers: Mapping[str, str], body: dict[str, Any] | None, sign: Sign | None
    ) -> tuple[aiohttp.ClientResponse, HttpResponse]:
        http = self._http = self._http or load_http()
        session = await self._session(http)
        url = self._base_url + path
        sent = dict(headers)
        if self._has_login:
            sent.pop("authorization", None)
        pieces = None if body is None else _joined(mapping_pieces(body))
        if pieces is not None:
            sent = {"content-type": "application/json", **sent}
        method = "GET" if pieces is None else "POST"
        if sign is not None:
            sent |= await sign(UnsignedRequest(method, url, sent, b"".join(pieces or ())))
        data = None if pieces is None else _payload_class()(pieces)
        whole_s = self._deadlines.whole_s
        end = asyncio.get_running_loop().time() + whole_s if whole_s else math.inf
        try:
            async with asyncio.timeout(_remaining_s(self._deadlines.first_byte_s, end)):
                response = await session.request(method, url, data=data, headers=sent, proxy=self._proxy(url))
        except TimeoutError as exc:
            raise TransportError(self._timed_out(exc)) from exc
        except (http.ClientError, ValueError) as exc:  # ValueError: an invalid URL
            raise TransportError(failure_reason(exc, "without an answer")) from exc
        return response, _make_response(response, self._pieces(response, end))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._close_ended()
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def _session(self, http: ModuleType) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            needed = self._proxies or self._base_url.lower().startswith("https:")
            tls = trusted_certificates() if needed else trusted_certificates_later()  # a redirect may need them
            kept: dict[str, Any] = {"force_close": True} if self._is_child else {"keepalive_timeout": IDLE_S}
            self._sessions[loop] = http.ClientSession(
                connector=http.TCPConnector(limit=0, ssl=tls, resolver=http.ThreadedResolver(), **kept),
                headers={"user-agent": USER_AGENT, "accept": "*/*"},
                cookie_jar=http.DummyCookieJar(),
                timeout=http.ClientTimeout(total=None, connect=self._deadlines.connect_s),
                max_line_size=LONGEST_LINE,
                max_field_size=LONGEST_LINE,
            )
            await self._close_ended()  # last: parallel requests share the new session
        return self._sessions[loop]

    async def _close_ended(self) -> None:
        """Close the sessions of event loops that have ended."""
        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            await self._sessions.pop(loop).close()

    def _proxy(self, url: str) -> str | None:
        """Return the proxy of the environment for a URL, or None.

        Raises:
            TransportError: its kind is not supported.
        """
        if not self._proxies:
            return None
        parts = urlsplit(url)
        proxy = self._proxies.get(parts.scheme) or self._proxies.get("all")
        if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
            return None
        kind, separator, _ = proxy.partition("://")
        if separator and kind not in ("http", "https"):
            raise TransportError(
                f"the environment names a proxy of the kind {kind}, and only http and https are supported"
            )
        return proxy if separator else f"http://{proxy}"

    async def _pieces(self, response: aiohttp.ClientResponse, end: float) -> AsyncIterator[bytes]:
        wait_s = self._deadlines.first_byte_s
        content = response.content
        while not content.at_eof():
            try:
                piece = content.read_nowait()  # what is there needs no timer
                if not piece:
                    async with asyncio.timeout(_remaining_s(wait_s, end)):
                        piece = await content.readany()
            except TimeoutError:
                raise TransportError(self._stalled(wait_s, end)) from None
            except load_http().ClientError as exc:
                raise TransportError(failure_reason(exc)) from exc
            if not piece:
                return
            wait_s = self._deadlines.idle_s
            yield piece

    def _stalled(self, wait_s: float, end: float) -> str:
        if asyncio.get_running_loop().time() >= end:
            return f"it was not complete after {self._deadlines.whole_s:g} seconds"
        return f"nothing came for {wait_s:g} seconds"

    def _timed_out(self, exc: BaseException) -> str:
        if isinstance(exc, load_http().ConnectionTimeoutError):
            return f"no connection within {self._deadlines.connect_s:g} seconds"
        return f"no answer within {self._deadlines.first_byte_s:g} seconds"


def _remaining_s(wait_s: float, end: float) -> float:
    """Return the smaller of a wait and the time until `end` on the loop's clock, in seconds."""
    return min(wait_s, max(0.0, end - asyncio.get_running_loop().time()))


def failure_reason(exc: BaseException, closed: str = "in the middle") -> str:
    """Return in words why a connection failed, by the innermost error that tells.

    Args:
        closed: where in the exchange the other side closed the connection.
    """
    links = list(_chain(exc))
    inside_out = links[::-1]
    for link in inside_out:
        if isinstance(link, socket.gaierror):
            return "the name does not resolve"
        if isinstance(link, ssl.SSLError):
            return f"TLS failed ({getattr(link, 'verify_message', '') or getattr(link, 'reason', '') or link})"
    number = next((link.errno for link in inside_out if isinstance(link, OSError) and link.errno), 0)
    if number == errno.ECONNREFUSED:
        return "the connection was refused"
    if number in (errno.ECONNRESET, errno.EPIPE):
        return "the connection was reset"
    if number:
        return os.strerror(number).lower()
    return _library_error_text(links, closed)


def _library_error_text(links: list[BaseException], closed: str) -> str:
    """Return an error of the HTTP library in words."""
    http = load_http()
    for link in links:
        if isinstance(link, http.InvalidURL | http.NonHttpUrlClientError):
            return f"{safe_url_for_log(str(link.args[0]))} is no address of a web server"
        if isinstance(link, http.TooManyRedirects):
            return "it leads from one address to the next without end"
        if isinstance(link, http.ClientResponseError):
            return "what came is not HTTP"
        if isinstance(link, http.ServerDisconnectedError | http.ClientPayloadError):
            return f"the connection was closed {closed}"
        if isinstance(link, http.ClientOSError):
            return "the connection broke"
    texts = [str(link) for link in links if str(link)]
    return texts[-1] if texts else type(links[-1]).__name__


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, outermost first, also those in groups."""
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


def _joined(texts: Sequence[bytes]) -> list[bytes]:
    """Return a body in one piece, or in up to four: before what is long, and its longest text as it is.

    The library copies the first piece once more, and a conversation's text is the longest one.
    """
    lengths = list(map(len, texts))
    long = next((place for place, length in enumerate(lengths) if length >= LONG_TEXT), 0)
    if not long:
        return [b"".join(texts)]
    longest = max(range(long, len(texts)), key=lengths.__getitem__)
    pieces = (texts[:long], texts[long:longest], texts[longest : longest + 1], texts[longest + 1 :])
    return [b"".join(piece) for piece in pieces if piece]  # of one text, `join` returns the text itself


@functools.cache
def _payload_class() -> type[aiohttp.Payload]:
    """Return the class of a body in pieces; it is made late, as the library is imported."""
    http = load_http()

    class Pieces(http.Payload):  # type: ignore[misc, name-defined]
        _autoclose = True  # it holds no file

        def __init__(self, pieces: list[bytes]) -> None:
            super().__init__(pieces)
            self._size = sum(map(len, pieces))

        def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
            return b"".join(self._value).decode(encoding, errors)

        async def write(self, writer: aiohttp.abc.AbstractStreamWriter) -> None:
            for piece in self._value:
                await writer.write(piece)

    return Pieces


def _make_response(response: Any, pieces: AsyncIterator[bytes]) -> HttpResponse:
    headers: Mapping[str, str] = response.headers
    return HttpResponse(
        status=response.status,
        content_type=headers.get("content-type", "").partition(";")[0].strip().lower(),
        retry_after_s=_retry_after(headers),
        pieces=pieces,
        has_ended=response.content.at_eof,
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in `Retry-After` or `retry-after-ms`, or None."""
    value, ms = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    if not value and not ms:
        return None
    for text, unit_s in ((ms, 0.001), (value, 1.0)):
        with contextlib.suppress(ValueError):
            if math.isfinite(number := float(text)):
                return max(0.0, number * unit_s)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
