"""The border to the openai SDK: one request out, the pieces of its answer in.

The SDK carries authentication, the connection pool and TLS. The body passes through as it is, and nothing of the
answer is made into the SDK's objects: both cost several times the request itself (1.5 ms instead of 7 to 9 ms of
CPU for 20 messages and 10 tools, measured with 2.0, 2.54 and 3.54).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hermes_agent.models.endpoint import Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["Broken", "Deadlines", "Reply", "Transport", "load_sdk", "reason"]


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


def load_sdk() -> ModuleType:
    """Import the SDK. It takes 0.5 to 1 s of CPU: done at the first request, or by a host that has time."""
    # ahead of the first request nothing of it is needed
    openai = importlib.import_module("openai")
    importlib.import_module("openai.resources.chat")
    importlib.import_module("openai.resources.models")
    return openai


class Transport:
    """Sends requests to one endpoint, with one pool of connections and one TLS context for its life."""

    def __init__(self, endpoint: Endpoint, deadlines: Deadlines) -> None:
        self._endpoint = endpoint
        self._deadlines = deadlines
        self._client: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def post(
        self, body: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a chat-completions request; leaving the block, also by cancellation, closes the answer.

        Args:
            headers: beside those that every request has.

        Raises:
            Broken: no answer came.
        """
        return self._exchange(
            lambda client, own: client.chat.completions.with_streaming_response.create(
                model=body["model"], messages=[], stream=True, extra_body=body, extra_headers={**(headers or {}), **own}
            )
        )

    def models(self) -> AbstractAsyncContextManager[Reply]:
        """Ask for the list of models.

        Raises:
            Broken: no answer came.
        """
        return self._exchange(lambda client, headers: client.models.with_streaming_response.list(extra_headers=headers))

    @contextlib.asynccontextmanager
    async def _exchange(self, send: Callable[[AsyncOpenAI, Any], Any]) -> AsyncIterator[Reply]:
        openai = load_sdk()
        client = self._sdk_client(openai)
        # keeps the SDK from sending its placeholder; with 2.54 and 3 it is accepted here, not in the client
        headers = {} if self._endpoint.key else {"Authorization": openai.Omit()}
        whole_s = self._deadlines.whole_s
        end = asyncio.get_running_loop().time() + whole_s if whole_s else math.inf
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_left(self._deadlines.first_byte_s, end)):
                    answer = await stack.enter_async_context(send(client, headers))
                reply = _reply(answer.http_response, self._pieces(answer.http_response, end))
            except openai.APIStatusError as exc:
                reply = _reply(exc.response, _whole(exc.response.content))
            except (TimeoutError, openai.APITimeoutError) as exc:
                raise Broken(self._timed_out(exc)) from exc
            except (openai.APIConnectionError, *_http_errors()) as exc:
                raise Broken(reason(exc, "without an answer")) from exc
            yield reply

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    def _sdk_client(self, openai: ModuleType) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # connections belong to the loop that made them; a command line runs one loop after another
            self._client, self._loop = self._new_client(openai), loop
        return self._client

    def _new_client(self, openai: ModuleType) -> AsyncOpenAI:
        endpoint, deadlines = self._endpoint, self._deadlines
        headers: dict[str, Any] = dict(endpoint.provider.default_headers)
        if endpoint.provider.name != "openai":
            # the SDK takes both from the environment and would tell them to any provider
            headers |= {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
        client: AsyncOpenAI = openai.AsyncOpenAI(
            api_key=endpoint.key or "none",
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=openai.Timeout(deadlines.first_byte_s, connect=deadlines.connect_s),
            default_headers=headers,
        )
        return client

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
            except _http_errors() as exc:
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


def _left(wait_s: float, end: float) -> float:
    """The shorter of a wait and what is left until `end` on the loop's clock, in seconds."""
    return min(wait_s, max(0.0, end - asyncio.get_running_loop().time()))


def _http_errors() -> tuple[type[Exception], ...]:
    """The errors of the HTTP library below the SDK: httpx with openai 2, httpx2 with openai 3."""
    loaded = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return tuple(kind for module in loaded for kind in (module.HTTPError, module.StreamError))


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


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


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
