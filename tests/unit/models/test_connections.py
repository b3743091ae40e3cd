"""The connections to a provider, at real servers of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from hermes_agent.models.connections import Connections
from hermes_agent.models.transport import Deadlines, Transport
from peers.irc import certificate

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of `answers`, the last one again and again; None ends the connection."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.asked: list[bytes] = []
        self.ends_idle = False
        self.ended = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.asked.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
                if answer is None or self.ends_idle:
                    break
        writer.close()
        self.ended.set()


@contextlib.asynccontextmanager
async def serving(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def client(tls: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=Connections(tls or ssl.create_default_context(), idle=2, idle_s=30.0))


def test_a_connection_that_the_server_ended_while_it_was_idle_is_not_used_again() -> None:
    async def run() -> tuple[int, int]:
        server = Server(OK)
        server.ends_idle = True
        async with serving(server) as address, client() as asking:
            for _ in range(3):
                server.ended.clear()
                assert (await asking.get(address)).text == "ok"
                await server.ended.wait()
            ended = server.connections
            server.ends_idle = False
            for _ in range(3):
                assert (await asking.get(address)).text == "ok"
            return ended, server.connections

    assert asyncio.run(run()) == (3, 4)


def test_over_tls_the_certificate_is_checked_and_a_connection_used_again(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(made, str(tmp_path / "key.pem"))

    async def run() -> int:
        server = Server(OK)
        async with serving(server, served) as address, client(ssl.create_default_context(cafile=made)) as asking:
            for _ in range(2):
                assert (await asking.get(address)).text == "ok"
            async with client() as stranger:
                with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                    await stranger.get(address)
            return len(server.asked)

    assert asyncio.run(run()) == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", httpx.RemoteProtocolError),
        (b"220 ready\r\n", httpx.RemoteProtocolError),
    ],
)
def test_failures_have_the_names_that_httpx_gives_them(answer: bytes | None, error: type[Exception]) -> None:
    async def run() -> None:
        server = Server(answer)
        server.ends_idle = True
        async with serving(server) as address, client() as asking:
            with pytest.raises(error):
                await asking.get(address)

    asyncio.run(run())


def test_nobody_listens_nobody_answers_and_no_such_scheme() -> None:
    async def run() -> None:
        async with serving(Server(OK)) as address, client() as asking:
            gone = address
        async with client() as asking:
            with pytest.raises(httpx.ConnectError):
                await asking.get(gone)
            with pytest.raises(httpx.UnsupportedProtocol):
                await asking.get("gopher://127.0.0.1/")
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with silent, client() as asking:
            port = silent.sockets[0].getsockname()[1]
            with pytest.raises(httpx.ReadTimeout):
                await asking.get(f"http://127.0.0.1:{port}/", timeout=0.1)

    asyncio.run(run())


async def whole(transport: Transport) -> bytes:
    try:
        async with transport.exchange("/models", {}) as reply:
            return b"".join([piece async for piece in reply.pieces])
    finally:
        await transport.aclose()


def test_an_endpoint_that_has_moved_is_followed() -> None:
    async def run() -> tuple[bytes, list[bytes]]:
        server = Server(b"HTTP/1.1 308 x\r\nlocation: /v2/models\r\ncontent-length: 0\r\n\r\n", OK)
        async with serving(server) as address:
            found = await whole(Transport(f"{address}/v1", Deadlines()))
            return found, [asked.split(b" ")[1] for asked in server.asked]

    assert asyncio.run(run()) == (b"ok", [b"/v1/models", b"/v2/models"])


@pytest.mark.parametrize(
    ("is_child", "direct", "expected"),
    [
        (False, "", b"http://provider.test:81/v1/models"),
        (False, "127.0.0.1", b"/v1/models"),
        (True, "", b"/v1/models"),
    ],
)
def test_a_proxy_of_the_environment_is_asked_unless_the_host_is_excepted_or_a_child(
    monkeypatch: pytest.MonkeyPatch, is_child: bool, direct: str, expected: bytes
) -> None:
    async def run(place: Callable[[str], str]) -> bytes:
        server = Server(OK)
        async with serving(server) as address:
            monkeypatch.setenv("http_proxy", address)
            monkeypatch.setenv("no_proxy", direct)
            assert await whole(Transport(place(address), Deadlines(), is_child=is_child)) == b"ok"
        return server.asked[0].split(b" ")[1]

    there = is_child or bool(direct)
    assert asyncio.run(run(lambda address: f"{address if there else 'http://provider.test:81'}/v1")) == expected
