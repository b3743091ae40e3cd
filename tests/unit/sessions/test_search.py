"""Full-text search over sessions: what is found, in which script, by whom, and what is gone when it was deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.messages import Message
from hermes_agent.sessions import SCHEMA, Transcript
from hermes_agent.store import Database


@pytest.fixture
def transcript(tmp_path: Path) -> Iterator[Transcript]:
    made = Transcript(tmp_path / "state.db")
    yield made
    made.close()


def say(transcript: Transcript, session: str, *messages: Message | str, principal: str = "local") -> None:
    transcript.create(session, source="cli", model="m", system_prompt="", cwd="/", principal=principal)
    said = [m if isinstance(m, Message) else Message("user", m) for m in messages]
    transcript.append(session, said)


def found(transcript: Transcript, query: str, **options: Any) -> list[str]:
    options.setdefault("of", {"local"})
    return [hit.session_id for hit in transcript.search(query, **options)]


def test_words_phrases_and_either(transcript: Transcript) -> None:
    say(transcript, "s1", "The Otter swims in the cold river")
    say(transcript, "s2", "A river of cold lemonade")
    assert sorted(found(transcript, "cold river")) == ["s1", "s2"]
    assert found(transcript, '"cold river"') == ["s1"]
    assert sorted(found(transcript, "otter OR lemonade")) == ["s1", "s2"]
    assert found(transcript, "OTTER") == ["s1"]
    assert found(transcript, "otter submarine") == ["s1"]  # nobody has both
    assert found(transcript, "café") == []
    say(transcript, "s3", "le CAFE du port")
    assert found(transcript, "café") == ["s3"]


@pytest.mark.parametrize("query", ["水族館で", "水族館", "獺", "獺 水族館", "동물원", "อควาเรียม"])
def test_scripts_without_blanks(transcript: Transcript, query: str) -> None:
    say(transcript, "s1", "昨日、水族館で獺を見ました。 서울동물원에서 อควาเรียม")
    say(transcript, "s2", "何もない日")
    assert found(transcript, query) == ["s1"]


@pytest.mark.parametrize("query", ["", "   ", '"', "* OR", "NEAR(a b)", "a AND (", "col:x -y ^z", "OR OR", '"" " '])
def test_signs_are_no_syntax(transcript: Transcript, query: str) -> None:
    say(transcript, "s1", "nothing of that kind")
    assert found(transcript, query) == []


def test_nobody_finds_what_somebody_else_said(transcript: Transcript) -> None:
    say(transcript, "s1", "my secret otter", principal="pond:ann")
    say(transcript, "s2", "私の秘密の獺", principal="pond:ann")
    assert found(transcript, "otter") == found(transcript, "秘密の") == found(transcript, "獺") == []
    assert found(transcript, "otter", of={"pond:ann"}) == ["s1"]
    assert found(transcript, "獺", of=None) == ["s2"]


def test_role_source_order_and_the_present_session(transcript: Transcript) -> None:
    say(transcript, "s1", "otter one", Message("assistant", "otter two"), Message("tool", "otter three", tool_name="t"))
    say(transcript, "s2", "otter four")
    assert [h.role for h in transcript.search("otter", of=None, roles=["tool"])] == ["tool"]
    assert found(transcript, "otter", without="s1") == ["s2"]
    assert found(transcript, "otter", sources=["api_server"]) == []
    assert found(transcript, "otter", sort="oldest", limit=1) == ["s1"]
    assert found(transcript, "otter", sort="newest", limit=1) == ["s2"]
    assert transcript.search("otter", of=None, sort="oldest")[0].snippet == ">>>otter<<< one"


def test_the_text_beside_a_picture_is_found_and_the_picture_is_not(transcript: Transcript) -> None:
    parts = [
        {"type": "text", "text": "what an otter"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,submarine"}},
    ]
    say(transcript, "s1", Message("user", parts))
    assert found(transcript, "otter") == ["s1"]
    assert found(transcript, "submarine") == []


def test_what_is_deleted_is_not_found_and_the_index_stays_sound(transcript: Transcript, tmp_path: Path) -> None:
    say(transcript, "s1", "otter 水族館で", Message("user", [{"type": "text", "text": "picture otter"}]))
    say(transcript, "s2", "otter stays")
    transcript.delete("s1")
    assert (found(transcript, "otter"), found(transcript, "水族館")) == (["s2"], [])
    db = sqlite3.connect(tmp_path / "state.db")
    for table in ("messages_fts", "messages_fts_trigram"):
        db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 0)")
    db.close()


def test_a_state_of_an_earlier_release_is_indexed_when_it_is_opened(tmp_path: Path) -> None:
    old = Database(tmp_path / "state.db", (SCHEMA,))
    with old.write() as db:
        db.execute("INSERT INTO sessions (id, source, started_at, updated_at) VALUES ('s1', 'cli', 1, 1)")
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s1', 'user', 'old otter 水族館', 1)"
        )
    old.close()
    transcript = Transcript(tmp_path / "state.db")
    assert (found(transcript, "otter"), found(transcript, "水族館")) == (["s1"], ["s1"])
    transcript.close()
