"""Users of other doors, over HTTP and at the terminal: what they said before is neither told nor gone on with."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from attack.home_rows import ROWS, batches, furnish, mark, readable
from hermes_agent.testing import call
from hermes_agent.testing.scripted_model import ScriptedModel, served
from peers.running import free_port, running
from worlds import HERMES, environment, run

OTHERS = ("telegram:4711", "matrix:@ann:example.org", "irc:chat:#room", "webhook:ci", "member:0123456789abcdef")
LINES = ("go on", "/context", "/usage", "/undo", "/compress", "/title x", "/rollback", "/resume")
FULL = pytest.mark.skipif(os.environ.get("HERMES_ATTACK_FULL") != "1", reason="make attack runs a daemon for it")


def spoken(home: Path) -> dict[str, str]:
    """Let each of the others have a session; return its ids by principal."""
    found = {}
    for number, principal in enumerate(OTHERS):
        assert run(home, "-z", f"MARK{number:02} is my otter").returncode == 0
        with contextlib.closing(sqlite3.connect(home / "state.db")) as db, db:
            (session,) = db.execute("SELECT id FROM sessions WHERE principal = 'local'").fetchone()
            source = principal.partition(":")[0]
            db.execute("UPDATE sessions SET principal = ?, source = ? WHERE id = ?", (principal, source, session))
            found[principal] = str(session)
    return found


@FULL
@pytest.mark.attack("users", at="daemon")
def test_no_session_of_another_door_is_told_or_gone_on_with(
    tmp_path: Path, attempt: Callable[[bool, str], None]
) -> None:
    home, port, model = tmp_path / "home", free_port(), ScriptedModel(*["Noted."] * len(OTHERS))
    home.mkdir()
    with served(model) as address:
        config = {
            "model": {"provider": "custom", "base_url": address, "default": model.name},
            "auxiliary": {"title_generation": {"enabled": False}},
        }
        (home / "config.yaml").write_text(json.dumps(config))
        (home / ".env").write_text("OPENAI_API_KEY=none\n")
        sessions = spoken(home)
        asked = len(model.requests)
        environ = environment(home, API_SERVER_PORT=str(port))
        command = [HERMES, "gateway", "run"]
        with running(command, host="127.0.0.1", port=port, path="/health", environ=environ):
            key = run(home, "gateway", "key").stdout.strip()
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
                for principal, session in sessions.items():
                    over_http(client, principal, session, attempt)
        for principal, session in sessions.items():
            for arguments in (
                ["--resume", session, "-z", "go on"],
                ["-c", "-z", "go on"],
                ["sessions", "show", session],
                ["sessions", "export", session],
                ["sessions", "export"],
                ["sessions", "list"],
                ["sessions", "search", "otter"],
                ["sessions", "delete", session],
            ):
                model.say("Nothing is known.")
                done = run(home, *arguments)
                attempt("MARK" not in done.stdout, f"local sees what {principal} said: hermes {' '.join(arguments)}")
        later = json.dumps(model.requests[asked:])
    attempt("MARK" not in later, "what others said reaches the model")
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        there = {row[0] for row in db.execute("SELECT id FROM sessions")}
    attempt(set(sessions.values()) <= there, "a session of somebody else is deleted")


@FULL
@pytest.mark.attack("users")
def test_no_entry_of_the_home_is_told_over_http_or_at_the_terminal(
    tmp_path: Path, attempt: Callable[[bool, str], None]
) -> None:
    home, port, model = tmp_path / "home", free_port(), ScriptedModel("Noted.")
    home.mkdir()
    with served(model) as address:
        config = {
            "model": {"provider": "custom", "base_url": address, "default": model.name},
            "auxiliary": {"title_generation": {"enabled": False}},
            "webhooks": {"push": {"check": "gitlab", "prompt": "{text}", "deliver": "log"}},
        }
        (home / "config.yaml").write_text(json.dumps(config))
        (home / ".env").write_text("OPENAI_API_KEY=none\nWEBHOOK_PUSH_SECRET=the-secret-of-the-hook\n")
        environ = environment(home, API_SERVER_PORT=str(port))
        command = [HERMES, "gateway", "run"]
        with running(command, host="127.0.0.1", port=port, path="/health", environ=environ):
            key = run(home, "gateway", "key").stdout.strip()
            assert run(home, "-z", "hello").returncode == 0
            unknown = {path.name for path in home.iterdir()} - ROWS.keys()
            assert not unknown, f"the home has entries that are in no row: {unknown}"
            files = furnish(home)
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
                body = {"model": "hermes-agent", "messages": [{"role": "user", "content": "Read them"}]}
                for door, is_owner in (("HTTP", False), ("the terminal", True)):
                    for some in batches(12):
                        model.say(*[call("read_file", path=str(files[entry])) for entry in some], "Read.")
                        if is_owner:
                            assert run(home, "-z", "Read them").returncode == 0
                        else:
                            assert client.post("/v1/chat/completions", json=body).status_code == 200
                        told = json.dumps(model.requests[-1]["messages"])
                        for entry in some:
                            if readable(ROWS[entry][1], is_owner=is_owner):
                                assert mark(entry) in told, (door, entry)
                            else:
                                attempt(mark(entry) not in told, f"{entry} is told over {door}")


def over_http(client: httpx.Client, principal: str, session: str, attempt: Callable[[bool, str], None]) -> None:
    """Try a session of somebody else with the HTTP key."""
    for line in LINES:
        for stream in (False, True):
            body = {"model": "hermes-agent", "messages": [{"role": "user", "content": line}], "stream": stream}
            answer = client.post("/v1/chat/completions", json=body, headers={"X-Hermes-Session-Id": session})
            what = f"{line} in the session of {principal} over HTTP: {answer.status_code}"
            attempt(answer.status_code == 403 and "MARK" not in answer.text, what)
    body = {"model": "hermes-agent", "input": "go on"}
    for more, header in (({}, {"X-Hermes-Session-Id": session}), ({"previous_response_id": session}, {})):
        answer = client.post("/v1/responses", json=body | more, headers=header)
        attempt(answer.status_code >= 400 and "MARK" not in answer.text, f"a response in the session of {principal}")
