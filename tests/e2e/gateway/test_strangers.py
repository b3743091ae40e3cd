"""Whoever is not let in reaches neither the model nor a tool nor a command, and leaves no trace."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from hermes_agent.app.main import main
from hermes_agent.gateway.access import PairingStore
from hermes_agent.testing.chat import Chat, chat_host


def inbox(chat: Chat) -> int:
    with sqlite3.connect(chat.host.home / "state.db") as db:
        return int(db.execute("SELECT count(*) FROM inbox").fetchone()[0])


def test_a_stranger_gets_a_code_once_and_reaches_nothing_until_it_is_approved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with chat_host(model=["welcome"]) as chat:
        told = chat.ask("hello", user="eve", chat="eves")
        for text in ("again", "/help", "/status", "/approve all"):
            chat.write(text, user="eve", chat="eves")
        assert (len(chat.texts), inbox(chat), chat.host.model.requests) == (1, 0, [])

        code = told.split("pairing code is ")[1][:8]
        assert f"hermes pairing approve memorychat {code}" in told
        assert main(["pairing", "approve", "memorychat", code]) == 0
        assert chat.ask("hello", user="eve", chat="eves") == "welcome"

        assert main(["pairing", "revoke", "memorychat", "eve"]) == 0
        chat.write("hello?", user="eve", chat="eves")
        assert len(chat.host.model.requests) == 1


@pytest.mark.parametrize("more", [{"chat_type": "group"}, {"is_bot": True}])
def test_in_groups_and_from_bots_a_stranger_is_not_even_answered(more: dict[str, Any]) -> None:
    with chat_host() as chat:
        chat.write("hello", user="eve", **more)
        assert (chat.texts, PairingStore().list_pending(), inbox(chat)) == ([], [], 0)


def test_with_ignore_strangers_get_no_code() -> None:
    with chat_host(config={"unauthorized_dm_behavior": "ignore"}) as chat:
        chat.write("hello", user="eve")
        assert (chat.texts, PairingStore().list_pending()) == ([], [])


def test_who_writes_too_much_is_told_once_and_dropped() -> None:
    config = {"gateway": {"messages_per_minute": 2}}
    with chat_host(model=["one", "two"], config=config) as chat:
        chat.ask("first")
        chat.ask("second")
        assert "2 messages a minute" in chat.ask("third")
        chat.write("fourth")
        assert chat.ask("/stop") == "No turn is running."
        assert inbox(chat) == 3
        assert len(chat.texts) == 4


def test_a_room_that_is_not_listed_is_not_heard() -> None:
    config = {"platforms": {"memorychat": {"allowed_chats": ["here"]}}}
    with chat_host(model=["heard"], config=config) as chat:
        chat.write("hello", chat="there", chat_type="group")
        assert chat.ask("hello", chat="here", chat_type="group") == "heard"
        assert inbox(chat) == 1


def test_pre_gateway_dispatch_drops_and_rewrites_before_anybody_asks_who_it_is() -> None:
    seen: list[Any] = []

    def register(ctx: Any) -> None:
        def look(event: Any, gateway: Any, session_store: Any, **kwargs: Any) -> Any:
            seen.append((event.text, gateway.adapters.keys(), session_store is gateway.session_store))
            if "spam" in event.text:
                return {"action": "skip", "reason": "spam"}
            return {"action": "rewrite", "text": event.text.upper()} if event.text == "quiet" else None

        ctx.register_hook("pre_gateway_dispatch", look)

    with chat_host(register, model=["ok"]) as chat:
        chat.write("spam", user="eve", chat="eves")
        chat.write("spam")
        assert chat.ask("quiet") == "ok"
        assert chat.host.model.messages[-1]["content"] == "QUIET"
        assert PairingStore().list_pending() == []

    assert [text for text, _, _ in seen] == ["spam", "spam", "quiet"]
    assert all([platform.value for platform in names] == ["memorychat"] and same for _, names, same in seen)


def test_whoami_says_who_and_what_and_commands_have_roles() -> None:
    config = {"platforms": {"memorychat": {"allow_admin_from": ["ann"], "user_allowed_commands": ["new"]}}}
    with chat_host(config=config) as chat:
        assert chat.ask("/whoami") == "memorychat:ann (allowed by: list)\nYou may run: every command"
        assert "/new" in chat.ask("/whoami", user="bob", chat="b")
        assert chat.ask("/model other", user="bob", chat="b").startswith("You may not run /model")
        assert chat.ask("/plugins", user="bob", chat="b").startswith("You may not run /plugins")
        assert chat.ask("/new", user="bob", chat="b").startswith("New session")


def test_buttons_are_for_those_who_may_approve() -> None:
    config = {"platforms": {"memorychat": {"group_allow_admin_from": ["bob"]}}}
    with chat_host(config=config) as chat:
        allowed = chat.adapter._is_sender_authorized
        assert (allowed("ann"), allowed("eve", "group", "g")) == (True, False)
        assert (allowed("ann", "group", "g"), allowed("bob", "group", "g")) == (False, True)
    with chat_host(env={"MEMORYCHAT_ALLOW_ALL_USERS": "true"}) as chat:
        assert (chat.adapter._is_sender_authorized("ann"), chat.adapter._is_sender_authorized("eve")) == (True, False)
