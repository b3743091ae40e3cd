"""`hermes sessions search|export|rename|delete|prune`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.sessions import Transcript
from hermes_agent.store import Database


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    transcript = Transcript(tmp_path / "state.db")
    for number, principal in (("a1", "local"), ("b2", "local"), ("c3", "pond:ann")):
        transcript.create(number, source="cli", model="m", system_prompt="p", cwd="/", principal=principal)
        calls = (ToolCall("t1", "echo", "{}"),)
        said = [
            Message("user", f"otter {number}"),
            Message("assistant", "", calls),
            Message("tool", "ok", tool_call_id="t1"),
        ]
        transcript.append(number, said)
    transcript.close()
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    status = main(["sessions", *argv])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def ids(home: Path) -> set[str]:
    transcript = Transcript(home / "state.db")
    found = {session.id for session in transcript.recent(-1)}
    transcript.close()
    return found


def test_search_finds_one_s_own_and_with_all_everybody_s(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {hit["session_id"] for hit in json.loads(run(capsys, "search", "otter", "--json")[1])} == {"a1", "b2"}
    assert "c3" in run(capsys, "search", "otter", "--all")[1]
    assert run(capsys, "search", "toad") == (0, "Nothing was found.\n")


def test_export_writes_every_session_a_line_and_only_its_owner_reads_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = home / "out.jsonl"
    assert "2 session(s)" in run(capsys, "export", "-o", str(target))[1]
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert {line["id"] for line in lines} == {"a1", "b2"} and oct(target.stat().st_mode & 0o777) == "0o600"
    assert [m["role"] for m in lines[0]["messages"]] == ["user", "assistant", "tool"]
    text = run(capsys, "export", "a1", "--format", "markdown")[1]
    assert "# otter a1" in text and "`echo {}`" in text and "b2" not in text


def test_rename_gives_a_title(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "rename", "a1", "About", "otters")
    assert "About otters" in run(capsys, "list")[1]


def test_delete_asks_and_takes_everything(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, "delete", "a1")
    assert status != 0 and "there is no terminal for the confirmation" in said and "a1" in ids(home)
    assert run(capsys, "delete", "a1", "--yes")[0] == 0
    assert ids(home) == {"b2", "c3"}
    assert run(capsys, "delete", "c3", "--yes")[0] != 0  # somebody else's
    db = Database(home / "state.db", ())
    assert db.read("SELECT count(*) FROM messages WHERE session_id = 'a1'")[0][0] == 0
    db.close()


def test_prune_takes_the_old_ones(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = Database(home / "state.db", ())
    with db.write() as write:
        write.execute("UPDATE sessions SET updated_at = 1 WHERE id IN ('a1', 'c3')")
    db.close()
    assert "1 session(s) deleted" in run(capsys, "prune", "--older-than", "30", "--yes")[1]
    assert ids(home) == {"b2", "c3"}
    assert run(capsys, "prune", "--older-than", "30", "--yes") == (0, "There are none.\n")


def test_without_a_state_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "empty"))
    assert "nothing was said yet" in run(capsys, "search", "x")[1]
