"""Who is let in: the key, the Host, the Origin; asked of a real server with raw requests."""

from __future__ import annotations

import asyncio
import email.utils

import httpx
import pytest

from hermes_agent import __version__
from unit.server.scripted_door import KEY, LIMIT_S, echo, serving

BEARER = f"Bearer {KEY}"


async def get(url: str, path: str = "/v1/models", method: str = "GET", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=LIMIT_S) as http:
        return await http.request(
            method, url + path, headers=[(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        )


async def raw(address: str, request: str) -> str:
    """Send bytes as they are and return everything that comes until the connection is closed."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request.encode("latin-1"))
    answer = await asyncio.wait_for(reader.read(), LIMIT_S)
    writer.close()
    return answer.decode("latin-1")


@pytest.mark.attack("interfaces")
async def test_only_who_bears_the_key_gets_in_also_on_loopback() -> None:
    wrong = [
        "",
        "Bearer",
        "Bearer wrong",
        f"{BEARER}x",
        BEARER[:-1],
        f"{BEARER} {KEY}",
        f"Basic {KEY}",
        KEY,
        "Bearer \xe9",
    ]

    async def run() -> tuple[list[int], list[httpx.Response]]:
        async with serving(echo) as running:
            right = [await get(running.url, Authorization=given) for given in (BEARER, f"bearer {KEY}")]
            refused = [await get(running.url), await get(running.url, "/nowhere")]
            refused += [await get(running.url, Authorization=given) for given in wrong]
            return [r.status_code for r in right], refused

    right, refused = await run()
    assert right == [200, 200]
    for response in refused:
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert KEY not in response.text


@pytest.mark.attack("interfaces")
async def test_a_chat_without_the_key_reaches_no_agent() -> None:
    async def run() -> tuple[int, int]:
        async with serving(echo) as running, httpx.AsyncClient(timeout=LIMIT_S) as http:
            body = {"messages": [{"role": "user", "content": "hi"}]}
            response = await http.post(f"{running.url}/v1/chat/completions", json=body)
            return response.status_code, len(running.agent.opened)

    assert await run() == (401, 0)


@pytest.mark.attack("interfaces")
async def test_health_needs_no_key_and_tells_its_numbers_only_to_who_has_it() -> None:
    async def run() -> list[httpx.Response]:
        async with serving(echo) as running:
            return [
                await get(running.url, "/health"),
                await get(running.url, "/health", Authorization=BEARER),
                await get(running.url, "/health", Authorization="Bearer wrong"),
                await get(running.url, "/ready"),
                await get(running.url, "/health", "HEAD"),
            ]

    plain, full, wrong, ready, head = await run()
    assert plain.json() == {"status": "ok", "version": __version__}
    assert full.json() == {
        "status": "ok",
        "version": __version__,
        "plugins": 1,
        "tools": 2,
        "turns_running": 0,
        "turns_waiting": 0,
    }
    assert wrong.status_code == 401
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    assert (head.status_code, head.content) == (200, b"")
    assert plain.headers["cache-control"] == "no-store"


HOSTS = {
    "127.0.0.1": 200,
    "127.0.0.1:8642": 200,
    "localhost:1": 200,
    "LOCALHOST": 200,
    "localhost.": 200,
    "[::1]:8642": 200,
    "agent.example.org": 200,
    "agent.example.org:443": 200,
    "tunnel.example.org:8443": 200,
    "tunnel.example.org": 421,
    "tunnel.example.org:8444": 421,
    "evil.example.org": 421,
    "127.0.0.1.evil.example.org": 421,
    "localhost.evil.example.org": 421,
    "10.0.0.1": 421,
    "0.0.0.0": 421,
    "": 400,
    "a b": 400,
    "evil@127.0.0.1": 400,
    "127.0.0.1:port": 400,
    "127.0.0.1/x": 400,
}


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("path", ["/v1/models", "/health"])
async def test_the_host_must_be_ours(path: str) -> None:
    async def run() -> dict[str, int]:
        hosts = frozenset({"agent.example.org", "tunnel.example.org:8443"})
        async with serving(echo, allowed_hosts=hosts) as running:
            request = f"GET {path} HTTP/1.1\r\nHost: {{}}\r\nAuthorization: {BEARER}\r\nConnection: close\r\n\r\n"
            answers = {host: await raw(running.address, request.format(host)) for host in HOSTS}
            return {host: int(answer.split(" ", 2)[1]) for host, answer in answers.items()}

    assert await run() == HOSTS


@pytest.mark.attack("interfaces")
async def test_two_hosts_or_none_are_refused() -> None:
    async def run() -> list[str]:
        async with serving(echo) as running:
            end = f"Authorization: {BEARER}\r\nConnection: close\r\n\r\n"
            return [
                await raw(running.address, f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n{end}"),
                await raw(running.address, f"GET /v1/models HTTP/1.0\r\n{end}"),
                await raw(running.address, f"GET /v1/models HTTP/1.0\r\nHost: localhost\r\nAuthorization: x\r\n{end}"),
            ]

    assert [answer.split(" ", 2)[1] for answer in await run()] == ["400", "400", "400"]


ORIGINS = {
    ("http://localhost:8642", "localhost:8642"): 200,
    ("http://LOCALHOST:8642", "localhost:8642"): 200,
    ("https://agent.example.org", "agent.example.org"): 200,
    ("https://agent.example.org:443", "agent.example.org"): 200,
    ("https://chat.example.org", "localhost:8642"): 200,
    ("app://obsidian.md", "localhost:8642"): 200,
    ("http://chat.example.org", "localhost:8642"): 403,
    ("https://chat.example.org:444", "localhost:8642"): 403,
    ("http://localhost:3000", "localhost:8642"): 403,
    ("http://127.0.0.1:8642", "localhost:8642"): 403,
    ("http://agent.example.org", "agent.example.org:443"): 403,
    ("https://evil.example.org", "localhost:8642"): 403,
    ("null", "localhost:8642"): 403,
    ("", "localhost:8642"): 403,
    ("file://", "localhost:8642"): 403,
    ("ftp://localhost:8642", "localhost:8642"): 403,
}


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("path", ["/v1/models", "/health"])
async def test_pages_of_other_origins_are_refused(path: str) -> None:
    allowed = frozenset({"https://chat.example.org", "app://obsidian.md"})

    async def run() -> dict[tuple[str, str], httpx.Response]:
        hosts = frozenset({"agent.example.org"})
        async with serving(echo, allowed_origins=allowed, allowed_hosts=hosts) as running:
            return {
                (origin, host): await get(running.url, path, Authorization=BEARER, Host=host, Origin=origin)
                for origin, host in ORIGINS
            }

    answers = await run()
    assert {asked: response.status_code for asked, response in answers.items()} == ORIGINS
    for (origin, _), response in answers.items():
        assert response.headers.get("access-control-allow-origin") == (origin if origin in allowed else None)
        assert "*" not in str(response.headers)


async def test_a_page_of_an_allowed_origin_may_ask_before_it_sends() -> None:
    async def run() -> tuple[httpx.Response, httpx.Response, httpx.Response]:
        async with serving(echo, allowed_origins=frozenset({"https://chat.example.org"})) as running:
            ask = {
                "Access_Control_Request_Method": "POST",
                "Access_Control_Request_Headers": "authorization, x-stainless-os",
            }
            path = "/v1/chat/completions"
            return (
                await get(running.url, path, "OPTIONS", Origin="https://chat.example.org", **ask),
                await get(running.url, path, "OPTIONS", Origin="https://evil.example.org", **ask),
                await get(running.url, "/v1/models", Origin="https://chat.example.org"),
            )

    allowed, evil, without_key = await run()
    assert (allowed.status_code, allowed.content) == (204, b"")
    assert allowed.headers["access-control-allow-origin"] == "https://chat.example.org"
    assert allowed.headers["access-control-allow-headers"] == "authorization, x-stainless-os"
    assert allowed.headers["vary"] == "Origin"
    assert evil.status_code == 403
    assert without_key.status_code == 401
    assert without_key.headers["access-control-allow-origin"] == "https://chat.example.org"  # the page may read why


async def test_an_unknown_path_and_method_answer_in_json() -> None:
    async def run() -> list[httpx.Response]:
        async with serving(echo) as running:
            return [
                await get(running.url, "/v1/assistants", Authorization=BEARER),
                await get(running.url, "/v1/chat/completions", Authorization=BEARER),
                await get(running.url, "/health/", Authorization=BEARER),
            ]

    unknown, method, slash = await run()
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert (method.status_code, method.json()["error"]["code"], method.headers["allow"]) == (
        405,
        "method_not_allowed",
        "POST",
    )
    assert slash.status_code == 404


async def test_every_answer_is_dated_once_and_does_not_name_the_server() -> None:
    async def run() -> httpx.Response:
        async with serving(echo) as running:
            return await get(running.url, "/health")

    headers = (await run()).headers
    assert email.utils.parsedate_to_datetime(headers["date"]).tzinfo is not None
    assert "," in headers["date"] and headers.get_list("date") == [headers["date"]]
    assert "server" not in headers


@pytest.mark.attack("interfaces")
async def test_a_websocket_gets_no_further() -> None:
    async def run() -> str:
        async with serving(echo) as running:
            upgrade = (
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
            )
            host = f"Host: {running.address}\r\n"
            return await raw_head(running.address, f"GET /v1/models HTTP/1.1\r\n{host}{upgrade}\r\n")

    assert (await run()).split(" ", 2)[1] == "401"


async def raw_head(address: str, request: str) -> str:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request.encode("latin-1"))
    line = await asyncio.wait_for(reader.readline(), LIMIT_S)
    writer.close()
    return line.decode("latin-1")


@pytest.mark.attack("interfaces")
async def test_the_metrics_are_for_who_bears_the_key() -> None:
    async def run() -> tuple[httpx.Response, httpx.Response]:
        async with serving(echo) as running:
            return await get(running.url, "/metrics"), await get(running.url, "/metrics", Authorization=BEARER)

    refused, told = await run()
    assert refused.status_code == 401
    assert told.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert f'hermes_info{{version="{__version__}"}} 1\n' in told.text
    assert "# TYPE hermes_tools gauge\nhermes_tools 2\n" in told.text
    assert "hermes_turns_running 0\n" in told.text
