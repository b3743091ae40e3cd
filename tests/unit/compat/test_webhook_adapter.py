"""The adapter for events by HTTP that platform plugins derive from: signatures, filters, texts, replies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from hermes_agent.adapters.config import PlatformConfig
from hermes_agent.adapters.events import SendResult
from hermes_agent.compat.webhook_adapter import SUBSCRIPTIONS, WebhookAdapter
from hermes_agent.compat.webhook_routes import WebhookRouteProcessor

SECRET = "a-secret-of-the-test"
ROUTE = {"secret": SECRET, "prompt": "{event_type}: {issue.title} {issue.labels} {none.here}"}
PAYLOAD = {"type": "opened", "issue": {"title": "It leaks", "labels": ["bug"]}}
TEXT = 'opened: It leaks [\n  "bug"\n] {none.here}'


class Received(WebhookAdapter):
    """Keeps the messages instead of answering them."""

    def __init__(self, config: PlatformConfig) -> None:
        super().__init__(config)
        self.events: list[Any] = []

    async def handle_message(self, event: Any) -> None:
        self.events.append(event)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def adapter(**routes: Any) -> Received:
    return Received(PlatformConfig(enabled=True, extra={"host": "127.0.0.1", "port": free_port(), "routes": routes}))


@asynccontextmanager
async def listening(made: Received) -> AsyncIterator[aiohttp.ClientSession]:
    assert await made.connect()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{made._port}") as client:
            yield client
    finally:
        await made.disconnect()


def mac(content: bytes) -> bytes:
    return hmac.new(SECRET.encode(), content, hashlib.sha256).digest()


def signed(scheme: str, body: bytes, stamp: int) -> dict[str, str]:
    at = str(stamp)
    svix = base64.b64encode(mac(f"m1.{at}.".encode() + body)).decode()
    return {
        "github": {"X-Hub-Signature-256": "sha256=" + mac(body).hex()},
        "gitlab": {"X-Gitlab-Token": SECRET},
        "generic": {"X-Webhook-Signature": mac(body).hex()},
        "timed": {"X-Webhook-Signature-V2": mac(at.encode() + b"." + body).hex(), "X-Webhook-Timestamp": at},
        "svix": {"svix-id": "m1", "svix-timestamp": at, "svix-signature": f"v1,AAAA v1,{svix}"},
        "none": {},
    }[scheme]


async def post(client: aiohttp.ClientSession, route: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    async with client.post(f"/webhooks/{route}", data=body, headers=headers) as reply:
        return reply.status, await reply.json()


@pytest.mark.parametrize("scheme", ["github", "gitlab", "generic", "timed", "svix"])
async def test_a_signed_event_begins_a_conversation_with_the_filled_text(scheme: str, home: Path) -> None:
    made = adapter(issues=ROUTE)
    async with listening(made) as client:
        body = json.dumps(PAYLOAD).encode()
        headers = signed(scheme, body, int(time.time())) | {"X-Request-ID": "r1"}
        delivery = headers.get("svix-id", "r1")
        assert await post(client, "issues", body, headers) == (
            202,
            {
                "status": "accepted",
                "route": "issues",
                "event": "opened",
                "delivery_id": delivery,
            },
        )
        again = await post(client, "issues", body, headers)
        assert (again[0], again[1]["status"]) == (200, "duplicate")
    [event] = made.events
    assert event.text == TEXT
    assert event.source.chat_id.startswith("webhook:issues:")


async def test_what_is_unsigned_old_or_downgraded_is_refused(home: Path) -> None:
    made = adapter(issues=ROUTE)
    body, now = json.dumps(PAYLOAD).encode(), int(time.time())
    downgraded = signed("timed", body, now) | signed("generic", body, now)
    del downgraded["X-Webhook-Timestamp"]
    async with listening(made) as client:
        for headers in (
            {},
            signed("timed", body, now - 4000),
            signed("svix", body, now - 4000),
            signed("github", b"another", now),
            downgraded,
        ):
            assert (await post(client, "issues", body, headers))[0] == 401
        assert (await post(client, "nowhere", body, {}))[0] == 404
        async with client.get("/health") as reply:
            assert (await reply.json())["status"] == "ok"
    assert made.events == []


async def test_events_filters_and_the_rate_limit_decide_what_comes_through(home: Path) -> None:
    made = adapter(issues=ROUTE | {"events": ["opened"], "filters": [{"field": "issue.title", "contains": "leak"}]})
    made._rate_limit = 3
    said = []
    async with listening(made) as client:
        for number, change in enumerate(({}, {"type": "closed"}, {"issue": {"title": "Fine"}}, {})):
            body = json.dumps(PAYLOAD | change).encode()
            headers = signed("github", body, 0) | {"X-Request-ID": str(number)}
            status, reply = await post(client, "issues", body, headers)
            said.append((status, reply.get("status"), reply.get("reason")))
    assert said == [(202, "accepted", None), (200, "ignored", None), (200, "ignored", "filter"), (429, None, None)]


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ({"prompt": "x"}, "has no secret"),
        ({"secret": "INSECURE_NO_AUTH"}, "checks no signature"),
        ({"secret": SECRET, "deliver_only": True}, "names no platform"),
    ],
)
async def test_a_route_that_is_open_or_leads_nowhere_stops_the_start(
    route: dict[str, Any], said: str, home: Path
) -> None:
    made = WebhookAdapter(PlatformConfig(enabled=True, extra={"host": "0.0.0.0", "routes": {"r": route}}))
    with pytest.raises(ValueError, match=said):
        await made.connect()


def test_subscriptions_of_the_home_are_routes_too_unless_they_are_open(home: Path) -> None:
    made = adapter(issues=ROUTE)
    (home / SUBSCRIPTIONS).write_text(json.dumps({"own": ROUTE, "open": {"prompt": "x"}, "issues": {"secret": "z"}}))
    made._reload_dynamic_routes()
    assert sorted(made._routes) == ["issues", "own"]
    assert made._routes["issues"]["secret"] == SECRET
    (home / SUBSCRIPTIONS).write_text("not JSON")
    made._reload_dynamic_routes()
    assert sorted(made._routes) == ["issues", "own"]
    (home / SUBSCRIPTIONS).unlink()
    made._reload_dynamic_routes()
    assert sorted(made._routes) == ["issues"]


async def test_a_reply_goes_to_the_chat_that_the_route_names(home: Path) -> None:
    sent: list[Any] = []

    async def send(chat_id: str, content: str, metadata: Any = None) -> SendResult:
        sent.append((chat_id, content, metadata))
        return SendResult(success=True)

    made = adapter(
        issues=ROUTE | {"deliver": "telegram", "deliver_extra": {"chat_id": "{issue.title}", "thread_id": "7"}}
    )
    body = json.dumps(PAYLOAD).encode()
    async with listening(made) as client:
        await post(client, "issues", body, signed("github", body, 0))
    [event] = made.events
    assert "No gateway runner" in str((await made.send(event.source.chat_id, "Seen.")).error)
    runner = SimpleNamespace(adapters={}, config=SimpleNamespace(get_home_channel=lambda platform: None))
    made.gateway_runner = runner
    assert "not connected" in str((await made.send(event.source.chat_id, "Seen.")).error)
    from hermes_agent.adapters.config import Platform

    runner.adapters[Platform.TELEGRAM] = SimpleNamespace(send=send)
    assert (await made.send(event.source.chat_id, "Seen.")).success
    assert sent == [("It leaks", "Seen.", {"thread_id": "7"})]
    made._prune_delivery_info(time.time() + 4000)
    assert made._delivery_info == {}
    assert (await made.send("webhook:issues:old", "to the log")).success


async def test_a_comment_needs_a_repository_and_a_number(home: Path) -> None:
    extra = {"repo": "owner/name; rm", "pr_number": "3"}
    made = adapter()
    result = await made._direct_deliver("x", {"deliver": "github_comment", "deliver_extra": extra})
    assert not result.success
    assert "Invalid repo" in str(result.error)


FILTERS = [
    ({"field": "event_type", "equals": "opened"}, True),
    ({"field": "headers.X-Kind", "in": ["a", "b"]}, True),
    ({"field": "payload.n.1", "equals": 5}, True),
    ({"field": "n.7", "missing": True}, True),
    ({"field": "n", "contains": 5}, True),
    ({"field": "title", "regex": "^It"}, True),
    ({"field": "title", "regex": "("}, False),
    ({"not": {"field": "title", "exists": True}}, False),
    ({"all": [{"field": "title", "exists": True}, {"field": "x", "not_equals": 1}]}, True),
    ({"any": []}, False),
    ({"field": "title", "unknown": 1}, False),
    ({"field": "title", "in_file": "titles.txt"}, True),
    ("text", False),
]


@pytest.mark.parametrize(("spec", "passes"), FILTERS)
def test_a_filter_has_a_field_and_an_operator(spec: Any, passes: bool, home: Path) -> None:
    (home / "titles.txt").write_text("Other\nIt leaks\n")
    payload = {"title": "It leaks", "n": [4, 5]}
    found = WebhookRouteProcessor().route_filters_match({"filters": [spec]}, payload, "opened", {"X-Kind": "a"})
    assert found is passes


def test_a_script_changes_or_drops_the_payload_and_lies_below_scripts(home: Path) -> None:
    scripts = home / "scripts"
    scripts.mkdir()
    (scripts / "adds.py").write_text("import json, sys\nprint(json.dumps(json.load(sys.stdin) | {'more': 1}))\n")
    (scripts / "says.sh").write_text("echo seen\n")
    (scripts / "silent.sh").write_text("cat > /dev/null\n")
    (scripts / "fails.sh").write_text("exit 3\n")
    (home / "outside.sh").write_text("echo no\n")
    run = WebhookRouteProcessor(script_timeout_seconds=20).run_route_script
    assert run("adds.py", {"a": 1}) == (True, {"a": 1, "more": 1})
    assert run("says.sh", {"a": 1}) == (True, {"a": 1, "script_output": "seen"})
    for name in ("silent.sh", "fails.sh", "../outside.sh", "none.sh", ""):
        assert run(name, {"a": 1}) == (False, None)
