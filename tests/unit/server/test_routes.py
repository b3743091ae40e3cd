"""Which route answers a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_agent.server.app import HttpRoute, RouteTable, make_application
from hermes_agent.server.http_types import App, ClientDisconnected, HttpReply, Message, Receive, Scope


def saying(what: str) -> App:
    async def answer(scope: Scope, receive: Receive) -> HttpReply:
        return HttpReply(200, f"{what} {scope['name']}".strip().encode())

    return make_application(answer)


ROUTES = RouteTable(
    [
        HttpRoute("/things", saying("list")),
        HttpRoute("/things", saying("make"), "POST"),
        HttpRoute("/things/", saying("show")),
        HttpRoute("/things/", saying("change"), "POST"),
        HttpRoute("/only", saying("posted"), "POST"),
    ]
)


async def ask(method: str, path: str, app: Any = ROUTES) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "headers": []}, receive, send)
    return sent


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/things", b"list"),
        ("HEAD", "/things", b"list"),
        ("POST", "/things", b"make"),
        ("GET", "/things/a", b"show a"),
        ("GET", "/things/a/b", b"show a/b"),
        ("POST", "/things/a", b"change a"),
    ],
)
async def test_the_route_of_path_and_method_answers(method: str, path: str, said: bytes) -> None:
    assert (await ask(method, path))[1]["body"] == said


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("DELETE", "/things/a", 405, b"GET, HEAD, POST"),
        ("GET", "/only", 405, b"POST"),
        ("GET", "/things/", 404, None),
        ("GET", "/thing", 404, None),
        ("GET", "/only/", 404, None),
    ],
)
async def test_a_request_for_no_route_is_told_what_there_is(
    method: str, path: str, status: int, allow: bytes | None
) -> None:
    begin, end = await ask(method, path)
    assert begin["status"] == status
    assert dict(begin["headers"]).get(b"allow") == allow
    assert path in json.loads(end["body"])["error"]["message"]


async def test_nothing_is_sent_to_a_caller_that_has_gone() -> None:
    async def answer(scope: Scope, receive: Receive) -> HttpReply:
        raise ClientDisconnected

    assert (await ask("GET", "/", RouteTable([HttpRoute("/x", make_application(answer))])))[0]["status"] == 404
    assert await ask("GET", "/x", RouteTable([HttpRoute("/x", make_application(answer))])) == []
