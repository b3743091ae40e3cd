"""Homes that OpenClaw's own program makes, in several versions, are imported without a silent loss.

Needs npm and its index: HERMES_PUBLISHED_HOMES=1, or `make compat`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compat.homes.openclaw import KEYS, LATEST, VERSIONS, CannotInstallOpenClaw, installed, make_openclaw_home
from compat.homes.survey import fingerprint, is_folder
from hermes_agent.testing import ScriptedModel, served
from worlds import HERMES, environment

pytestmark = [
    pytest.mark.skipif(not os.environ.get("HERMES_PUBLISHED_HOMES"), reason="needs npm: HERMES_PUBLISHED_HOMES=1"),
    pytest.mark.timeout(1800),
]


def hermes(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HERMES, *words],
        env=environment(home),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def json_of(home: Path, *words: str) -> Any:
    done = hermes(home, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def allow_in_the_database(home: Path) -> None:
    """Allow a user as an approved pairing does, which needs the service of the channel."""
    with contextlib.closing(sqlite3.connect(home / "state/openclaw.sqlite")) as db, db:
        db.execute("INSERT INTO channel_pairing_allow_entries VALUES ('telegram', 'default', '815', 0, 0)")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_home_of_openclaw_s_program_is_imported_without_a_silent_loss(tmp_path: Path, version: str) -> None:
    try:
        installed(version)
    except CannotInstallOpenClaw as exc:
        pytest.skip(f"OpenClaw {version} cannot be installed: {exc}")
    person, home = tmp_path / "person", tmp_path / "home"
    person.mkdir()
    with served(ScriptedModel(*["It is outside."] * 100)) as base_url:
        source = make_openclaw_home(person, version, base_url, free_port()).home
    if version == LATEST:
        allow_in_the_database(source)
    before = fingerprint(source)
    report = json_of(home, "import", "openclaw", str(source))
    assert fingerprint(source) == before
    assert [key for key in KEYS if key in json.dumps(report)] == []
    named = {item["source"] for item in report["items"]}
    files = [str(place.relative_to(source)) for place in source.rglob("*") if not is_folder(place)]
    assert [one for one in files if not any(one == name or one.startswith(f"{name}/") for name in named)] == [
        one
        for one in files
        if one.endswith(("-wal", "-shm")) and one not in named  # of databases that are named
    ]

    sessions = [json_of(home, "sessions", "show", one["id"]) for one in json_of(home, "sessions", "list", "--all")]
    said = sorted([message["content"] for message in one["messages"]] for one in sessions)
    answer = "It is outside."
    assert said == [["hello from ops", answer], ["hello there", answer, "where is the tree? \U0001f333", answer]]
    assert {(one["model"], one["principal"]) for one in sessions} == {("scripted-model", "local")}
    assert (home / "memories/MEMORY.md").read_text() == "# Facts\n\nThe tree is outside.\n"
    assert (home / "workspace/memory/2026-05-28.md").read_text() == "We talked about trees.\n"
    assert "prune" in {one["name"] for one in json_of(home, "skills", "list")}
    jobs = {job["name"]: (job["enabled"], job["prompt"]) for job in json_of(home, "cron", "list")}
    assert jobs == {"brief": (True, "Summarise the night."), "often": (True, "Look at the garden.")}
    assert hermes(home, "config", "get", "model.default").stdout.strip() == "scripted-model"
    assert json_of(home, "config", "get", "platforms.telegram.allow_from") == ["4711"]
    assert hermes(home, "config", "get", "mcp_servers.files.command").stdout.strip() == "npx"
    assert "anthropic" in hermes(home, "auth", "list").stdout
    assert "TELEGRAM_BOT_TOKEN=" in (home / ".env").read_text()
    assert version != LATEST or "815" in hermes(home, "pairing", "list").stdout

    again = json_of(home, "import", "openclaw", str(source))
    assert [item for item in again["items"] if item["outcome"] in ("new", "conflict")] == []
    assert hermes(home, "import", "undo").returncode == 0
    assert json_of(home, "sessions", "list", "--all") == []
