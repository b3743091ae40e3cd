"""The connections to a provider, at real servers of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import ssl
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.model_provider import UnsignedRequest
from hermes_agent.models.http_transport import LONG_TEXT, HttpTimeouts, HttpTransport, TransportError
from hermes_agent.models.wire_protocol import join_list
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
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
                self.asked.append(head + await reader.readexactly(length))
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


async def whole(transport: HttpTransport, body: dict[str, Any] | None = None) -> bytes:
    async with transport.exchange("/models", {"authorization": "Bearer key"}, body) as reply:
        return b"".join([piece async for piece in reply.pieces])


@pytest.mark.parametrize("length", [0, 10, LONG_TEXT, 40 * LONG_TEXT])
@pytest.mark.parametrize("count", [1, 50])
async def test_a_body_of_any_length_arrives_whole_also_after_a_redirect(length: int, count: int) -> None:
    texts = [b'"%d"' % place + b" " * (length // count) for place in range(count)]
    body = {"model": "m", "messages": join_list(texts), "stream": True}
    wanted = b'{"model":"m","messages":[' + b",".join(texts) + b'],"stream":true}'
    server = Server(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n", OK)
    async with serving(server) as url:
        transport = HttpTransport(url, HttpTimeouts())
        with warnings.catch_warnings(action="error"):
            assert await whole(transport, body) == b"ok"
        await transport.aclose()
    for asked in server.asked:
        head, _, sent = asked.partition(b"\r\n\r\n")
        assert sent == wanted
        assert b"content-type: application/json" in head.lower()
    assert len(server.asked) == 2


async def test_a_signature_is_made_from_the_whole_body() -> None:
    body = {"messages": join_list([b"1" * LONG_TEXT, b"2" * LONG_TEXT])}
    signed: list[bytes] = []

    async def sign(request: UnsignedRequest) -> dict[str, str]:
        signed.append(request.body)
        return {"x-signature": "s"}

    server = Server(OK)
    async with serving(server) as url:
        transport = HttpTransport(url, HttpTimeouts())
        async with transport.exchange("/models", {}, body, sign) as reply:
            assert reply.status == 200
        await transport.aclose()
    assert server.asked[0].endswith(signed[0]) and signed[0] == b'{"messages":[%s,%s]}' % (
        b"1" * LONG_TEXT,
        b"2" * LONG_TEXT,
    )


async def once(transport: HttpTransport, body: dict[str, Any] | None = None) -> bytes:
    try:
        return await whole(transport, body)
    finally:
        await transport.aclose()


async def test_a_connection_is_used_again_unless_the_server_ended_it_while_it_was_idle() -> None:
    async def run() -> tuple[int, int]:
        server = Server(OK)
        server.ends_idle = True
        async with serving(server) as address:
            asking = HttpTransport(address, HttpTimeouts())
            for _ in range(3):
                server.ended.clear()
                assert await whole(asking) == b"ok"
                await server.ended.wait()
            ended = server.connections
            server.ends_idle = False
            for _ in range(3):
                assert await whole(asking) == b"ok"
            await asking.aclose()
            return ended, server.connections

    assert await run() == (3, 4)


async def test_no_connection_to_a_child_is_used_twice() -> None:
    async def run() -> int:
        server = Server(OK)
        async with serving(server) as address:
            asking = HttpTransport(address, HttpTimeouts(), is_child=True)
            for _ in range(2):
                assert await whole(asking) == b"ok"
            await asking.aclose()
            return server.connections

    assert await run() == 2


async def test_an_answer_has_ended_when_its_last_piece_was_taken() -> None:
    async def run() -> tuple[bool, bytes, bool]:
        async with serving(Server(OK)) as address:
            asking = HttpTransport(address, HttpTimeouts())
            async with asking.exchange("/models", {}) as reply:
                before, piece, after = reply.has_ended(), await anext(reply.pieces), reply.has_ended()
                assert await anext(reply.pieces, None) is None
            await asking.aclose()
            return before, piece, after

    assert await run() == (False, b"ok", True)


async def test_an_answer_that_nobody_reads_to_its_end_takes_its_connection_along() -> None:
    async def run() -> int:
        server = Server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", OK)
        async with serving(server) as address:
            asking = HttpTransport(address, HttpTimeouts())
            async with asking.exchange("/models", {}) as reply:
                assert await anext(reply.pieces) == b"ok"
            assert await whole(asking) == b"ok"
            await asking.aclose()
            return server.connections

    assert await run() == 2


async def test_one_loop_after_another_uses_it_and_leaves_nothing_open(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()  # what other tests left, and the log names
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    asking: list[HttpTransport] = []

    async def run() -> bytes:
        async with serving(Server(OK)) as address:
            asking.append(asking[0] if asking else HttpTransport("", HttpTimeouts()))
            asking[-1]._base_url = address
            return await whole(asking[-1])

    assert [await run() for _ in range(3)] == [b"ok"] * 3
    await asking[0].aclose()
    asking.clear()
    gc.collect()
    assert "Unclosed" not in caplog.text


@pytest.fixture
def trusts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def trust(file: str) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", file)

    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    yield trust


async def test_over_tls_the_certificate_is_checked_and_a_connection_used_again(
    tmp_path: Path, trusts: Callable[[str], None]
) -> None:
    made = certificate(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(made, str(tmp_path / "key.pem"))

    async def run() -> tuple[int, int]:
        server = Server(OK)
        async with serving(server, served) as address:
            trusts(made)
            asking = HttpTransport(address, HttpTimeouts())
            for _ in range(2):
                assert await whole(asking) == b"ok"
            await asking.aclose()
            trusts("")
            with pytest.raises(TransportError, match=r"TLS failed \(.*certificate"):
                await once(HttpTransport(address, HttpTimeouts()))
            return server.connections, len(server.asked)

    assert await run() == (1, 2)


CUT, STRANGE = "the connection was closed in the middle", "what came is not HTTP"
OK_WITH = b"HTTP/1.1 200 OK\r\n"
MOVED_TO = b"HTTP/1.1 302 x\r\ncontent-length: 0\r\nlocation: "


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "the connection was closed without an answer"),
        (OK_WITH + b"content-length: 9\r\n\r\nok", CUT),
        (OK_WITH + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n", CUT),
        (OK_WITH + b"transfer-encoding: chunked\r\n\r\nzz\r\n", STRANGE),
        (OK_WITH + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nok", CUT),
        (OK_WITH + b"x: " + b"x" * 70_000 + b"\r\n\r\n", STRANGE),
        (b"220 ready\r\n", STRANGE),
        (MOVED_TO + b"/models\r\n\r\n", "it leads from one address to the next without end"),
        (MOVED_TO + b"gopher://x/\r\n\r\n", "gopher://x/ is no address of a web server"),
    ],
)
async def test_what_is_no_answer_is_said(answer: bytes | None, said: str) -> None:
    async def run() -> None:
        server = Server(answer)
        server.ends_idle = b"location" not in (answer or b"")
        async with serving(server) as address:
            await once(HttpTransport(address, HttpTimeouts()))

    with pytest.raises(TransportError) as error:
        await run()
    assert str(error.value) == said


async def test_nobody_listens_nobody_answers_and_no_such_scheme() -> None:
    async def said(address: str, deadlines: HttpTimeouts) -> str:
        with pytest.raises(TransportError) as error:
            await once(HttpTransport(address, deadlines))
        return str(error.value)

    async def run() -> list[str]:
        async with serving(Server(OK)) as address:
            gone = address
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with silent:
            port = silent.sockets[0].getsockname()[1]
            return [
                await said(gone, HttpTimeouts()),
                await said(f"http://127.0.0.1:{port}", HttpTimeouts(first_byte_s=0.1)),
                await said(f"https://127.0.0.1:{port}", HttpTimeouts(connect_s=0.1)),
                await said("gopher://127.0.0.1", HttpTimeouts()),
            ]

    assert await run() == [
        "the connection was refused",
        "no answer within 0.1 seconds",
        "no connection within 0.1 seconds",
        "gopher://127.0.0.1/models is no address of a web server",
    ]


async def test_a_login_in_the_address_is_sent_in_the_place_of_the_key() -> None:
    async def run() -> bytes:
        server = Server(OK)
        async with serving(server) as address:
            assert await once(HttpTransport(address.replace("://", "://me:secret@"), HttpTimeouts())) == b"ok"
        return server.asked[0].lower()

    asked = await run()
    assert b"authorization: basic bwu6c2vjcmv0" in asked and b"bearer" not in asked


async def test_a_long_body_arrives_whole_also_where_the_endpoint_has_moved() -> None:
    async def run() -> list[bytes]:
        server = Server(b"HTTP/1.1 308 x\r\nlocation: /v2/models\r\ncontent-length: 0\r\n\r\n", OK)
        async with serving(server) as address:
            assert await once(HttpTransport(address, HttpTimeouts()), {"text": "x" * 3_000_000}) == b"ok"
        return server.asked

    first, second = await run()
    assert first.partition(b"\r\n\r\n")[2] == second.partition(b"\r\n\r\n")[2] and len(first) > 3_000_000


async def test_an_endpoint_that_has_moved_is_followed() -> None:
    async def run() -> tuple[bytes, list[bytes]]:
        server = Server(b"HTTP/1.1 308 x\r\nlocation: /v2/models\r\ncontent-length: 0\r\n\r\n", OK)
        async with serving(server) as address:
            found = await once(HttpTransport(f"{address}/v1", HttpTimeouts()))
            return found, [asked.split(b" ")[1] for asked in server.asked]

    assert await run() == (b"ok", [b"/v1/models", b"/v2/models"])


@pytest.mark.parametrize(
    ("is_child", "direct", "expected"),
    [
        (False, "", b"http://provider.test:81/v1/models"),
        (False, "127.0.0.1", b"/v1/models"),
        (True, "", b"/v1/models"),
    ],
)
async def test_a_proxy_of_the_environment_is_asked_unless_the_host_is_excepted_or_a_child(
    monkeypatch: pytest.MonkeyPatch, is_child: bool, direct: str, expected: bytes
) -> None:
    async def run(place: Callable[[str], str]) -> bytes:
        server = Server(OK)
        async with serving(server) as address:
            monkeypatch.setenv("http_proxy", address)
            monkeypatch.setenv("no_proxy", direct)
            assert await once(HttpTransport(place(address), HttpTimeouts(), is_child=is_child)) == b"ok"
        return server.asked[0].split(b" ")[1]

    there = is_child or bool(direct)
    assert await run(lambda address: f"{address if there else 'http://provider.test:81'}/v1") == expected


async def test_a_proxy_of_another_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1080")
    for name in ("http_proxy", "no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TransportError, match="a proxy of the kind socks5, and only http and https"):
        await once(HttpTransport("http://provider.test/v1", HttpTimeouts()))
