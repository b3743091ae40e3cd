"""Homes that the published program makes, in several versions and conditions, are imported without a silent loss.

Needs a package index: HERMES_PUBLISHED_HOMES=1, or `make compat`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compat.homes.published import LATEST, VERSIONS, make_home
from compat.homes.survey import find_lost, fingerprint
from worlds import HERMES, environment

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("HERMES_PUBLISHED_HOMES"), reason="needs a package index: HERMES_PUBLISHED_HOMES=1"
    ),
    pytest.mark.timeout(900),
]
ALL = ("memory", "jobs", "users", "config", "plugin", "skill", "rest")
DROPPED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Runs a program of root without its right to read every file."""


class Case(NamedTuple):
    """A home: the version that makes it, what it makes, and what is done to it afterwards."""

    version: str = LATEST
    sessions: int = 3
    parts: tuple[str, ...] = ALL
    change: Callable[[Path], None] = lambda home: None
    keep_wal: bool = False
    named: tuple[str, ...] = ()
    """Texts that the report has."""


def several_profiles(home: Path) -> None:
    for name, version in (("work", VERSIONS[0]), ("family", VERSIONS[2])):
        make_home(home.parent / name, version, sessions=2, parts=ALL)
        (home / "profiles").mkdir(exist_ok=True)
        (home.parent / name).rename(home / "profiles" / name)


def links(home: Path) -> None:
    (home / "skills/water/gone").symlink_to("nowhere")
    (home / "plugins/linked").symlink_to(home / "plugins/garden")
    (home / "skills/out").symlink_to("../../somewhere")
    (home / "scripts/link.sh").symlink_to("check.sh")


def huge_files(home: Path) -> None:
    for path in ("workspace/model.bin", "plugins/garden/data.bin", "unknown.bin"):
        place = home / path
        place.parent.mkdir(exist_ok=True)
        with place.open("wb") as file:
            file.truncate(80 << 20)


def invalid_text(home: Path) -> None:
    for path in (
        "config.yaml",
        ".env",
        "memories/MEMORY.md",
        "cron/jobs.json",
        "platforms/pairing/telegram-approved.json",
    ):
        (home / path).write_bytes(b"\xff\xfe not utf-8\n")
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db, db:
        db.execute("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = 2")


def damaged_database(home: Path) -> None:
    data = bytearray((home / "state.db").read_bytes())
    data[8192:] = b"\x55" * (len(data) - 8192)
    (home / "state.db").write_bytes(data)


def old_schema(home: Path) -> None:
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db, db:
        for table, names in (
            ("messages", ("reasoning", "reasoning_content", "codex_reasoning_items", "finish_reason", "token_count")),
            ("sessions", ("cost_source", "pricing_version", "handoff_state", "handoff_error", "cache_read_tokens")),
        ):
            for name in names:
                db.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        db.execute("DROP TABLE state_meta")


def unreadable(home: Path) -> None:
    (home / "skills/water/secret.txt").write_text("closed")
    (home / "skills/water/secret.txt").chmod(0)
    (home / "closed").mkdir()
    (home / "closed/x").write_text("x")
    (home / "closed").chmod(0)


def transcripts_alone(home: Path) -> None:
    (home / "sessions").mkdir(exist_ok=True)
    for number in range(3):
        messages = [{"role": "user", "content": f"old {number}"}, {"role": "assistant", "content": "yes"}]
        (home / f"sessions/session_old{number}.json").write_text(json.dumps({"messages": messages}))
        (home / f"sessions/older{number}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in messages))
    (home / "sessions/sessions.json").write_text("{}")


def old_pairings(home: Path) -> None:
    shutil.copytree(home / "platforms/pairing", home / "pairing", dirs_exist_ok=True)
    (home / "pairing/signal-approved.json").write_text('{"+49": {"user_name": "eve", "approved_at": 1}}')


def odd_names(home: Path) -> None:
    for name in (b"caf\xe9", "木 tree".encode(), b"new\nline", b"-dash"):
        folder = os.fsencode(home / "skills") + b"/" + name
        os.mkdir(folder)
        with open(folder + b"/SKILL.md", "wb") as file:
            file.write(b"---\nname: odd\ndescription: odd\n---\nDo.\n")
    deep = home / "skills/deep" / "/".join(["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "file.txt").write_text("deep")


def odd_plugin(home: Path) -> None:
    for path in (".git/config", "__pycache__/x.pyc", "node_modules/a/index.js", "vendor/lib.so"):
        place = home / "plugins/garden" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"\x00\x01")
    (home / "plugins/lonely.py").write_text("x = 1\n")
    os.mkfifo(home / "plugins/garden/pipe")


def odd_rows(home: Path) -> None:
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db, db:
        for role, content, calls in (
            ("narrator", "of no role", None),
            ("assistant", None, "not json"),
            ("assistant", "x", '[{"name": "old form"}]'),
            ("user", b"\x80bytes", None),
            ("user", "\x00json:[broken", None),
        ):
            db.execute(
                "INSERT INTO messages (session_id, role, content, tool_calls, timestamp)"
                " VALUES ('20250102_030405_000001', ?, ?, ?, 1795646700)",
                (role, content, calls),
            )
        db.execute("CREATE TABLE of_a_plugin (x)")
        db.execute("INSERT INTO of_a_plugin VALUES (1)")


def with_logins(home: Path) -> None:
    entries = {
        "openrouter": [{"label": "mine", "auth_type": "api_key", "access_token": "sk-or-other-0123456789"}],
        "nous": [{"label": "web", "auth_type": "oauth_device", "access_token": "t0ken-of-nous", "refresh_token": "r"}],
    }
    (home / "auth.json").write_text(json.dumps({"version": 1, "providers": {}, "credential_pool": entries}))


CASES = {
    **{f"version {version}": Case(version) for version in VERSIONS},
    "a log left behind by a killed process": Case(keep_wal=True, parts=()),
    "a log left behind by an old version": Case(VERSIONS[0], keep_wal=True, parts=()),
    "sixty sessions of several people": Case(VERSIONS[1], sessions=60),
    "several profiles": Case(change=several_profiles),
    "links, also broken ones": Case(VERSIONS[2], change=links, named=("does not exist",)),
    "huge files": Case(change=huge_files),
    "text that is no UTF-8": Case(change=invalid_text, named=("no UTF-8", "it is no JSON")),
    "a damaged database": Case(change=damaged_database, named=("cannot be read",)),
    "an old schema": Case(VERSIONS[0], change=old_schema),
    "files that cannot be read": Case(change=unreadable, named=("Permission denied",)),
    "transcripts without a database": Case(sessions=0, parts=("config",), change=transcripts_alone),
    "pairings in both places": Case(change=old_pairings),
    "odd names": Case(VERSIONS[1], change=odd_names),
    "an odd plugin": Case(change=odd_plugin, named=("a pipe",)),
    "odd rows": Case(change=odd_rows, named=("none that a model knows", "does not know the table")),
    "logins": Case(change=with_logins, named=("sign in again",)),
    "an empty home": Case(sessions=0, parts=("config",)),
}


def command(home: Path, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, HERMES, *words],
        env=environment(home),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("name", CASES)
def test_a_home_of_the_published_program_is_imported_without_a_silent_loss(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    source, home = tmp_path / "theirs", tmp_path / "home"
    make_home(source, case.version, keep_wal=case.keep_wal, sessions=case.sessions, parts=case.parts)
    case.change(source)
    if case.keep_wal:
        assert (source / "state.db-wal").stat().st_size > 0
    prefix = tuple(DROPPED) if case.change is unreadable and os.geteuid() == 0 else ()
    before = fingerprint(source)
    done = command(home, "import", "upstream", str(source), "--json", prefix=prefix)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert fingerprint(source) == before
    assert find_lost(source, home, report) == []
    assert all(any(text in item["reason"] for item in report["items"]) for text in case.named), report["items"]
    assert "sk-or-" not in done.stdout and "t0ken" not in done.stdout
    again = json.loads(command(home, "import", "upstream", str(source), "--json", prefix=prefix).stdout)
    assert [item for item in again["items"] if item["outcome"] == "new"] == []
    undone = command(home, "import", "undo")
    assert undone.returncode == 0 and "things stay" not in undone.stdout, undone
    assert not (home / "skills").exists() and not (home / "config.yaml").exists()


def test_there_are_twenty_homes() -> None:
    assert len(CASES) >= 20
