"""Make a home with the published program: run by an interpreter that has it, with HERMES_HOME set.

It calls what the program's own commands call, so that formats are those of its version. The argument is JSON:
`sessions`, `turns`: how many; `parts`: which parts besides sessions.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

CALL = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
PEOPLE = (("telegram", "4711", "ann"), ("discord", "99", "bob"), ("telegram", "5", "cleo"))


def main() -> None:
    """Make the parts that were asked for."""
    wanted = json.loads(sys.argv[1])
    if wanted.get("sessions"):
        make_sessions(wanted["sessions"], wanted.get("turns", 2))
    for part in wanted.get("parts", ()):
        {
            "memory": make_memory,
            "jobs": make_jobs,
            "users": make_users,
            "config": make_config,
            "plugin": make_plugin,
            "skill": make_skill,
            "rest": make_rest,
        }[part]()


def make_sessions(count: int, turns: int) -> None:
    """Make sessions of several people, with calls of tools, parts, a branch and a title."""
    import hermes_state

    db = hermes_state.SessionDB()
    for number in range(count):
        session = f"20250102_030405_{number:06x}"
        platform, user, _ = PEOPLE[number % len(PEOPLE)]
        if number % 2:
            db.create_session(session, "cli", model="vendor/model", system_prompt="You are kind.")
        else:
            db.create_session(session, platform, model="vendor/model", user_id=user)
        for turn in range(turns):
            db.append_message(session, "user", f"question {turn} of {number}: where is the tree? 나무 木 \U0001f333")
            db.append_message(session, "assistant", "", tool_calls=[CALL], reasoning="it may be outside")
            db.append_message(session, "tool", "tree.txt", tool_name="terminal", tool_call_id="c1")
            db.append_message(session, "user", [{"type": "text", "text": "and this?"}])
            db.append_message(session, "assistant", f"answer {turn}")
        if number == 1:
            db.set_session_title(session, "The tree")
    db.create_session(
        "20250102_030405_branch", "cli", parent_session_id="20250102_030405_000001" if count > 1 else None
    )
    db.append_message("20250102_030405_branch", "user", "from the branch")
    if hasattr(db, "archive_and_compact"):
        db.archive_and_compact("20250102_030405_000000", [{"role": "user", "content": "summary of before"}])
    close = getattr(db, "close", None)
    if close is not None and not os.environ.get("KEEP_WAL"):
        close()
    if os.environ.get("KEEP_WAL"):
        os._exit(0)  # as if the process was killed: the log stays beside the database


def make_memory() -> None:
    """Make notes."""
    from tools.memory_tool import MemoryStore

    store = MemoryStore()
    store.load_from_disk()
    store.add("memory", "The project is a garden.")
    store.add("memory", "Prefers short answers.")
    store.add("user", "Name: Ann")


def make_jobs() -> None:
    """Make a job of each kind, and a paused one."""
    from cron import jobs

    jobs.create_job("Say good morning", "0 9 * * *", name="morning")
    jobs.create_job("Look at the garden", "every 2h", name="garden")
    jobs.create_job("Once", "2099-01-01T10:00:00", name="once")
    origin = {"platform": "telegram", "chat_id": "4711"}
    paused = jobs.create_job("Weekly", "30 7 * * 1", name="weekly", deliver="telegram:4711", origin=origin)
    jobs.pause_job(paused["id"])


def make_users() -> None:
    """Approve users, and leave one pending."""
    from gateway.pairing import PairingStore

    store = PairingStore()
    for platform, user, name in PEOPLE[:2]:
        store.approve_code(platform, store.generate_code(platform, user, name))
    store.generate_code("telegram", "1234", "dan")


def make_config() -> None:
    """Write keys and settings as `hermes config` does."""
    from hermes_cli import config

    config.save_env_value("OPENROUTER_API_KEY", "sk-or-v1-0123456789abcdef0123456789abcdef")
    config.save_env_value("TELEGRAM_BOT_TOKEN", "1234567:AAE-secret_of_a_bot")
    values: dict[str, Any] = config.load_config()
    values["model"] = {"default": "anthropic/claude", "provider": "openrouter"}
    values.setdefault("agent", {})["max_turns"] = 41
    values["plugins"] = {"enabled": ["garden"]}
    values["telegram"] = {"require_mention": True}
    values["my_plugin_block"] = {"depth": 3}
    config.save_config(values)


def make_plugin() -> None:
    """Make a plugin, as a user does."""
    folder = home() / "plugins" / "garden"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: garden\nversion: 1.0.0\ndescription: a garden\n", encoding="utf-8")
    (folder / "__init__.py").write_text("def register(ctx):\n    pass\n", encoding="utf-8")


def make_skill() -> None:
    """Make a skill in a category, and one without."""
    for place in ("skills/gardening/prune", "skills/water"):
        folder = home() / place
        folder.mkdir(parents=True)
        name = folder.name
        text = f"---\nname: {name}\ndescription: how to {name}\n---\n\nDo it.\n"
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
    (home() / "skills/water/tool.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (home() / "skills/.bundled_manifest").write_text("water:abc\n", encoding="utf-8")


def make_rest() -> None:
    """Make hooks, scripts, files that are not imported, and a file that nothing knows."""
    for path, text in (
        ("hooks/greet/HOOK.yaml", "name: greet\nevents: [gateway:startup]\n"),
        ("hooks/greet/handler.py", "async def handle(event, context):\n    pass\n"),
        ("scripts/check.sh", "echo fine\n"),
        ("logs/agent.log", "a line\n"),
        ("cache/images/a.png", "x"),
        ("mysterious/data.bin", "?"),
        ("cron/output/abc/1.md", "said\n"),
        ("SOUL.md", "Be kind.\n"),
    ):
        place = home() / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def home() -> Path:
    """Return the home."""
    return Path(os.environ["HERMES_HOME"])


if __name__ == "__main__":
    main()
