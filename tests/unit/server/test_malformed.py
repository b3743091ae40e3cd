"""Requests that nobody should send: an error of the caller's each time, never one of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.server import HttpSettings, build
from hermes_agent.server.chat_format import read_chat_request
from hermes_agent.server.http_types import HttpError
from unit.server.scripted_door import KEY, LIMIT_S, ScriptedAgent, echo, serving

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}


def chat(messages: Any) -> dict[str, Any]:
    return {"messages": messages}


CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]}
WRONG: list[tuple[Any, str | None]] = [
    ([], None),
    ("text", None),
    (None, None),
    ({}, "messages"),
    (chat(None), "messages"),
    (chat({}), "messages"),
    (chat([]), "messages"),
    (chat(["hi"]), "messages[0]"),
    (chat([{}]), "messages[0].role"),
    (chat([{"role": "robot", "content": "hi"}]), "messages[0].role"),
    (chat([{"role": ["user"], "content": "hi"}]), "messages[0].role"),
    (chat([{"role": "user"}]), "messages[0].content"),
    (chat([{"role": "user", "content": 5}]), "messages[0].content"),
    (chat([{"role": "user", "content": []}]), "messages[0].content"),
    (chat([{"role": "user", "content": "  "}]), "messages[0].content"),
    (chat([{"role": "user", "content": "a\0b"}]), "messages[0].content"),
    (chat([{"role": "user", "content": ["hi"]}]), "messages[0].content[0].type"),
    (chat([{"role": "user", "content": [{"type": "video"}]}]), "messages[0].content[0].type"),
    (chat([{"role": "user", "content": [{"type": {}}]}]), "messages[0].content[0].type"),
    (chat([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
    (chat([{"role": "user", "content": [{"type": "image_url"}]}]), "messages[0].content[0].image_url"),
    (
        chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]),
        "messages[0].content[0].image_url.url",
    ),
    (chat([{"role": "system", "content": "hi"}]), "messages"),
    (chat([USER, {"role": "assistant", "content": "hi"}]), "messages"),
    (
        chat([{"role": "system", "content": [{"type": "image_url", "image_url": {}}]}, USER]),
        "messages[0].content[0].type",
    ),
    (chat([USER, CALL, USER]), "messages[2]"),
    (chat([USER, CALL]), "messages"),
    (chat([USER, CALL, {"role": "tool", "tool_call_id": "c2", "content": "r"}]), "messages[2].tool_call_id"),
    (chat([{"role": "tool", "tool_call_id": "c1", "content": "r"}, USER]), "messages[0].tool_call_id"),
    (chat([{"role": "assistant", "tool_calls": {}}, USER]), "messages[0].tool_calls"),
    (chat([{"role": "assistant", "tool_calls": [5]}, USER]), "messages[0].tool_calls[0]"),
    (chat([{"role": "assistant", "tool_calls": [{"function": {}}]}, USER]), "messages[0].tool_calls[0].id"),
    (chat([CALL | {"tool_calls": CALL["tool_calls"] * 2}, USER]), "messages[0].tool_calls"),  # type: ignore[operator]
    (chat([USER]) | {"model": 5}, "model"),
    (chat([USER]) | {"stream": "yes"}, "stream"),
    (chat([USER]) | {"stream_options": {"include_usage": True}}, "stream_options"),
    (chat([USER]) | {"stream": True, "stream_options": 1}, "stream_options"),
    (chat([USER]) | {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
]


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize(("body", "param"), WRONG, ids=lambda value: json.dumps(value)[:60])
def test_a_body_of_the_wrong_shape_is_refused_at_its_place(body: Any, param: str | None) -> None:
    with pytest.raises(HttpError) as caught:
        read_chat_request(json.dumps(body).encode(), ["scripted-1"])
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"messages": NaN}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b'{"n": ' + b"9" * 10_000 + b"}",
        b"[" * 200_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        read_chat_request(body, [])
    assert (caught.value.status, caught.value.code) == (400, "invalid_request")


@pytest.mark.attack("interfaces")
async def test_a_body_over_the_limit_is_refused_declared_or_not() -> None:
    async def pieces() -> Any:
        for _ in range(64):
            yield b"x" * 1024

    async def run() -> list[httpx.Response]:
        async with serving(echo, max_body_bytes=10_000) as running, httpx.AsyncClient(timeout=LIMIT_S) as http:
            url, headers = running.url + PATH, running.headers
            fits = json.dumps(chat([{"role": "user", "content": "x" * 9_000}])).encode()
            return [
                await http.post(url, content=b"x" * 10_001, headers=headers),
                await http.post(url, content=pieces(), headers=headers),
                await http.post(url, content=fits, headers=headers),
            ]

    declared, chunked, fits = await run()
    for response in (declared, chunked):
        assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
    assert fits.status_code == 200


@pytest.mark.attack("interfaces")
async def test_a_body_that_does_not_come_is_not_waited_for_longer_than_set() -> None:
    async def run() -> bytes:
        async with serving(echo, body_timeout_s=0.05) as running:
            host, port = running.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = (
                f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 10\r\n\r\n123"
            )
            writer.write(head.encode())
            answer = await asyncio.wait_for(reader.read(), LIMIT_S)
            writer.close()
            return answer

    assert (await run()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.attack("interfaces")
async def test_a_connection_that_never_asks_is_closed_and_one_that_asks_slowly_but_wholly_is_served() -> None:
    async def run() -> tuple[list[bytes], bytes]:
        async with serving(echo, head_timeout_s=0.5) as running:
            host, port = running.address.split(":")
            whole = f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            silent = []
            for asked, rest in ((b"", b""), (b"", whole[:20]), (whole, whole[:20])):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(asked)
                answer = await reader.readuntil(b"}") if asked else b""
                writer.write(rest)
                silent.append(answer + await asyncio.wait_for(reader.read(), LIMIT_S))
                writer.close()
            reader, writer = await asyncio.open_connection(host, int(port))
            for at in range(0, len(whole), 10):
                writer.write(whole[at : at + 10])
                await writer.drain()
            served = await asyncio.wait_for(reader.readline(), LIMIT_S)
            writer.close()
            return silent, served

    (nothing, part, second_part), served = await run()
    assert (nothing, part) == (b"", b"")
    assert second_part.count(b"HTTP/1.1 200 OK") == 1
    assert served == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + b"a" * 60_000 + b"\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example.org/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
    ids=lambda value: repr(value[:50]),
)
async def test_what_is_not_http_does_no_harm(request_bytes: bytes) -> None:
    async def run() -> tuple[bytes, int]:
        async with serving(echo) as running:
            host, port = running.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request_bytes)
            answer = await asyncio.wait_for(reader.read(), LIMIT_S)
            writer.close()
            async with httpx.AsyncClient(timeout=LIMIT_S) as http:
                return answer, (await http.get(f"{running.url}/health")).status_code

    answer, after = await run()
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 "))
    assert after == 200


class InProcess:
    """The application without a socket, for many requests."""

    def __init__(self) -> None:
        app = build(ScriptedAgent(echo), HttpSettings(key=KEY), models=["scripted-1"])
        self._http = httpx.ASGITransport(app, raise_app_exceptions=True)

    def __call__(self, method: str, path: str, content: bytes, headers: dict[str, bytes]) -> httpx.Response:
        async def run() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._http, base_url="http://localhost") as http:
                return await http.request(method, path, content=content, headers=headers)

        return asyncio.run(run())


@pytest.fixture(scope="module")
def send() -> Callable[..., httpx.Response]:
    return InProcess()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_audio", "file", "refusal", "x"]) | values},
    optional={
        "text": values,
        "image_url": st.fixed_dictionaries({"url": values}) | values,
        "refusal": values,
        "file": values,
    },
)
calls = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from("ab") | values,
        "function": st.fixed_dictionaries({}, optional={"name": values, "arguments": values}) | values,
    },
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]) | values},
    optional={
        "content": st.text(max_size=20) | st.lists(parts, max_size=3) | values,
        "tool_calls": st.lists(calls, max_size=2) | values,
        "tool_call_id": st.sampled_from("ab") | values,
    },
)
bodies = st.fixed_dictionaries(
    {"messages": st.lists(messages, max_size=4) | values},
    optional={
        "model": st.sampled_from(["scripted-1", "hermes-agent"]) | values,
        "stream": st.booleans() | values,
        "stream_options": st.fixed_dictionaries({"include_usage": st.booleans() | values}) | values,
        "n": values,
        "tools": values,
        "response_format": values,
        "modalities": values,
        "temperature": values,
    },
)
often = settings(max_examples=150)


def check_never_ours(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"] and error["code"]


@pytest.mark.attack("interfaces")
@often
@given(body=bodies)
def test_no_json_makes_it_fail(send: Callable[..., httpx.Response], body: Any) -> None:
    headers = {"authorization": f"Bearer {KEY}".encode()}
    check_never_ours(send("POST", PATH, json.dumps(body).encode(), headers))


@pytest.mark.attack("interfaces")
@often
@given(body=st.binary(max_size=60))
def test_no_bytes_make_it_fail(send: Callable[..., httpx.Response], body: bytes) -> None:
    response = send("POST", PATH, body, {"authorization": f"Bearer {KEY}".encode()})
    assert response.status_code == 400
    check_never_ours(response)


header_bytes = st.binary(max_size=30).map(
    lambda value: value.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")
)


@pytest.mark.attack("interfaces")
@often
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"]),
    path=st.sampled_from(["/health", "/ready", "/v1/models", "/v1/models/x", PATH, "/", "/v1/%00", "//health"]),
    host=st.just(b"localhost") | header_bytes,
    origin=st.none() | header_bytes,
    key=st.just(f"Bearer {KEY}".encode()) | header_bytes,
    session=st.none() | header_bytes,
)
def test_no_headers_make_it_fail(
    send: Callable[..., httpx.Response],
    method: str,
    path: str,
    host: bytes,
    origin: bytes | None,
    key: bytes,
    session: bytes | None,
) -> None:
    headers = {"host": host, "authorization": key}
    if origin is not None:
        headers["origin"] = origin
    if session is not None:
        headers["x-hermes-session-id"] = session
    response = send(method, path, b'{"messages": [{"role": "user", "content": "hi"}]}', headers)
    if method != "HEAD":
        check_never_ours(response)
    assert response.status_code < 500
