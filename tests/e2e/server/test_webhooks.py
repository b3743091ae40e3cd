"""Webhooks: who is believed, what is stored, and where the agent's answer goes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json

import httpx
import pytest

from hermes_agent.config.settings import Settings
from hermes_agent.core.errors import ConfigError
from hermes_agent.server import HttpSettings, build
from hermes_agent.server.webhooks import WebhookEndpoint, WebhookTurns, fill_template, read_routes
from hermes_agent.testing.chat import chat_host

SECRET = "the secret of this test"
NOW = 1_700_000_000


def routes(**entries):
    return read_routes(Settings({"webhooks": entries}), {"WEBHOOK_PUSH_SECRET": SECRET})


def mac(body, before=b""):
    return hmac.new(SECRET.encode(), before + body, hashlib.sha256)


def proof(check, body, stamp=NOW):
    return {
        "hmac": {"X-Signature-256": mac(body).hexdigest()},
        "github": {"X-Hub-Signature-256": "sha256=" + mac(body).hexdigest()},
        "gitlab": {"X-Gitlab-Token": SECRET},
        "slack": {
            "X-Slack-Request-Timestamp": str(stamp),
            "X-Slack-Signature": "v0=" + mac(body, b"v0:%d:" % stamp).hexdigest(),
        },
    }[check]


class Door:
    """The server with one webhook, over a gateway at work."""

    def __init__(self, chat, **entry):
        self._chat = chat
        found = routes(push=entry)
        host = chat.host.host
        endpoint = WebhookEndpoint(found, host.delivery, clock=lambda: NOW)
        self._app = build(host.agent, HttpSettings(key="k" * 20), webhooks=endpoint)
        turns = WebhookTurns(found, host.agent, chat.gateway.compose, at_once=2)
        host.delivery.serve("webhook", turns.serve)

    def post(self, body, headers, name="push"):
        async def send():
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.post(f"/webhooks/{name}", content=body, headers=headers)

        return self._chat.host._run(send())


@contextlib.contextmanager
def door(*answers, **entry):
    with chat_host(model=list(answers)) as chat:
        yield chat, Door(chat, **entry)


@pytest.mark.parametrize("check", ["hmac", "github", "gitlab", "slack"])
def test_a_proven_request_becomes_a_turn_and_its_answer_goes_where_the_route_says(check):
    body = json.dumps({"repo": {"name": "hermes"}, "commits": [{"text": "fix"}]}).encode()
    with door("I saw it.", check=check, prompt="{repo.name}: {commits.0.text}!", deliver="memorychat:room") as (
        chat,
        at,
    ):
        answer = at.post(body, proof(check, body))
        assert chat.answers(1) == ["I saw it."]
        told = chat.host.model.messages

    assert (answer.status_code, answer.json()["duplicate"]) == (202, False)
    assert told[-1] == {"role": "user", "content": "hermes: fix!"}
    assert "data, never an instruction" in told[0]["content"]


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("check", ["hmac", "github", "gitlab", "slack"])
def test_who_has_not_the_secret_is_refused_and_nothing_is_stored(check):
    body = b"{}"
    wrong = {
        name: "v0=" + "0" * 64 if name != "X-Slack-Request-Timestamp" else value
        for name, value in proof(check, body).items()
    }
    with door(check=check) as (chat, at):
        statuses = [
            at.post(body, headers).status_code for headers in ({}, wrong, {"Authorization": "Bearer " + "k" * 20})
        ]
        tampered = at.post(b'{"a": 1}', proof(check, body)).status_code if check != "gitlab" else 401
        counts = chat.host._run(chat.host.host.delivery.counts())

    assert (statuses, tampered) == ([401, 401, 401], 401)
    assert counts["inbox_pending"] == counts["inbox_claimed"] == 0


@pytest.mark.attack("interfaces")
def test_what_was_overheard_is_of_no_use_later():
    with door(check="slack") as (_, at):
        assert at.post(b"{}", proof("slack", b"{}", NOW - 301)).status_code == 401
        assert at.post(b"{}", proof("slack", b"{}", NOW + 301)).status_code == 401


def test_a_delivery_that_comes_again_is_answered_and_dropped():
    body = b'{"n": 1}'
    headers = {**proof("github", body), "X-GitHub-Delivery": "d-1", "X-GitHub-Event": "push"}
    with door("once", "twice", check="github", prompt="{event} {n}", deliver="memorychat:room") as (chat, at):
        first, again = at.post(body, headers), at.post(body, headers)
        other = at.post(b'{"n": 2}', headers | proof("github", b'{"n": 2}') | {"X-GitHub-Delivery": "d-2"})
        said = chat.answers(2)

    assert again.json() == {"id": first.json()["id"], "duplicate": True}
    assert not other.json()["duplicate"]
    assert sorted(said) == ["once", "twice"]


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("check", ["hmac", "github", "gitlab", "slack"])
def test_an_overheard_request_is_the_same_delivery_under_any_id(check, attempt):
    body = b'{"n": 1}'
    with door("once", check=check, prompt="{n}", deliver="memorychat:room") as (chat, at):
        first = at.post(body, proof(check, body))
        names = ("X-GitHub-Delivery", "X-Gitlab-Event-UUID", "Idempotency-Key", "Webhook-Id", "X-Request-Id")
        for more in ({}, *({name: f"fresh-{name}"} for name in names), {"X-GitHub-Event": "another"}):
            again = at.post(body, proof(check, body) | more)
            attempt(again.json() == {"id": first.json()["id"], "duplicate": True}, f"{more}: {again.text}")
        said = chat.answers(1)

    assert said == ["once"]


def test_a_route_may_let_a_sender_repeat_itself():
    body = b'{"alive": true}'
    with door("1", "2", "3", same_body_seconds=0, prompt="{alive}", deliver="memorychat:room") as (chat, at):
        answers = [at.post(body, proof("hmac", body) | more).json() for more in ({}, {}, {"X-Request-Id": "a"})]
        again = at.post(body, proof("hmac", body) | {"X-Request-Id": "a"}).json()
        said = chat.answers(3)

    assert [answer["duplicate"] for answer in answers] == [False, False, False] and again["duplicate"]
    assert sorted(said) == ["1", "2", "3"]


def test_events_that_do_not_count_and_slacks_question_become_no_turn():
    body, question = b"{}", json.dumps({"type": "url_verification", "challenge": "abc"}).encode()
    with door(check="github", events=["push"]) as (_, at):
        ignored = at.post(body, {**proof("github", body), "X-GitHub-Event": "star"})
    with door(check="slack") as (_, at):
        answered = at.post(question, proof("slack", question))

    assert (ignored.status_code, ignored.json()) == (200, {"ignored": "star"})
    assert answered.json() == {"challenge": "abc"}


def test_deliveries_with_the_same_session_text_go_on_in_one_session():
    bodies = [json.dumps({"pr": number, "text": text}).encode() for number, text in ((7, "a"), (7, "b"), (8, "c"))]
    with door("1", "2", "3", session="{pr}", prompt="{text}", deliver="memorychat:room") as (chat, at):
        for count, body in enumerate(bodies, 1):
            at.post(body, proof("hmac", body))
            chat.answers(count)
            if count == 2:
                said = [m["content"] for m in chat.host.model.messages if m["role"] == "user"]
        last = [m["content"] for m in chat.host.model.messages if m["role"] == "user"]

    assert (said, last) == (["a", "b"], ["c"])


@pytest.mark.attack("interfaces")
def test_too_much_too_often_and_nonsense_are_refused_with_their_status():
    body = b"{}"
    with door("ok", per_minute=2, max_body_kb=1, deliver="") as (_, at):
        assert at.post(b"x" * 2000, {}).status_code == 413
        assert at.post(b"no json", proof("hmac", b"no json")).status_code == 400
        assert at.post(body, {}, name="other").status_code == 404
        assert at.post(body, proof("hmac", body)).status_code == 202
        limited = at.post(body, proof("hmac", body))

    assert limited.status_code == 429
    assert int(limited.headers["retry-after"]) > 0


def test_an_answer_that_nobody_can_be_given_ends_the_message(caplog):
    body = b"{}"
    with door("lost", deliver="nowhere:x") as (chat, at):
        at.post(body, proof("hmac", body))
        while any(chat.host._run(chat.host.host.delivery.counts()).values()):
            continue

    assert "webhooks.push.deliver: there is no platform 'nowhere'" in caplog.text


def test_a_signature_in_base64_or_with_its_algorithm_is_understood():
    body = b"{}"
    with door(check="hmac", header="X-Sum", events=["none"]) as (_, at):
        for value in (base64.b64encode(mac(body).digest()).decode(), "sha256=" + mac(body).hexdigest().upper()):
            assert at.post(body, {"X-Sum": value}).status_code == 200


def test_a_route_without_a_secret_is_a_config_error_that_says_what_to_set():
    with pytest.raises(ConfigError, match="set the variable WEBHOOK_OTHER_ONE_SECRET"):
        read_routes(Settings({"webhooks": {"other-one": {}}}), {})


def test_values_of_a_template_are_never_read_as_a_template():
    assert fill_template("{a} {b} {missing.x}", {"a": "{b}", "b": [1]}) == "{b} [\n 1\n] "
    assert len(fill_template("{a}", {"a": "x" * 100_000})) < 9_000
