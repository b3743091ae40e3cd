"""A server that writes exactly these bytes, for what no real server can be made to send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

__all__ = ["RawServer", "raw_server"]


@dataclass(slots=True)
class RawServer:
    """A running server."""

    base_url: str = ""
    requests: list[bytes] = field(default_factory=list)
    """Head and body of each request, in order."""
    connections: int = 0
    """How many connections were opened."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed its connection."""


@contextlib.asynccontextmanager
async def raw_server(
    *pieces: bytes,
    status: str = "200 OK",
    content_type: str = "text/event-stream",
    headers: Sequence[str] = (),
    hold: bool = False,
    cut: bool = False,
    before: Sequence[Sequence[bytes]] = (),
) -> AsyncIterator[RawServer]:
    """Answer every request with `pieces`, each as one chunk of a chunked body, so that a client gets them one by one.

    Args:
        headers: further lines of the head.
        hold: leave the body without an end until the client closes the connection.
        cut: close the connection instead of ending the body.
        before: what the first requests are answered with, one after the other; each of these bodies is cut.
    """
    server = RawServer()
    open_ends: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ends[asyncio.current_task()] = writer
        server.connections += 1
        try:
            while True:
                server.requests.append(await _request(reader))
                head = (f"HTTP/1.1 {status}", f"Content-Type: {content_type}", *headers, "Transfer-Encoding: chunked")
                writer.write("\r\n".join((*head, "", "")).encode())
                number = len(server.requests) - 1
                for piece in before[number] if number < len(before) else pieces:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                if cut or number < len(before):
                    return
                if not hold:
                    writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            server.left.set()
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.base_url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        for writer in open_ends.values():
            writer.close()
        await asyncio.gather(*filter(None, open_ends), return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)
