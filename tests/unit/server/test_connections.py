"""Many connections that ask nothing, and requests that two readers could take for different ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator

import httpx
import pytest

from hermes_agent.config.settings import Settings
from hermes_agent.server.http_server import peer_name
from hermes_agent.server.webhooks import WebhookEndpoint, read_routes
from unit.server.scripted_door import KEY, LIMIT_S, Gate, Running, echo, serving

PATH = "/v1/chat/completions"
ASKED = {"messages": [{"role": "user", "content": "hi"}]}
HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
MANY, FEW = 2000, 300


@contextlib.asynccontextmanager
async def held(running: Running, count: int, said: bytes) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """So many connections that say something and then nothing."""
    host, port = running.address.split(":")
    writers = []
    try:
        for _ in range(count):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.close()


@pytest.fixture
def descriptors():
    """Room for both ends of the connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 3 * MANY:
        pytest.skip(f"no more than {before[1]} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 3 * MANY), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def ask(http: httpx.AsyncClient, running: Running) -> int:
    return (await http.post(running.url + PATH, json=ASKED, headers=running.headers)).status_code


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b"POST /webhooks/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx"


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize(
    ("said", "count"),
    [(b"", FEW), (HALF, MANY), (HEALTH, FEW), (BODY, FEW)],
    ids=["silent", "half a head", "answered", "half a body"],
)
async def test_clients_are_served_while_one_peer_holds_many_connections(said, count, descriptors, caplog) -> None:
    config = Settings({"webhooks": {"push": {"secret": "the secret of this test"}}})
    webhooks = WebhookEndpoint(read_routes(config, {}), None)  # type: ignore[arg-type]

    own = len(os.listdir("/proc/self/fd"))

    async def run() -> tuple[list[int], int]:
        async with (
            serving(echo, webhooks=webhooks, max_connections=100, max_connections_per_address=60) as running,
            httpx.AsyncClient(timeout=LIMIT_S) as kept,
        ):
            statuses = [await ask(kept, running)]
            client = kept._transport._pool.connections  # type: ignore[attr-defined]
            before = list(client)
            async with held(running, count, said):
                statuses.append(await ask(kept, running))
                async with httpx.AsyncClient(timeout=LIMIT_S) as fresh:
                    statuses += [await ask(fresh, running) for _ in range(3)]
                open_files = len(os.listdir("/proc/self/fd"))
            assert list(client) == before  # who has the key keeps its connection
            return statuses, open_files

    statuses, open_files = await run()
    assert set(statuses) == {200}
    assert open_files - own < count + 80  # the clients' ends, and few of the server's
    lines = [one.getMessage() for one in caplog.records if "too many connections" in one.getMessage()]
    assert len(lines) == 1
    assert "127.0.0.1" in lines[0] and "server.max_connections_per_address" in lines[0]


@pytest.mark.attack("interfaces")
async def test_when_everybody_has_the_key_and_is_worked_for_one_more_gets_503_and_has_a_place_afterwards() -> None:
    gate = Gate()

    async def run() -> tuple[httpx.Response, list[int], int]:
        async with (
            serving(gate.play, max_connections=2) as running,
            httpx.AsyncClient(timeout=LIMIT_S) as http,
            httpx.AsyncClient(timeout=LIMIT_S) as other,
        ):
            async with asyncio.TaskGroup() as group:
                busy = [group.create_task(ask(http, running)) for _ in range(2)]
                for _ in busy:
                    await gate.begun.get()
                refused = await other.get(running.url + "/health")
                gate.go.set()
            return refused, [one.result() for one in busy], (await other.get(running.url + "/health")).status_code

    refused, served, after = await run()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert refused.headers["retry-after"] == "1" and refused.headers["connection"] == "close"
    assert (served, after) == ([200, 200], 200)


async def test_who_has_begun_to_ask_and_gives_way_is_told() -> None:
    async def run() -> bytes:
        async with serving(echo, max_connections=1) as running:
            host, port = running.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(HEALTH + HALF)
            await reader.readuntil(b"}")  # both are read
            async with httpx.AsyncClient(timeout=LIMIT_S) as http:
                assert (await http.get(running.url + "/health")).status_code == 200
            answer = await asyncio.wait_for(reader.read(), LIMIT_S)
            writer.close()
            return answer

    assert (await run()).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
    ],
)
def test_an_address_stands_for_one_peer(address: str, peer: str) -> None:
    assert peer_name(address) == peer


AUTH = f"Host: localhost\r\nAuthorization: Bearer {KEY}\r\n".encode()
SMUGGLED = b"GET /v1/models HTTP/1.1\r\n" + AUTH + b"\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + AUTH
AMBIGUOUS = {
    "length and chunks": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
    "the same length twice": POST + b"Content-Length: 0\r\ncontent-length: 0\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 0, 0\r\n\r\n",
    "a signed length": POST + b"Content-Length: +0\r\n\r\n",
    "a length in hexadecimal": POST + b"Content-Length: 0x0\r\n\r\n",
    "a blank before the colon": POST + b"Content-Length : 0\r\n\r\n",
    "a folded length": POST + b"Content-Length:\r\n 0\r\n\r\n",
    "a folded header": POST + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a fold at the begin": b"GET / HTTP/1.1\r\n X: y\r\n" + AUTH + b"\r\n",
    "bare line feeds": POST.replace(b"\r\n", b"\n") + b"\n",
    "one bare line feed": POST + b"X-A: b\nContent-Length: 0\r\n\r\n",
    "a bare end of the head": POST + b"Content-Length: 0\r\n\n",
    "a bare carriage return": POST + b"X-A: b\rContent-Length: 5\r\n\r\n",
    "a NUL": POST + b"X-A: b\0c\r\n\r\n",
    "another coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a coding in disguise": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0", 1) + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}
AMBIGUOUS_BODIES = {
    "a bare end of a chunk's size": b"1\nx\r\n0\r\n\r\n",
    "a bare carriage return behind a size": b"1;a\rb\r\nx\r\n0\r\n\r\n",
    "a bare end of the trailer": b"1\r\nx\r\n0\r\n\n",
    "a bare line in the trailer": b"1\r\nx\r\n0\r\nA: b\nC: d\r\n\r\n",
    "a folded trailer": b"1\r\nx\r\n0\r\nA: b\r\n c\r\n\r\n",
    "a signed size": b"+1\r\nx\r\n0\r\n\r\n",
}


async def answers(said: bytes, *, piecemeal: bool = False) -> bytes:
    """What one connection is answered until the server closes it."""
    async with serving(echo, head_timeout_s=LIMIT_S) as running:
        host, port = running.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for at in range(len(said)) if piecemeal else ():
            writer.write(said[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        if not piecemeal:
            writer.write(said)
        answer = await asyncio.wait_for(reader.read(), 2 * LIMIT_S)
        writer.close()
        return answer


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("said", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_a_head_that_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(said: bytes) -> None:
    answer = await answers(said + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("body", AMBIGUOUS_BODIES.values(), ids=AMBIGUOUS_BODIES.keys())
async def test_chunks_that_can_be_read_in_two_ways_end_the_connection(body: bytes) -> None:
    answer = await answers(POST + b"Transfer-Encoding: chunked\r\n\r\n" + body + SMUGGLED)
    assert b'"scripted-1"' not in answer  # the list of models
    assert answer.count(b"HTTP/1.1 ") <= 1 and b"200 OK" not in answer


@pytest.mark.parametrize("piecemeal", [False, True])
async def test_requests_one_after_the_other_with_length_or_chunks_are_served(piecemeal: bool) -> None:
    body = b'{"messages": [{"role": "user", "content": "a\\nb"}]}'
    said = (
        POST
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
        + POST
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b'5;a="b"\r\n%b\r\n%x\r\n%b\r\n0\r\nA: b\r\n\r\n' % (body[:5], len(body) - 5, body[5:])
        + SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    )
    answer = await answers(said, piecemeal=piecemeal)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert b'"scripted-1"' in answer


def test_a_daemon_has_the_hard_limit_of_open_files() -> None:
    code = (
        "import resource; from hermes_agent.service.connections import raise_file_limit, limit_connections;"
        "print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE), limit_connections(512))"
    )

    def said(soft: int, hard: int) -> str:
        return subprocess.run(
            ["prlimit", f"--nofile={soft}:{hard}", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()

    assert said(256, 4096) == "4096 (4096, 4096) 512"
    assert said(256, 600) == "600 (600, 600) 300"
