"""`Idempotency-Key`: the same request is the same turn, also when the daemon was cut off in it."""

from __future__ import annotations

import httpx

from hermes_agent.delivery import DeliveryService, InboundMessage, Mailbox
from hermes_agent.policy import NoApprover
from hermes_agent.server import HttpSettings, build
from hermes_agent.server.conversations import IdempotentRequests
from hermes_agent.testing.chat import chat_host

KEY = "k" * 20


class Door:
    def __init__(self, chat):
        host = chat.host.host
        self._run = chat.host._run
        app = build(
            host.agent, HttpSettings(key=KEY), once=IdempotentRequests(host.delivery, host.agent.call_transcript)
        )
        self._transport = httpx.ASGITransport(app)

    async def asked(self, text, key, session="s1"):
        headers = {"Authorization": f"Bearer {KEY}", "X-Hermes-Session-Id": session, "Idempotency-Key": key}
        body = {"messages": [{"role": "user", "content": text}]}
        async with httpx.AsyncClient(transport=self._transport, base_url="http://localhost", timeout=30) as client:
            return await client.post("/v1/chat/completions", json=body, headers=headers)

    def ask(self, *words, **more):
        answer = self._run(self.asked(*words, **more))
        return answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else answer.status_code


def users(chat):
    return [m["content"] for m in chat.host.model.messages if m["role"] == "user"]


def test_a_request_that_comes_again_is_answered_as_before_and_the_session_goes_on():
    with chat_host(model=["one", "two"]) as chat:
        at = Door(chat)
        assert [at.ask("a", "1"), at.ask("a", "1"), at.ask("b", "2"), at.ask("a", "1")] == ["one", "one", "two", "one"]
        assert users(chat) == ["a", "b"]
        assert at.ask("a", "x" * 201) == 400


def test_the_same_key_in_another_session_is_another_request():
    with chat_host(model=["one", "two"]) as chat:
        at = Door(chat)
        assert [at.ask("a", "1"), at.ask("a", "1", session="s2")] == ["one", "two"]


def test_a_turn_that_was_finished_but_not_told_is_told_by_the_next_daemon_and_not_run_again():
    with chat_host(model=["one", "never"]) as chat:
        at = Door(chat)
        host = chat.host.host

        async def work_without_telling():
            talk = await host.agent.open("s1", platform="api_server", approver=NoApprover(""), principal="api_server")
            held = await host.delivery.begin(InboundMessage("api_server", "s1", "1", ""))
            await held.save_notes(before=0)
            async for _ in talk.turn("a"):
                continue
            await talk.close("session_boundary")

        chat.host._run(work_without_telling())
        assert at.ask("a", "1") == 409  # it is being worked on, as far as this daemon knows
        host.delivery = DeliveryService(
            lambda: Mailbox(host.home / "state.db"), host.bridge.serial_executor("delivery")
        )
        chat.host._run(host.delivery.start())
        at = Door(chat)

        assert at.ask("a", "1") == "one"
        assert users(chat) == ["a"]
