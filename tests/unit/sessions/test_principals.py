"""One person's sessions are nobody else's."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import Message
from hermes_agent.sessions import Principals, Transcript
from hermes_agent.sessions.transcript import SCHEMA
from unit.agent.test_turn import Bench, events_of


def test_a_principal_sees_itself_and_those_that_the_operator_puts_beside_it() -> None:
    people = Principals({"ann": ["local", "telegram:1"], "family": ["telegram:1", "telegram:2"]})
    assert people.visible_to("telegram:3") == {"telegram:3"}
    assert people.visible_to("telegram:1") == {"telegram:1", "local", "telegram:2"}
    assert people.visible_to("telegram:2") == {"telegram:1", "telegram:2"}
    assert people.visible_to("local") == {"local", "api_server", "telegram:1"}
    assert people.visible_to("api_server") == {"api_server"}
    assert (people.name_of("telegram:1"), people.name_of("telegram:3")) == ("ann", "telegram:3")


async def test_a_session_of_another_principal_is_neither_listed_nor_found_nor_opened(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["hello", "again", "ours"])
    bench.agent.principals = Principals({"family": ["telegram:1", "telegram:2"]})

    async def work() -> None:
        await events_of(await bench.open("s1", principal="telegram:1"), "secret")
        for stranger in ("telegram:3", "local", "api_server"):
            with pytest.raises(UserError, match="cannot be opened"):
                await bench.open("s1", principal=stranger)
        await events_of(await bench.open("s1", principal="telegram:1"), "me again")
        await events_of(await bench.open("s1", principal="telegram:2"), "and me")

    await bench.run(work())
    store = Transcript(tmp_path / "state.db")
    assert [s.principal for s in store.recent()] == ["telegram:1"]
    assert store.recent(of=["telegram:3"]) == []
    with pytest.raises(UserError, match="no session"):
        store.find("s1", of=["telegram:3"])
    assert store.find("s", of=["telegram:2", "telegram:1"]).id == "s1"
    with sqlite3.connect(tmp_path / "state.db") as db:
        said = db.execute("SELECT principal, content FROM messages WHERE role = 'user' ORDER BY id").fetchall()
    assert said == [("telegram:1", "secret"), ("telegram:1", "me again"), ("telegram:2", "and me")]


async def test_who_is_second_with_the_id_of_a_new_session_says_nothing_into_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["hello"])

    async def work() -> None:
        one, other = await bench.open("s1", principal="a:1"), await bench.open("s1", principal="a:2")
        await events_of(one, "mine")
        with pytest.raises(UserError, match="cannot be opened"):
            await events_of(other, "theirs")

    await bench.run(work())
    assert [m.text for m in Transcript(tmp_path / "state.db").messages("s1")] == ["mine", "hello"]


def test_sessions_from_before_there_were_principals_are_the_local_users(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE schema_version (owner TEXT PRIMARY KEY, version INTEGER NOT NULL);"
            "INSERT INTO schema_version VALUES ('sessions', 1);" + SCHEMA.steps[0]
        )
        for name, source in (("a", "cli"), ("b", "api_server")):
            db.execute(
                "INSERT INTO sessions (id, source, started_at, updated_at, message_count) VALUES (?, ?, 1, 1, 1)",
                (name, source),
            )
            db.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'x', 1)", (name,)
            )
    store = Transcript(path)
    assert {s.id: s.principal for s in store.recent()} == {"a": "local", "b": "api_server"}
    assert store.messages("a") == [Message("user", "x")]
