"""`hermes import`: a home of upstream is copied, checked, and taken back; the source stays as it is."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compat.homes.survey import DATA, build_home, find_lost, fingerprint
from hermes_agent.app.imports.importer import ImportOptions, run_import
from hermes_agent.app.imports.journal import list_journals
from hermes_agent.app.main import main
from hermes_agent.core.errors import UserError
from hermes_agent.service.daemon_state import HomeLock

VERSIONS = sorted(path.name for path in DATA.iterdir() if path.name[:1].isdigit())
SECRETS = ("sk-or-v1-0123456789abcdef0123456789abcdef", "1234567:AAE-secret_of_a_bot")


class Done(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


Hermes = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of this program, which does not exist yet."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def hermes(home: Path, capfd: pytest.CaptureFixture[str]) -> Hermes:
    def run(*words: str | Path) -> Done:
        status = main([str(word) for word in words])
        return Done(status, *capfd.readouterr())

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A home of upstream's latest recorded version."""
    return build_home(VERSIONS[-1], tmp_path / "upstream")


def test_homes_of_every_recorded_version_are_imported_without_a_loss(
    hermes: Hermes, home: Path, tmp_path: Path
) -> None:
    for version in VERSIONS:
        place = build_home(version, tmp_path / version)
        before = fingerprint(place)
        done = hermes("import", "upstream", place, "--json")
        assert done.status == 0, done.stderr
        assert fingerprint(place) == before, version
        assert find_lost(place, home, done.json) == [], version
        shutil.rmtree(home)


def with_tables_of_0_21(source: Path, version: int = 30) -> None:
    """Change `state.db` as upstream's releases after 0.19 do: system prompts in a table of their own, more columns."""
    with contextlib.closing(sqlite3.connect(source / "state.db")) as db, db:
        db.execute("CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL)")
        db.execute("INSERT INTO system_prompts VALUES ('abc', 'You are kind.')")
        for column in ("system_prompt_hash TEXT", "title_source TEXT", "pinned INTEGER NOT NULL DEFAULT 0"):
            db.execute(f"ALTER TABLE sessions ADD COLUMN {column}")
        for column in ("display_kind TEXT", "display_order INTEGER", "_compressed_summary INTEGER DEFAULT 0"):
            db.execute(f"ALTER TABLE messages ADD COLUMN {column}")
        db.execute("UPDATE sessions SET system_prompt_hash = 'abc', system_prompt = NULL WHERE system_prompt <> ''")
        db.execute("CREATE TABLE conversation_generations (source, session_key, generation)")
        db.execute("INSERT INTO conversation_generations VALUES ('telegram', 'k', 1)")
        db.execute("UPDATE schema_version SET version = ?", (version,))


def test_a_home_of_a_release_after_0_19_keeps_its_system_prompts(hermes: Hermes, home: Path, source: Path) -> None:
    with_tables_of_0_21(source)
    done = hermes("import", "upstream", source, "--json")
    assert find_lost(source, home, done.json) == []
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        prompts = {row[0] for row in db.execute("SELECT system_prompt FROM sessions")}
    assert "You are kind." in prompts
    assert [item["name"] for item in done.json["items"] if "does not know the table" in item["reason"]] == []


def test_tables_newer_than_this_program_are_named_and_those_that_it_cannot_read_are_refused(
    hermes: Hermes, home: Path, source: Path
) -> None:
    with_tables_of_0_21(source, version=99)
    report = hermes("import", "upstream", source, "--json").json
    assert "99 are newer" in next(item["reason"] for item in report["items"] if "schema_version" in item["name"])
    assert hermes("import", "undo").status == 0
    with contextlib.closing(sqlite3.connect(source / "state.db")) as db, db:
        db.execute("ALTER TABLE messages RENAME COLUMN content TO body")
    refused = hermes("import", "upstream", source)
    assert refused.status == 1 and "no column content in `messages`" in refused.stderr
    assert "hermes update" in refused.stderr
    assert hermes("import", "list", "--json").json[0]["state"] == "undone" and not (home / "skills").exists()


def test_a_dry_run_writes_nothing_and_says_what_an_import_would_do(hermes: Hermes, home: Path, source: Path) -> None:
    dry = hermes("import", "upstream", source, "--dry-run", "--json").json
    assert not home.exists()
    real = hermes("import", "upstream", source, "--json").json
    assert dry["items"] == real["items"]
    assert dry["is_dry_run"] and not dry["id"] and real["id"]


def test_in_a_pipe_each_kind_of_work_is_one_line_and_json_has_none(hermes: Hermes, source: Path) -> None:
    done = hermes("import", "upstream", source)
    steps = ["Reading …", "Comparing …", "Checking the source …", "Writing …", "Checking the copy …"]
    assert done.stderr.splitlines() == steps
    assert "checked by counts and hashes" in done.stdout
    assert hermes("import", "upstream", source, "--json").stderr == ""


def test_sessions_keep_people_times_titles_calls_and_what_the_model_knew(
    hermes: Hermes, home: Path, source: Path
) -> None:
    assert hermes("import", "upstream", source).status == 0
    listed = {one["id"]: one for one in hermes("sessions", "list", "--all", "--json").json}
    assert listed["20250102_030405_000001"]["title"] == "The tree"
    assert listed["20250102_030405_000000"]["principal"] == "telegram:4711"
    assert listed["20250102_030405_000001"]["principal"] == "local"
    assert "20250102_030405_branch" in listed  # a branch is a conversation of its own
    shown = hermes("sessions", "show", "20250102_030405_000001", "--json").json
    with contextlib.closing(sqlite3.connect(source / "state.db")) as db:
        started = db.execute("SELECT started_at FROM sessions WHERE id LIKE '%000001'").fetchone()[0]
    assert shown["started_at"] == started
    assert [one["role"] for one in shown["messages"]] == ["user", "assistant", "tool", "user", "assistant"] * 2
    assert shown["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"command": "ls"}'
    assert shown["messages"][3]["content"] == [{"type": "text", "text": "and this?"}]
    from hermes_agent.sessions import Transcript

    with contextlib.closing(Transcript(home / "state.db")) as transcript:
        assert [m.text for m in transcript.history("20250102_030405_000000")] == ["summary of before"]
        assert len(transcript.messages("20250102_030405_000000")) == 11
        assert transcript.search("나무", of=None)


def test_secrets_go_to_the_private_env_file_and_are_never_printed(hermes: Hermes, home: Path, source: Path) -> None:
    texts = [
        "".join(hermes("import", "upstream", source, "--dry-run", "--all")[1:]),
        "".join(hermes("import", "upstream", source, "--all")[1:]),
        "".join(hermes("import", "upstream", source, "--json")[1:]),
        "".join(hermes("import", "show", "--json")[1:]),
        *(path.read_text() for path in (home / "imports").rglob("*.json")),
    ]
    assert all(secret not in text for secret in SECRETS for text in texts)
    assert all(secret in (home / ".env").read_text() for secret in SECRETS)
    assert (home / ".env").stat().st_mode & 0o777 == 0o600


def test_every_key_of_the_config_is_named_with_what_became_of_it(hermes: Hermes, home: Path, source: Path) -> None:
    report = hermes("import", "upstream", source, "--json").json
    found = {item["name"]: item for item in report["items"] if item["kind"] == "config"}
    assert found["model.default"]["outcome"] == "new"
    assert found["agent.max_turns"]["outcome"] == "new"
    assert found["my_plugin_block.depth"]["outcome"] == "new"
    assert found["platforms.telegram.require_mention"]["outcome"] == "new"
    assert found["_config_version"]["outcome"] == "not imported" and "no effect" in found["_config_version"]["reason"]
    assert hermes("config", "get", "agent.max_turns").stdout.strip() == "41"
    assert hermes("config", "check").status == 0


def test_jobs_users_skills_plugins_and_notes_are_there(hermes: Hermes, home: Path, source: Path) -> None:
    assert hermes("import", "upstream", source).status == 0
    jobs = hermes("cron", "list", "--json").json
    assert {job["name"]: job["enabled"] for job in jobs} == {
        "morning": True,
        "garden": True,
        "once": True,
        "weekly": False,
    }
    assert "4711" in hermes("pairing", "list").stdout
    assert {"prune", "water"} <= {one["name"] for one in hermes("skills", "list", "--json").json}
    assert "garden" in hermes("plugins", "list", "--plain").stdout
    assert (home / "memories/USER.md").read_bytes() == (source / "memories/USER.md").read_bytes()


def test_a_second_import_takes_only_what_is_new(hermes: Hermes, home: Path, source: Path) -> None:
    hermes("import", "upstream", source)
    again = hermes("import", "upstream", source, "--json").json
    assert not [item for item in again["items"] if item["outcome"] == "new"] and not again["id"]
    with contextlib.closing(sqlite3.connect(source / "state.db")) as db, db:
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp)"
            " VALUES ('20250102_030405_000001', 'user', 'one more', 1795646700)"
        )
    (source / "skills/new").mkdir()
    (source / "skills/new/SKILL.md").write_text("---\nname: new\ndescription: new\n---\nDo.\n")
    report = hermes("import", "upstream", source, "--json").json
    new = {(item["kind"], item["name"]) for item in report["items"] if item["outcome"] == "new"}
    assert new == {("session", "20250102_030405_000001"), ("skill", "new")}
    assert len(hermes("sessions", "show", "20250102_030405_000001", "--json").json["messages"]) == 11
    assert hermes("import", "undo").status == 0
    assert len(hermes("sessions", "show", "20250102_030405_000001", "--json").json["messages"]) == 10


def test_a_conversation_that_went_on_in_both_programs_is_here_twice(hermes: Hermes, home: Path, source: Path) -> None:
    hermes("import", "upstream", source)
    for place, text in ((home, "said here"), (source, "said there")):
        with contextlib.closing(sqlite3.connect(place / "state.db")) as db, db:
            db.execute(
                "INSERT INTO messages (session_id, role, content, timestamp)"
                f" VALUES ('20250102_030405_000001', 'user', '{text}', 1795646700)"
            )
    report = hermes("import", "upstream", source, "--json").json
    (copy,) = [item["name"] for item in report["items"] if item["kind"] == "session" and item["outcome"] == "new"]
    assert copy.startswith("20250102_030405_000001_")
    assert "said here" in hermes("sessions", "show", "20250102_030405_000001", "--json").stdout
    assert "said there" in hermes("sessions", "show", copy, "--json").stdout
    assert not hermes("import", "upstream", source, "--json").json["id"]


def test_what_is_different_here_is_listed_and_replaced_only_with_overwrite(
    hermes: Hermes, home: Path, source: Path
) -> None:
    (home / "skills/water").mkdir(parents=True)
    (home / "skills/water/SKILL.md").write_text("---\nname: water\ndescription: mine\n---\nMine.\n")
    hermes("config", "set", "agent.max_turns", "7")
    hermes("config", "set", "OPENROUTER_API_KEY", "sk-mine-000000")
    before = fingerprint(home)
    report = hermes("import", "upstream", source, "--json").json
    conflicts = {item["name"] for item in report["items"] if item["outcome"] == "conflict"}
    assert conflicts == {"water", "agent.max_turns", "OPENROUTER_API_KEY"}
    assert hermes("config", "get", "agent.max_turns").stdout.strip() == "7"
    assert "Mine." in (home / "skills/water/SKILL.md").read_text()
    report = hermes("import", "upstream", source, "--overwrite", "--json").json
    assert {item["name"] for item in report["items"] if item["outcome"] == "replaced"} == conflicts
    assert hermes("config", "get", "agent.max_turns").stdout.strip() == "41"
    assert (home / "skills/water/tool.sh").exists()
    for _ in range(2):
        assert hermes("import", "undo").status == 0
    after = fingerprint(home)
    assert {name: value for name, value in after.items() if name in before} == before


def test_undo_leaves_the_home_as_it_was_but_for_what_was_changed_since(
    hermes: Hermes, home: Path, source: Path
) -> None:
    hermes("import", "upstream", source)
    (home / "skills/water/SKILL.md").write_text("changed")
    hermes("config", "set", "agent.max_turns", "9")
    done = hermes("import", "undo")
    assert "skills/water was changed since" in done.stdout and "`agent.max_turns` was changed since" in done.stdout
    assert hermes("sessions", "list", "--all", "--json").json == []
    assert hermes("cron", "list", "--json").json == []
    assert not (home / "plugins/garden").exists() and not (home / "memories/MEMORY.md").exists()
    assert (home / "config.yaml").read_text().split() == ["agent:", "max_turns:", "9"]
    assert not (home / ".env").exists() or "TELEGRAM" not in (home / ".env").read_text()
    assert hermes("import", "undo").status != 0


@pytest.mark.parametrize("kind", ["staging", "files", "sessions", "settings", "checking"])
def test_an_import_that_is_killed_is_finished_by_the_next_command(
    home: Path, source: Path, kind: str, hermes: Hermes
) -> None:
    """The process ends before a step of each kind, when others are done, as a power failure would end it."""
    child = os.fork()
    if not child:
        seen = 0

        def killed(text: str) -> None:
            nonlocal seen
            seen += text.startswith((f"writing {kind}", f"{kind} the copy"))
            seen += kind == "staging" and text == "checking the source"
            if seen == (3 if kind == "files" else 1):
                os._exit(9)

        run_import(ImportOptions("upstream", source, home, progress=killed))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [journal.state for journal in list_journals(home)] == ["staging" if kind == "staging" else "committing"]
    assert ("was interrupted" in hermes("doctor", "--offline").stdout) is (kind != "staging")
    report = hermes("import", "upstream", source, "--json").json
    assert find_lost(source, home, report) == []
    assert bool([item for item in report["items"] if item["outcome"] == "new"]) is (kind == "staging")
    assert not report["is_dry_run"] and not [item for item in report["items"] if item["outcome"] == "conflict"]
    assert [journal.state for journal in list_journals(home)] == ["done"]


def test_a_source_that_changes_while_it_is_read_is_not_imported(home: Path, source: Path) -> None:
    def changing(text: str) -> None:
        if text == "checking the source":
            (source / "SOUL.md").write_text("changed")

    with pytest.raises(UserError, match=r"SOUL\.md.*nothing is imported"):
        run_import(ImportOptions("upstream", source, home, progress=changing))
    assert list_journals(home) == [] and not (home / "state.db").exists()


def test_a_home_whose_daemon_runs_is_refused(hermes: Hermes, home: Path, source: Path) -> None:
    home.mkdir()
    with HomeLock(home):
        done = hermes("import", "upstream", source)
    assert done.status != 0 and "daemon" in done.stderr and not (home / "config.yaml").exists()


def test_places_that_cannot_be_imported_are_refused_with_what_to_do(
    hermes: Hermes, home: Path, source: Path, tmp_path: Path
) -> None:
    assert "is no folder" in hermes("import", "upstream", tmp_path / "none").stderr
    (tmp_path / "empty").mkdir()
    assert "is no home of upstream" in hermes("import", "upstream", tmp_path / "empty").stderr
    assert hermes("import", "upstream", source).status == 0
    assert "cannot be copied into itself" in hermes("import", "upstream", home).stderr
    shutil.copytree(home, tmp_path / "ours")
    assert "is a database of this program" in hermes("import", "upstream", tmp_path / "ours").stderr


def test_a_home_of_upstream_that_is_used_as_it_is_says_how_to_import_it(
    hermes: Hermes, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(source))
    done = hermes("sessions", "list")
    assert done.status != 0 and "hermes import upstream" in done.stderr and "Traceback" not in done.stderr


def test_odd_files_are_imported_or_named(hermes: Hermes, home: Path, source: Path) -> None:
    (source / "skills/water/broken").symlink_to("nowhere")
    (source / "skills/water/outside").symlink_to("../../SOUL.md")
    os.mkfifo(source / "skills/pipe")
    (source / "skills/caf\udce9").mkdir()
    (source / "skills/caf\udce9/SKILL.md").write_bytes(b"---\nname: x\n---\n\xff\xfe")
    (source / "plugins/linked").symlink_to(source / "plugins/garden")
    (source / "memories/USER.md").write_bytes(b"Name: \xff\xfe\n")
    (source / "config.yaml").write_bytes(b"agent:\n  max_turns: \xff\n")
    with (source / "workspace.bin").open("wb") as file:
        file.truncate(40 << 20)
    (source / "sessions").mkdir(exist_ok=True)
    (source / "sessions/session_old.json").write_text(
        json.dumps({"session_id": "old", "model": "m", "messages": [{"role": "user", "content": "long ago"}]})
    )
    (source / "sessions/older.jsonl").write_text('{"role": "user", "content": "longer ago"}\nno json\n')
    before = fingerprint(source)
    report = hermes("import", "upstream", source, "--json").json
    assert fingerprint(source) == before
    assert find_lost(source, home, report) == []
    left = {item["source"]: item["reason"] for item in report["items"] if item["outcome"] == "not imported"}
    assert "does not exist" in left["skills/water/broken"]
    assert "out of its folder" in left["skills/water/outside"]
    assert "pipe" in left["skills/pipe"]
    assert "UTF-8" in left["config.yaml"]
    assert (home / "plugins/linked").is_symlink()
    assert (home / "memories/USER.md").read_bytes() == b"Name: \xff\xfe\n"
    assert "long ago" in hermes("sessions", "show", "old", "--json").stdout
    assert "longer ago" in hermes("sessions", "show", "older", "--json").stdout


def test_folders_and_a_database_that_are_links_out_of_the_home_are_followed(
    hermes: Hermes, home: Path, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "dotfiles").mkdir()
    for name in ("skills", "state.db", "config.yaml"):
        (source / name).rename(tmp_path / "dotfiles" / name)
        (source / name).symlink_to(tmp_path / "dotfiles" / name)
    report = hermes("import", "upstream", source, "--json").json
    assert find_lost(source, home, report) == []
    assert (home / "skills/water/SKILL.md").exists() and not (home / "skills").is_symlink()
    assert len(hermes("sessions", "list", "--all", "--json").json) == 5
    assert hermes("config", "get", "agent.max_turns").stdout.strip() == "41"


def test_data_that_the_code_of_a_plugin_names_is_imported_with_it(hermes: Hermes, home: Path, source: Path) -> None:
    (source / "plugins/garden/__init__.py").write_text('FILE = HOME / "garden-data" / "plants.json"\n')
    (source / "garden-data").mkdir()
    (source / "garden-data/plants.json").write_text("[1]")
    report = hermes("import", "upstream", source, "--json").json
    assert (home / "garden-data/plants.json").read_text() == "[1]"
    left = {item["source"] for item in report["items"] if item["outcome"] == "not imported"}
    assert "mysterious" in left and not (home / "mysterious").exists()


def test_a_database_with_a_log_and_a_lock_is_read_without_a_trace(hermes: Hermes, home: Path, source: Path) -> None:
    writer = sqlite3.connect(source / "state.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute(
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('20250102_030405_branch', 'user', 'wal', 1)"
    )
    writer.execute("COMMIT")
    writer.execute("BEGIN EXCLUSIVE")
    before = fingerprint(source)
    report = hermes("import", "upstream", source, "--json").json
    assert fingerprint(source) == before
    writer.execute("ROLLBACK")
    assert "wal" in hermes("sessions", "show", "20250102_030405_branch", "--json").stdout
    assert find_lost(source, home, report) == []
    writer.close()


def test_a_damaged_database_is_named_and_the_rest_is_imported(hermes: Hermes, home: Path, source: Path) -> None:
    data = bytearray((source / "state.db").read_bytes())
    data[4096:] = b"\xaa" * (len(data) - 4096)
    (source / "state.db").write_bytes(data)
    report = hermes("import", "upstream", source, "--json").json
    assert any(item["kind"] == "sessions" and "cannot be read" in item["reason"] for item in report["items"])
    assert (home / "skills/water/SKILL.md").exists() and find_lost(source, home, report) == []


def test_profiles_are_imported_as_profiles(hermes: Hermes, home: Path, source: Path, tmp_path: Path) -> None:
    build_home(VERSIONS[0], tmp_path / "old").rename(source / "profiles-work")
    (source / "profiles").mkdir()
    (source / "profiles-work").rename(source / "profiles/work")
    report = hermes("import", "upstream", source, "--json").json
    assert find_lost(source, home, report) == []
    assert (home / "profiles/work/skills/water/SKILL.md").exists()
    assert len(hermes("-p", "work", "sessions", "list", "--all", "--json").json) == 5


def test_old_sessions_are_not_removed_by_the_daemon(hermes: Hermes, home: Path, source: Path) -> None:
    with contextlib.closing(sqlite3.connect(source / "state.db")) as db, db:
        db.execute("UPDATE messages SET timestamp = 1600000000")
        db.execute("UPDATE sessions SET started_at = 1600000000")
    report = hermes("import", "upstream", source, "--json").json
    assert [item["reason"] for item in report["items"] if item["name"] == "sessions.retention_days"]
    hermes("state", "expire")
    assert len(hermes("sessions", "list", "--all", "--json").json) == 5


def test_an_import_that_fails_its_check_is_undone(home: Path, source: Path) -> None:
    def damaging(text: str) -> None:
        if text == "checking the copy":
            (home / "skills/water/SKILL.md").write_text("damaged")

    with pytest.raises(UserError, match=r"undone.*skills/water is not as it was copied"):
        run_import(ImportOptions("upstream", source, home, progress=damaging))
    assert [one.state for one in list_journals(home)] == ["undone"]
    assert not (home / "plugins/garden").exists() and not (home / "config.yaml").exists()
