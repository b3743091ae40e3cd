"""Answers of the server: JSON bodies, and errors in the shape that OpenAI's clients read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_agent.core.redact import redactor

if TYPE_CHECKING:
    from hermes_agent.server.asgi import Receive, Scope, Send

__all__ = ["Headers", "HttpError", "HttpReply", "json_bytes", "json_reply"]

Headers = tuple[tuple[bytes, bytes], ...]

_JSON: Headers = ((b"content-type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole answer; an ASGI application."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    """Names in lower case."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = list(self.headers)
        if self.status != 204:
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_bytes(value: Any) -> bytes:
    """Return `value` as JSON in ASCII, so that half a surrogate pair from a model does no harm."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def json_reply(value: Any, status: int = 200, headers: Headers = ()) -> HttpReply:
    """Return an answer with `value` as JSON."""
    return HttpReply(status, json_bytes(value), _JSON + headers)


class HttpError(Exception):
    """A request that gets an error instead of what it asked for.

    Args:
        status: HTTP status, 400 to 599.
        message: what is wrong and what to do; a secret in it is masked.
        code: stable word for programs.
        param: path of the part of the request that is wrong (`messages[0].role`).
        retry_after_s: seconds after which the same request may work.
        may_retry: false tells the client library not to send the request again by itself; None leaves it to its
            rules (it repeats 408, 409, 429 and 5xx).
        headers: further headers.
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
        """The error as OpenAI writes it."""
        error = {"message": redactor(self.message), "type": _type(self.status), "param": self.param, "code": self.code}
        return {"error": error}

    def reply(self) -> HttpReply:
        """Return the answer."""
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
