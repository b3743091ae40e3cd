"""`hermes` as a client of a daemon: what it asks over the control socket, and what it prints."""

from __future__ import annotations

import argparse
import io
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.app.daemon_client import (
    ask_daemon,
    converse,
    daemon_socket,
    list_sessions,
    load_session,
    refuse_remote,
    select_instance,
)
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

SESSION = {"id": "s1", "source": "cli", "model": "m", "title": "plans", "started_at": 1.0, "updated_at": 2.0}
SESSION |= {"message_count": 2, "tool_call_count": 0, "principal": "member:x"}
ANSWERS: dict[str, dict[str, Any]] = {
    "hello": {"ok": True, "text": "65536", "session": "s1", "notices": ["mind the gap"], "reason": "answered"},
    "long": {"ok": True, "text": "half", "session": "s1", "notices": [], "reason": "interrupted"},
    "loop": {
        "ok": True,
        "text": "",
        "session": "s1",
        "notices": [],
        "reason": "stopped",
        "not_whole": "I stopped: loop",
    },
    "fail": {"ok": False, "error": "there is no model", "hint": "Choose one."},
    "sessions": {"ok": True, "sessions": [SESSION]},
    "session": {"ok": True, "session": SESSION, "messages": [{"role": "user", "content": "hi", "tool_name": ""}]},
}


class Daemon(socketserver.ThreadingUnixStreamServer):
    """Takes a line of JSON and answers one, as the control socket does."""

    daemon_threads = True

    def __init__(self, door: Path) -> None:
        self.asked: list[dict[str, Any]] = []
        super().__init__(str(door), _Answer)


class _Answer(socketserver.StreamRequestHandler):
    server: Daemon

    def handle(self) -> None:
        question = json.loads(self.rfile.readline())
        self.server.asked.append(question)
        self.wfile.write(json.dumps(ANSWERS[question.get("text") or question["op"]]).encode() + b"\n")


@pytest.fixture
def door(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@pytest.fixture
def daemon(door: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setenv("XDG_STATE_HOME", str(door.parent / "state"))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    with Daemon(door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def line(**given: Any) -> argparse.Namespace:
    usual = {"model": None, "oneshot": None, "first": None, "continue_last": False, "resume": None}
    return argparse.Namespace(**usual | given)


def test_a_question_is_answered_and_a_key_that_nobody_else_reads_tells_whose_it_is(
    daemon: Daemon, door: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert converse(door, line(oneshot=" hello ")) == EXIT_OK
    assert converse(door, line(oneshot="long", continue_last=True)) == EXIT_FAILED
    monkeypatch.setattr("sys.stdin", io.StringIO("hello"))
    assert converse(door, line(resume="s1")) == EXIT_OK
    said = capsys.readouterr()
    assert (said.out, said.err) == ("65536\nhalf\n65536\n", "mind the gap\nmind the gap\n")
    assert [(one["text"], one["session"]) for one in daemon.asked] == [("hello", ""), ("long", "last"), ("hello", "s1")]
    (key,) = {one["key"] for one in daemon.asked}
    file = door.parent / "state" / "hermes" / "daemon-key"
    assert (file.read_text().strip(), file.stat().st_mode & 0o777, len(key) >= 32) == (key, 0o600, True)


def test_a_turn_that_a_limit_ended_fails_and_says_so_on_stderr(
    daemon: Daemon, door: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert converse(door, line(oneshot="loop")) == EXIT_FAILED
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hermes: I stopped: loop\n")


def test_what_it_refuses_is_said_with_its_hint_and_the_chat_goes_on_to_its_end(
    daemon: Daemon, door: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="there is no model") as refused:
        converse(door, line(oneshot="fail"))
    assert refused.value.hint == "Choose one."
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert converse(door, line(first="fail")) == EXIT_FAILED
    assert "there is no model" in capsys.readouterr().err
    with pytest.raises(UserError, match="there is no question"):
        converse(door, line(oneshot=" "))
    with pytest.raises(UserError, match="operator's choice"):
        converse(door, line(oneshot="hello", model="other"))


def test_sessions_are_listed_and_shown(daemon: Daemon, door: Path) -> None:
    assert [one.title for one in list_sessions(door, 5, None)] == ["plans"]
    session, messages = load_session(door, "s1")
    assert (session.id, [message.text for message in messages]) == ("s1", ["hi"])
    assert [one["op"] for one in daemon.asked] == ["sessions", "session"]


def test_it_is_a_client_where_the_socket_may_be_written_to_and_no_home_is_named(daemon: Daemon, door: Path) -> None:
    named = {"HERMES_DAEMON_SOCKET": str(door)}
    assert daemon_socket(named) == door
    assert daemon_socket({**named, "HERMES_HOME": "/home/ann/.hermes"}) is None
    assert daemon_socket({"HERMES_DAEMON_SOCKET": str(door) + ".gone"}) is None
    assert daemon_socket({}) is None
    refuse_remote({}, "sessions")
    with pytest.raises(UserError, match="is asked for sessions alone"):
        refuse_remote(named, "sessions")


def test_who_asks_and_finds_no_daemon_is_told_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no daemon runs with the home") as refused:
        ask_daemon(tmp_path, {"op": "status"})
    assert "hermes gateway run" in refused.value.hint


@pytest.fixture
def run_directory(tmp_path: Path) -> Iterator[Path]:
    """A `/run` with two agents, of which one has a socket."""
    for name in ("hermes-agent", "hermes-agent-alice"):
        (tmp_path / name).mkdir()
    server = Daemon(tmp_path / "hermes-agent-alice" / "control.sock")
    yield tmp_path
    server.server_close()


@pytest.mark.parametrize("words", [("--instance", "alice", "-z", "hello"), ("--instance=alice", "-z", "hello")])
def test_a_named_agent_of_the_machine_is_asked(words: tuple[str, ...], run_directory: Path) -> None:
    environ = {"HERMES_HOME": "/srv/mine"}
    assert select_instance(words, environ, run_directory) == ["-z", "hello"]
    door = run_directory / "hermes-agent-alice" / "control.sock"
    assert environ == {"HERMES_DAEMON_SOCKET": str(door)}
    assert daemon_socket(environ) == door
    with pytest.raises(UserError) as refused:
        select_instance([*words[:-2], "plugins", "list"], environ, run_directory)
    assert "`sudo hermes-alice`" in str(refused.value)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--instance", "bob"), "no agent 'bob' runs on this machine\nThere is: default, alice."),
        (("--instance=../etc",), "no agent '../etc' runs on this machine"),
        (("--instance",), "`--instance` needs the name of an agent\nThere is: default, alice."),
        (("--instance", "default"), "may ask it; its unit is hermes-agent."),
    ],
)
def test_an_agent_that_cannot_be_asked_is_named_with_those_that_run(
    words: tuple[str, ...], text: str, run_directory: Path
) -> None:
    environ = {"HERMES_HOME": "/srv/mine"}
    with pytest.raises(UserError) as refused:
        select_instance(words, environ, run_directory)
    assert text in str(refused.value)
    assert environ == {"HERMES_HOME": "/srv/mine"}
