from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import Message, ToolCall, Usage
from hermes_agent.sessions import Transcript
from hermes_agent.sessions.commits import CHILD_COLUMNS


def transcript(path: Path, *ids: str) -> Transcript:
    opened = Transcript(path / "state.db")
    for session_id in ids:
        opened.create(session_id, source="cli", model="m", system_prompt="be good", cwd="/")
    return opened


def test_messages_come_back_as_they_went_in(tmp_path: Path) -> None:
    messages = [
        Message("user", [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}]),
        Message("assistant", "", (ToolCall("c1", "echo", '{"n": 1}'), ToolCall("c2", "echo", "{broken"))),
        Message("tool", "ünïcode \x00 and all", tool_call_id="c1", tool_name="echo"),
        Message("assistant", "done", extras={"acme": {"thinking": ["ü"]}}),
    ]
    opened = transcript(tmp_path, "s1")
    opened.append("s1", messages, Usage(3, 4))
    opened.close()
    found = transcript(tmp_path).messages("s1")
    assert found == messages
    assert [m.extras for m in found] == [None, None, None, {"acme": {"thinking": ["ü"]}}]


def test_a_list_shows_what_was_used_last_first_and_leaves_out_the_empty_ones(tmp_path: Path) -> None:
    opened = transcript(tmp_path, "a", "b", "empty")
    opened.append("b", [Message("user", "second\nline")])
    opened.append("a", [Message("user", "x" * 100)])
    assert [(s.id, s.title) for s in opened.recent()] == [("a", "x" * 59 + "…"), ("b", "second")]


def test_a_branch_names_the_session_that_it_was_copied_from(tmp_path: Path) -> None:
    opened = transcript(tmp_path, "s1")
    opened.append("s1", [Message("user", "first")])
    copy = opened.branch("s1", "another way")
    opened.create("child", source="subagent", model="m", system_prompt="", cwd="/", parent="s1")
    opened.append("child", [Message("user", "task")])

    asked = "SELECT parent_session_id, model_config, is_subagent FROM sessions WHERE id = ?"
    assert tuple(opened.database.read(asked, ("s1",))[0]) == ("", "{}", 0)
    assert tuple(opened.database.read(asked, (copy,))[0]) == ("s1", '{"_branched_from":"s1"}', 0)
    assert tuple(opened.database.read(asked, ("child",))[0]) == ("s1", '{"_delegate_from": "s1"}', 1)
    assert {s.id for s in opened.recent()} == {"s1", copy}

    opened.delete("s1")
    assert opened.database.read(asked, ("child",)) == []
    assert {s.id for s in opened.recent()} == {copy}
    assert tuple(opened.database.read(asked, (copy,))[0]) == ("", '{"_branched_from":"s1"}', 0)


def test_the_sessions_of_an_older_release_are_told_apart(tmp_path: Path) -> None:
    opened = transcript(tmp_path, "s1", "branch")
    opened.create("child", source="subagent", model="m", system_prompt="", cwd="/", parent="s1")
    with opened.database.write() as db:  # as the release before wrote them
        db.execute("ALTER TABLE sessions DROP COLUMN is_subagent")
        db.execute("UPDATE sessions SET parent_session_id = '' WHERE id = 'branch'")
        db.execute("UPDATE sessions SET model_config = json_object('_branched_from', 's1') WHERE id = 'branch'")
        db.execute("UPDATE sessions SET model_config = '{}' WHERE id = 'child'")
        db.execute("UPDATE sessions SET model_config = 'no JSON' WHERE id = 's1'")
        for statement in CHILD_COLUMNS.split(";"):
            db.execute(statement)

    rows = opened.database.read("SELECT id, parent_session_id, model_config, is_subagent FROM sessions ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("branch", "s1", '{"_branched_from":"s1"}', 0),
        ("child", "s1", '{"_delegate_from":"s1"}', 1),
        ("s1", "", "no JSON", 0),
    ]


def test_a_title_steers_no_terminal_whoever_wrote_it(tmp_path: Path) -> None:
    opened = transcript(tmp_path, "a", "b")
    opened.append("a", [Message("user", "\x1b]0;mine\x07hello\r\x9b2J there 👩‍🚀\nmore")])
    opened.append("b", [Message("user", "x")])
    opened.set_title("b", " a\x1b[2J \n title ")
    assert {s.id: s.title for s in opened.recent()} == {"a": "]0;mine hello 2J there 👩‍🚀", "b": "a [2J title"}


def test_a_session_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    opened = transcript(tmp_path, "20261121_a", "20261121_b", "2026")
    assert opened.find("20261121_a").id == "20261121_a"
    assert opened.find("2026").id == "2026"
    with pytest.raises(UserError, match="fits more than one"):
        opened.find("20261121")
    with pytest.raises(UserError, match="no session 'nope'"):
        opened.find("nope")


def test_a_percent_sign_in_an_id_is_no_pattern(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        transcript(tmp_path, "abc").find("%")


def test_going_on_with_a_session_takes_its_end_back(tmp_path: Path) -> None:
    opened = transcript(tmp_path, "s1")
    opened.end("s1", "cli_close")
    opened.append("s1", [Message("user", "again")])
    assert opened._db.read("SELECT ended_at FROM sessions")[0][0] is None


def test_the_database_is_private(tmp_path: Path) -> None:
    transcript(tmp_path)
    assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("these are not the bytes of a database, and there are enough of them" * 20)
    before = (tmp_path / "state.db").read_bytes()
    with pytest.raises(UserError, match=r"state\.db"):
        transcript(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == before
