"""`hermes import openclaw`: the documented layout of OpenClaw's home, files and SQLite databases alike."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compat.homes.survey import fingerprint, is_folder
from hermes_agent.app.imports.openclaw_config import parse_json5
from hermes_agent.app.main import main

CONFIG = """{
  // the model
  agents: { defaults: { model: { primary: "anthropic/claude-opus", fallbacks: ["google/gemini-pro"] },
                        workspace: "~/.openclaw/workspace", }, },
  "channels": { "telegram": { "enabled": true, "botToken": "123:secret-of-telegram",
      "allowFrom": ["telegram:4711", "*"], "groups": { "*": { "requireMention": true } }, "dmPolicy": "pairing" },
    "discord": { "token": { "source": "env", "id": "DISCORD" } },
    "whatsapp": { "enabled": true } },
  "models": { "providers": { "corner": { "baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-corner-secret",
      "api": "openai-completions", "models": [{ "id": "small" }] } } },
  "mcp": { "servers": { "files": { "command": "npx", "args": ["files"], "env": { "A": "b" } } } },
  "env": { "vars": { "GROQ_API_KEY": "gsk-secret" } },
  "gateway": { "port": 18789 }, /* not here */
}
"""
MAIN, CHAT, STORED = "11111111-aaaa", "22222222-bbbb", "33333333-cccc"


def entry(name: str, parent: str, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, "timestamp": 1780000000000, **more}
    return {
        "type": "message",
        "id": name,
        "parentId": parent,
        "timestamp": "2026-05-28T10:00:00.000Z",
        "message": message,
    }


def text(value: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value}]


def header(session: str) -> dict[str, Any]:
    return {"type": "session", "version": 3, "id": session, "timestamp": "2026-05-28T09:59:00.000Z", "cwd": "/w"}


TALK = [
    header(MAIN),
    {"type": "model_change", "id": "m0", "parentId": None, "provider": "anthropic", "modelId": "claude-opus"},
    entry("a1", "m0", "user", text("where is the tree?")),
    entry("x9", "a1", "assistant", text("an answer that was given up")),
    entry(
        "a2",
        "a1",
        "assistant",
        [
            {"type": "thinking", "thinking": "hm"},
            *text("I look."),
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "tree.txt"}},
        ],
    ),
    entry("a3", "a2", "toolResult", text("outside"), toolCallId="c1", toolName="read"),
    entry("a4", "a3", "assistant", text("It is outside.")),
    {"type": "compaction", "id": "k1", "parentId": "a4", "summary": "a tree outside", "firstKeptEntryId": "a4"},
    entry("a5", "k1", "user", [*text("and this?"), {"type": "image", "data": "aGk=", "mimeType": "image/png"}]),
]


class Done(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@pytest.fixture
def hermes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "Europe/Paris")
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> Done:
        status = main([str(word) for word in words])
        return Done(status, *capfd.readouterr())

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A home with parts of every layout that OpenClaw had."""
    root = tmp_path / ".openclaw"
    lines = [*map(json.dumps, TALK), "no json"]
    jobs = {
        "version": 1,
        "jobs": [
            {
                "id": "j1",
                "name": "brief",
                "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Paris"},
                "payload": {"kind": "agentTurn", "message": "Summarise the night."},
                "delivery": {"mode": "announce", "channel": "telegram", "to": "-100:topic:7"},
            },
            {
                "id": "j2",
                "name": "far",
                "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Asia/Tokyo"},
                "payload": {"kind": "agentTurn", "message": "Far away."},
            },
            {
                "id": "j3",
                "name": "shell",
                "schedule": {"kind": "every", "everyMs": 60000},
                "payload": {"kind": "command"},
            },
        ],
    }
    store = {
        "agent:main:main": {"sessionId": MAIN, "updatedAt": 1780000000000, "displayName": "The tree", "inputTokens": 5},
        "agent:main:telegram:direct:4711": {"sessionId": CHAT},
    }
    profiles = {
        "anthropic:default": {"type": "api_key", "provider": "anthropic", "key": "sk-ant-secret"},
        "openai:me": {"type": "oauth", "provider": "openai", "access": "oauth-secret"},
    }
    skill = "---\nname: {0}\ndescription: {0}\n---\nDo.\n"
    for path, content in {
        "openclaw.json": CONFIG,
        "openclaw.json.bak": "{}",
        ".env": "TAVILY_API_KEY=tvly-secret\n",
        "workspace/MEMORY.md": "# Facts\n\nThe tree is outside.\n",
        "workspace/USER.md": "Ann\n",
        "workspace/SOUL.md": "Be kind.\n",
        "workspace/AGENTS.md": "Rules.\n",
        "workspace/memory/2026-05-28.md": "We talked about trees.\n",
        "workspace/skills/prune/SKILL.md": skill.format("prune"),
        "workspace-ops/MEMORY.md": "ops\n",
        "skills/water/SKILL.md": skill.format("water"),
        f"agents/main/sessions/{MAIN}.jsonl": "\n".join(lines) + "\n",
        f"agents/main/sessions/{CHAT}.jsonl": "\n".join(
            map(json.dumps, [header(CHAT), entry("b1", "", "user", "hello from the chat")])
        ),
        "agents/main/sessions/gone.jsonl.deleted.2026": "{}",
        "agents/main/sessions/sessions.json": json.dumps(store),
        "agents/main/agent/auth-profiles.json": json.dumps({"version": 1, "profiles": profiles}),
        "agents/main/agent/models.json": "{}",
        "credentials/telegram-default-allowFrom.json": json.dumps({"version": 1, "allowFrom": ["4711", "815"]}),
        "credentials/telegram-pairing.json": "{}",
        "credentials/whatsapp/default/creds.json": "{}",
        "cron/jobs.json": json.dumps(jobs),
        "cron/runs/j1.jsonl": "{}",
        "extensions/voice/index.ts": "export {}",
        "unheard-of.bin": "?",
    }.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, encoding="utf-8")
    with contextlib.closing(sqlite3.connect(root / "agents/main/agent/openclaw-agent.sqlite")) as db, db:
        db.execute("CREATE TABLE session_windows (session_id TEXT PRIMARY KEY, session_key TEXT NOT NULL)")
        db.execute(
            "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, event_zstd BLOB,"
            " created_at INTEGER, PRIMARY KEY (session_id, seq))"
        )
        db.execute("INSERT INTO session_windows VALUES (?, 'agent:main:discord:channel:99')", (STORED,))
        for number, one in enumerate([entry("d1", "h", "user", text("from the database")), header(STORED)]):
            db.execute("INSERT INTO transcript_events VALUES (?, ?, ?, NULL, 0)", (STORED, 1 - number, json.dumps(one)))
        db.execute("INSERT INTO transcript_events VALUES (?, 2, NULL, x'28', 0)", (STORED,))
    (root / "state").mkdir()
    with contextlib.closing(sqlite3.connect(root / "state/openclaw.sqlite")) as db, db:
        names = (
            "store_key, job_id, name, enabled, schedule_kind, schedule_expr, schedule_tz, every_ms, at, payload_kind,"
            " payload_message, delivery_mode, delivery_channel, delivery_to"
        )
        db.execute(f"CREATE TABLE cron_jobs ({names})")
        row = ("s", "j9", "stored", 1, "every", None, None, 7200000, None, "agentTurn", "Look.", "none", None, None)
        db.execute(f"INSERT INTO cron_jobs VALUES ({', '.join('?' * len(row))})", row)
    return root


def test_a_home_of_openclaw_is_imported_without_a_loss_and_stays_as_it_is(
    hermes: Callable[..., Done], source: Path
) -> None:
    before = fingerprint(source)
    done = hermes("import", "openclaw", source, "--json")
    assert done.status == 0, done.stderr
    assert fingerprint(source) == before
    named = {item["source"] for item in done.json["items"]}
    files = [str(place.relative_to(source)) for place in source.rglob("*") if not is_folder(place)]
    assert [one for one in files if not any(one == name or one.startswith(f"{name}/") for name in named)] == []
    said = done.stdout + done.stderr + "".join(hermes("import", "show", "--all")[1:])
    secrets = (
        "123:secret-of-telegram",
        "sk-corner-secret",
        "gsk-secret",
        "tvly-secret",
        "sk-ant-secret",
        "oauth-secret",
    )
    assert [secret for secret in secrets if secret in said] == []
    again = hermes("import", "openclaw", source, "--json").json
    assert [item for item in again["items"] if item["outcome"] in ("new", "conflict")] == []
    assert hermes("import", "undo").status == 0
    assert hermes("sessions", "list", "--all", "--json").json == []


def test_sessions_of_files_and_of_the_database_are_whole(
    hermes: Callable[..., Done], source: Path, tmp_path: Path
) -> None:
    report = hermes("import", "openclaw", source, "--json").json
    shown = hermes("sessions", "show", MAIN, "--json").json
    assert (shown["title"], shown["model"], shown["principal"]) == ("The tree", "claude-opus", "local")
    assert [one["role"] for one in shown["messages"]] == ["user", "assistant", "tool", "assistant", "user", "user"]
    call = shown["messages"][1]["tool_calls"][0]
    assert (call["id"], json.loads(call["function"]["arguments"])) == ("c1", {"path": "tree.txt"})
    assert shown["messages"][-1]["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="
    from hermes_agent.sessions import Transcript

    with contextlib.closing(Transcript(tmp_path / "home/state.db")) as transcript:
        texts = [message.text for message in transcript.history(MAIN)]
    assert texts == ["It is outside.", "Summary of the conversation before:\na tree outside", "and this?"]
    people = {one["id"]: one["principal"] for one in hermes("sessions", "list", "--all", "--json").json}
    assert people == {MAIN: "local", CHAT: "telegram:4711", STORED: "discord:99"}
    left = {
        (item["name"], item["reason"].split(" ")[0]) for item in report["items"] if item["outcome"] == "not imported"
    }
    assert {(MAIN, "they"), (MAIN, "lines"), (STORED, "they")} <= left


def test_settings_keys_and_users_have_their_place_here(
    hermes: Callable[..., Done], source: Path, tmp_path: Path
) -> None:
    report = hermes("import", "openclaw", source, "--json").json
    assert hermes("config", "get", "model", "--json").json["provider"] == "anthropic"
    assert hermes("config", "get", "model.default").stdout.strip() == "claude-opus"
    assert hermes("config", "get", "fallback_providers", "--json").json == [
        {"provider": "gemini", "model": "gemini-pro"}
    ]
    assert hermes("config", "get", "providers.corner.transport").stdout.strip() == "chat_completions"
    assert hermes("config", "get", "platforms.telegram.require_mention").stdout.strip() == "true"
    assert hermes("config", "get", "mcp_servers.files.command").stdout.strip() == "npx"
    assert hermes("config", "check").status == 0, hermes("config", "check").stdout
    env = (tmp_path / "home/.env").read_text()
    for name in ("TELEGRAM_BOT_TOKEN", "CORNER_API_KEY", "GROQ_API_KEY", "TAVILY_API_KEY"):
        assert f"{name}=" in env
    assert (tmp_path / "home/.env").stat().st_mode & 0o777 == 0o600
    left = {item["name"]: item["reason"] for item in report["items"] if item["outcome"] == "not imported"}
    assert "no setting" in left["gateway.port"] and "no setting" in left["channels.telegram.dmPolicy"]
    assert "refers to a secret" in left["channels.discord.token"]
    assert "everyone" in left["channels.telegram.allowFrom"]
    assert "sign in again" in left["openai:me"]
    assert "anthropic" in hermes("auth", "list").stdout
    listed = hermes("pairing", "list").stdout
    assert "4711" in listed and "815" in listed


def test_memory_skills_and_jobs_have_their_place_here(
    hermes: Callable[..., Done], source: Path, tmp_path: Path
) -> None:
    report = hermes("import", "openclaw", source, "--json").json
    home = tmp_path / "home"
    assert (home / "memories/MEMORY.md").read_text() == "# Facts\n\nThe tree is outside.\n"
    assert (home / "SOUL.md").read_text() == "Be kind.\n"
    assert (home / "workspace/memory/2026-05-28.md").exists() and (home / "workspace/workspace-ops/MEMORY.md").exists()
    assert {"prune", "water"} <= {one["name"] for one in hermes("skills", "list", "--json").json}
    jobs = {job["name"]: (job["enabled"], job["deliver"]) for job in hermes("cron", "list", "--json").json}
    assert jobs == {"brief": (True, "telegram:-100:7"), "far": (False, "local"), "stored": (True, "local")}
    left = {item["name"]: item["reason"] for item in report["items"] if item["outcome"] == "not imported"}
    assert "runs no model" in left["shell"] and "Asia/Tokyo" in left["far: time zone"]


def test_a_config_with_comments_and_one_that_cannot_be_read(hermes: Callable[..., Done], source: Path) -> None:
    assert parse_json5("{a: 'it // is', /* x */ \"b\": [1, 2,],}") == {"a": "it // is", "b": [1, 2]}
    (source / "openclaw.json").write_text("{ broken")
    report = hermes("import", "openclaw", source, "--json").json
    assert any(item["source"] == "openclaw.json" and "cannot be read" in item["reason"] for item in report["items"])
    assert hermes("sessions", "show", MAIN).status == 0


def test_the_newest_databases_have_jobs_keys_users_and_titles(
    hermes: Callable[..., Done], source: Path, tmp_path: Path
) -> None:
    agent, shared = source / "agents/main/agent/openclaw-agent.sqlite", source / "state/openclaw.sqlite"
    (source / "cron/jobs.json").unlink()
    with contextlib.closing(sqlite3.connect(agent)) as db, db:
        db.execute("CREATE TABLE session_nodes (session_key TEXT, current_session_id TEXT, entry_json TEXT)")
        node = json.dumps({"sessionId": STORED, "label": "Stored talk"})
        db.execute("INSERT INTO session_nodes VALUES ('agent:main:discord:channel:99', ?, ?)", (STORED, node))
        db.execute("CREATE TABLE session_transcript_archives (session_id TEXT, archive_blob BLOB)")
        db.execute("INSERT INTO session_transcript_archives VALUES ('gone-long-ago', x'28')")
        db.execute("CREATE TABLE standing_intents (description TEXT)")
        db.execute("INSERT INTO standing_intents VALUES ('Warn of frost')")
    with contextlib.closing(sqlite3.connect(shared)) as db, db:
        db.execute("DROP TABLE cron_jobs")
        db.execute("CREATE TABLE cron_jobs (job_id TEXT, enabled INTEGER, job_json TEXT)")
        turn = {"kind": "agentTurn", "message": "Look."}
        brief = {"id": "j1", "name": "brief", "schedule": {"kind": "cron", "expr": "0 7 * * *"}, "payload": turn}
        own = {**brief, "id": "j2", "name": "review", "declarationKey": "skill-collection-review:main"}
        for job in (brief, own, "damaged"):
            db.execute("INSERT INTO cron_jobs VALUES (?, 0, ?)", (str(job)[:9], json.dumps(job)))
        db.execute("CREATE TABLE channel_pairing_allow_entries (channel_key TEXT, entry TEXT)")
        for user in ("telegram:42", "*"):
            db.execute("INSERT INTO channel_pairing_allow_entries VALUES ('telegram', ?)", (user,))
        db.execute("CREATE TABLE config_machine_state (state_key TEXT, value_json TEXT)")
        store = {"profiles": {"groq:manual": {"provider": "groq", "key": "gsk-of-the-database"}}}
        db.execute("INSERT INTO config_machine_state VALUES ('authProfiles.store', ?)", (json.dumps(store),))
        db.execute("CREATE TABLE secret_store_entries (name TEXT, value TEXT)")
        db.execute("INSERT INTO secret_store_entries VALUES ('MAPS', 'secret-of-maps')")
    done = hermes("import", "openclaw", source, "--json")
    assert done.status == 0 and "gsk-of-the-database" not in done.stdout and "secret-of-maps" not in done.stdout
    jobs = {job["name"]: job["enabled"] for job in hermes("cron", "list", "--json").json}
    assert jobs == {"brief": False}
    assert "groq" in hermes("auth", "list").stdout and "42" in hermes("pairing", "list").stdout
    titles = {one["id"]: one["title"] for one in hermes("sessions", "list", "--all", "--json").json}
    assert titles[STORED] == "Stored talk"
    left = {item["name"]: item["reason"] for item in done.json["items"] if item["outcome"] == "not imported"}
    assert "makes for itself" in left["review"] and "everyone" in left["telegram: *"]
    assert "compressed archive" in left["gone-long-ago"] and "remember" in left["Warn of frost"]
    assert "set those that you need" in left["state/openclaw.sqlite: secret_store_entries"]
    assert any("damaged" in name for name in left)
