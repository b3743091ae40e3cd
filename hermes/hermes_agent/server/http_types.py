"""ASGI types, replies, request bodies, and the mapping of errors to HTTP statuses.

Errors have the format that OpenAI's clients read. Kinds of `ModelError`:

kind                 status   reason
no_key               503      the server cannot serve until its operator sets a key
auth, refused        502      the provider rejected the server's request, not the client's key
unknown_model        502      the provider does not know the configured model
rate_limit           429      with the provider's delay
context_too_long     400      as OpenAI: the messages of the client are too long
unreachable          503      a retry may succeed soon
cut_off              502      the provider closed the stream
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sqlite3
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hermes_agent.contracts.model_client import NO_OPTIONS, RequestOptions
from hermes_agent.core.errors import EXIT_USAGE, AccessDenied, ModelError, RetryLater, UnsupportedOption, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.models.request_options import refused_option

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


Headers = tuple[tuple[bytes, bytes], ...]

_JSON: Headers = ((b"content-type", b"application/json"),)


@lazy_dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete reply, which is an ASGI application."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    """Names in lower case."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply."""
        headers = list(self.headers)
        if self.status != 204:
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_bytes(value: Any) -> bytes:
    """Return `value` as JSON in ASCII, which also encodes half of a surrogate pair."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def json_reply(value: Any, status: int = 200, headers: Headers = ()) -> HttpReply:
    """Return a reply with `value` as JSON."""
    return HttpReply(status, json_bytes(value), _JSON + headers)


class HttpError(Exception):
    """Error reply to a request.

    Args:
        status: HTTP status, 400 to 599.
        message: what is wrong and what to do; secrets in it are masked.
        code: stable identifier for programs.
        param: path of the wrong part of the request (`messages[0].role`).
        retry_after_s: seconds after which the same request may work.
        may_retry: False stops the client library from sending the request again; None leaves the decision to the
            library, which repeats 408, 409, 429 and 5xx.
        headers: additional headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after_s: float | None = None,
        may_retry: bool | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.may_retry = may_retry
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's format."""
        error = {"message": redactor(self.message), "type": _type(self.status), "param": self.param, "code": self.code}
        return {"error": error}

    def reply(self) -> HttpReply:
        """Return the reply."""
        headers = self.headers
        if self.retry_after_s is not None:
            headers += ((b"retry-after", b"%d" % max(1, math.ceil(self.retry_after_s))),)
        if self.may_retry is False:
            headers += ((b"x-should-retry", b"false"),)  # read by OpenAI's client libraries
        return json_reply(self.body, self.status, headers)


def _type(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 403:
        return "permission_error"
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


CLOSE = ((b"connection", b"close"),)
"""Header for an incomplete body. After a 413 the connection stays open, and uvicorn discards the rest of the body.
Closing it would reset the connection before the client has read the reply."""


class ClientDisconnected(Exception):
    """Error: the client closed the connection before the request was complete."""


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int, timeout_s: float) -> bytes:
    """Return the whole body.

    Raises:
        HttpError: 413, more than `max_bytes`; 408, not complete after `timeout_s` seconds.
        ClientDisconnected: the client has closed the connection.
    """
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if int(declared) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(receive, max_bytes)
    except TimeoutError:
        raise HttpError(
            408, f"the request was not complete after {timeout_s:g} seconds", code="request_timeout", headers=CLOSE
        ) from None


async def wait_disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection; call this after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def _read(receive: Receive, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(
        413,
        f"the request is larger than {max_bytes} bytes ({max_bytes / 1024 / 1024:g} MiB)",
        code="request_too_large",
    )


logger = logging.getLogger(__name__)

STOPPING = "the agent is stopping"
STORAGE_RETRY_S = 5.0

_BY_KIND: dict[str, tuple[int, str, bool | None]] = {
    "no_key": (503, "model_no_key", False),
    "auth": (502, "model_auth_failed", False),
    "payment": (502, "model_no_credit", False),
    "unknown_model": (502, "model_unknown", False),
    "rate_limit": (429, "rate_limit_exceeded", None),
    "context_too_long": (400, "context_length_exceeded", None),
    "unreachable": (503, "model_unreachable", None),
    "overloaded": (502, "model_overloaded", None),
    "cut_off": (502, "model_cut_off", None),
    "empty": (502, "model_empty", None),
    "refused": (502, "model_refused", False),
}


def http_error_of(error: Exception, *, acted: bool = False, options: RequestOptions = NO_OPTIONS) -> HttpError:
    """Return the HTTP error for an exception of a turn; unexpected exceptions are logged and not shown.

    Args:
        acted: whether a tool has run, so that the client must not repeat the request automatically.
        options: options of the client; a provider's rejection of an option is a 400.
    """
    may_repeat = False if acted else None
    if isinstance(error, HttpError):
        return error
    if isinstance(error, UnsupportedOption):
        return _option_error(error.option, error)
    if isinstance(error, ModelError):
        if (
            error.kind == "refused"
            and error.status in (400, 422)
            and (name := refused_option(str(error), options.values()))
        ):
            return _option_error(name, error)
        status, code, may_retry = _BY_KIND.get(error.kind, (502, "model_error", None))
        return HttpError(
            status,
            str(error),
            code=code,
            retry_after_s=error.retry_after_s,
            may_retry=False if acted else may_retry,
        )
    if isinstance(error, RetryLater):
        return HttpError(503, str(error), code="unavailable", retry_after_s=error.after_s, may_retry=may_repeat)
    if isinstance(error, AccessDenied):
        return HttpError(403, str(error), code="session_forbidden")
    if isinstance(error, UserError) and error.exit_status == EXIT_USAGE:
        return HttpError(503, str(error), code="no_model", may_retry=False)
    if isinstance(error, UserError):
        return HttpError(500, str(error), code="agent_error", may_retry=False)
    if isinstance(error, sqlite3.OperationalError):
        logger.error("storage failed: %s", error)
        text = "the agent cannot store data (is its disk full?)"
        return HttpError(503, text, code="storage_unavailable", retry_after_s=STORAGE_RETRY_S, may_retry=may_repeat)
    logger.error("a turn over HTTP failed", exc_info=error)
    return HttpError(500, "internal error; see the log of the agent", code="internal_error", may_retry=may_repeat)


def _option_error(name: str, error: ModelError) -> HttpError:
    return HttpError(400, str(error), code="unsupported_parameter", param=name)


def interrupted_error(reason: str, retry_after_s: float, *, acted: bool) -> HttpError:
    """Return the error for an interrupted turn."""
    message = f"the turn was interrupted: {reason}" if reason else "the turn was interrupted"
    return HttpError(503, message, code="interrupted", retry_after_s=retry_after_s, may_retry=False if acted else None)
