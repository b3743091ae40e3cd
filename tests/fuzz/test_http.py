"""The HTTP interface against what nobody should send: no crash, no 500, no answer without the key."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.test_kills import KEY as CHAOS_KEY
from chaos.test_kills import Daemon, home_at
from chaos.world import Model, Service, serving
from hermes_agent.core.messages import TextDelta, TurnFinished, Usage, text_content
from hermes_agent.delivery import InboundMessage, Receipt
from hermes_agent.server import HttpSettings, build
from hermes_agent.server.webhooks import WebhookEndpoint, WebhookRoute
from peers.running import free_port

ROOT = Path(__file__).parents[2]
SPEC = json.loads((ROOT / "hermes" / "hermes_agent" / "server" / "openapi.json").read_text())
SCHEMATHESIS = ROOT / ".cache" / "fuzz" / "bin" / "schemathesis"
KEY = "key-of-this-test-0123456789"
SECRET = "the secret of this test"
EXAMPLES = int(os.environ.get("HERMES_FUZZ_EXAMPLES", "25"))

WORDS = st.sampled_from(
    [
        *("messages", "role", "content", "user", "assistant", "tool", "system", "text", "image_url", "url", "type"),
        *("input", "instructions", "stream", "store", "model", "n", "previous_response_id", "tool_calls", "id", "name"),
        *("function", "arguments", "call_id", "output", "function_call", "function_call_output", "message", "resp_"),
        *("input_text", "input_image", "hermes-agent", "data:image/png;base64,AA==", "stream_options", "include_usage"),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6), max_leaves=20
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": WORDS, "content": VALUES}) | VALUES, max_size=3)
BODIES = st.one_of(
    st.binary(max_size=60),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.builds(lambda a, b, more: json.dumps({**more, a: b}).encode(), WORDS, MESSAGES, st.dictionaries(WORDS, VALUES)),
    st.builds(
        lambda text, more: json.dumps(
            {**more, "input": text, "messages": [{"role": "user", "content": text}]}
        ).encode(),
        st.text(min_size=1, max_size=20),
        st.dictionaries(WORDS, VALUES, max_size=3),
    ),
)
HEADERS = st.dictionaries(
    st.sampled_from(["X-Hermes-Session-Id", "Idempotency-Key", "Content-Type", "X-Signature-256", "Origin", "Accept"]),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=12),
    max_size=3,
)
PATHS = st.sampled_from([*SPEC["paths"], "/v1/models/hermes-agent", "/v1/models/%2e%2e", "/", "/v1", "/webhooks/"]).map(
    lambda path: path.replace("{name}", "push")
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"])
KEYS = st.sampled_from(
    ["", "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", f"bearer  {KEY[:-1]}", f"{KEY}"]
)


class Talk:
    """Says what it was asked."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id

    async def turn(self, content: Any, *, options: Any = None) -> Any:
        text = text_content(content)
        yield TextDelta(text)
        yield TurnFinished(text, "answered", Usage(1, 1, 0), "echo")

    def interrupt(self) -> None:
        """Nothing is long here."""

    async def close(self, reason: str) -> None:
        """Nothing is kept here."""


class Agent:
    asked = 0

    async def open(self, session_id: str | None = None, **more: Any) -> Talk:
        self.asked += 1
        return Talk(session_id or "fresh")


class Inbox:
    taken = 0

    async def receive(self, message: InboundMessage) -> Receipt:
        self.taken += 1
        return Receipt(self.taken, True)


class Door:
    """The application in this process."""

    def __init__(self) -> None:
        self.agent, self.inbox = Agent(), Inbox()
        route = WebhookRoute("push", "hmac", SECRET, "X-Signature-256", "", frozenset(), "", "", "", (), 10**9, 64, 0)
        webhooks = WebhookEndpoint({"push": route}, self.inbox)
        self.app = build(self.agent, HttpSettings(key=KEY), models=["echo"], webhooks=webhooks)  # type: ignore[arg-type]

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
                return await http.request(method, path, headers=sent, content=body)

        return asyncio.run(run())


def test_the_description_names_every_route_and_no_other() -> None:
    routes = {
        (route.path + ("{name}" if route.path.endswith("/") else ""), route.method.lower())
        for route in Door().app.routes
    }
    assert routes == {
        (path, method) for path, item in SPEC["paths"].items() for method in item if method != "parameters"
    }


@pytest.mark.attack("interfaces")
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(METHODS, PATHS, HEADERS, BODIES)
def test_whatever_is_sent_with_the_key_is_no_fault_of_ours(
    method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    answer = Door().ask(method, path, {**headers, "Authorization": f"Bearer {KEY}"}, body)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400 and method != "HEAD":
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.attack("interfaces")
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["/v1/chat/completions", "/v1/responses"]), BODIES)
def test_whatever_is_asked_of_the_agent_is_answered_or_refused(path: str, body: bytes) -> None:
    door = Door()
    answer = door.ask("POST", path, {"Authorization": f"Bearer {KEY}"}, body)
    assert answer.status_code in (200, 400, 404), answer.text
    assert door.agent.asked == (answer.status_code == 200)


@pytest.mark.attack("interfaces")
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(BODIES)
def test_a_signed_webhook_of_any_content_is_stored_or_refused(body: bytes) -> None:
    door = Door()
    proof = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    answer = door.ask("POST", "/webhooks/push", {"X-GitHub-Event": "push", "X-Signature-256": proof}, body)
    assert answer.status_code in (200, 202, 400), answer.text
    assert door.inbox.taken == (answer.status_code == 202)


@pytest.mark.attack("interfaces")
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(METHODS, PATHS, HEADERS, BODIES, KEYS)
def test_without_the_key_nothing_is_told_and_nothing_is_done(
    method: str, path: str, headers: dict[str, str], body: bytes, key: str
) -> None:
    door = Door()
    answer = door.ask(method, path, {**headers, **({"Authorization": key} if key else {})}, body)
    if answer.status_code < 400:
        assert path in ("/health", "/ready")
        assert set(json.loads(answer.text or "{}")) <= {"status", "version"}
    assert answer.status_code < 500
    assert door.agent.asked == door.inbox.taken == 0


@contextlib.contextmanager
def daemon(folder: Path) -> Iterator[str]:
    port = free_port()
    with serving(Model()) as model, serving(Service(0, 1)) as chats:
        running = Daemon(home_at(folder, model, chats, port), port)
        running.start()
        running.wait_ready()
        try:
            yield f"http://127.0.0.1:{port}"
            assert running.ready()
        finally:
            assert running.stop() == 0


@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="schemathesis is not installed (`make fuzz` does it)")
@pytest.mark.timeout(1800)
def test_schemathesis_finds_no_answer_that_the_description_does_not_have(tmp_path: Path) -> None:
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    with daemon(tmp_path) as address:
        command = [str(SCHEMATHESIS), "run", str(ROOT / "hermes/hermes_agent/server/openapi.json"), "--url", address]
        command += ["-H", f"Authorization: Bearer {CHAOS_KEY}", "--checks", f"{checks},ignored_auth"]
        command += ["--max-examples", str(EXAMPLES), "--request-timeout", "60", "--phases", "examples,coverage,fuzzing"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        sys.stdout.write(done.stdout[-6000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
