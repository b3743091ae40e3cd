"""Read the body of a request, up to a size and within a time; notice when the caller goes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_agent.server.reply import HttpError

if TYPE_CHECKING:
    from hermes_agent.server.asgi import Receive, Scope

__all__ = ["ClientDisconnected", "read_body", "wait_disconnected"]

CLOSE = ((b"connection", b"close"),)
"""For a body that does not come. After a 413 the connection stays: uvicorn drops what still comes of the body, and
to close instead would reset the connection before the caller has read why."""


class ClientDisconnected(Exception):
    """The connection was closed before the request was complete."""


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int, timeout_s: float) -> bytes:
    """Return the whole body.

    Raises:
        HttpError: 413, more than `max_bytes`; 408, not complete after `timeout_s` seconds.
        ClientDisconnected: nobody waits for an answer.
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
    """Return when the caller has closed the connection; to be called after the body was read."""
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
