"""OpenClaw's shared database (since 2026.6) and its scheduled jobs, which were in a file before.

Each version moved more into the database: first jobs, with a column for each field or as JSON, later the API keys of
all agents and the approved users of channels.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.content import HomeContent, JobEntry, PairedUser
from hermes_agent.cron.schedule import local_zone

_OWN_JOBS = ("heartbeat:", "memory-core:", "openclaw-", "skill-collection-review:")
"""Beginnings of the keys of jobs that OpenClaw declares for itself."""
_TABLES = {
    "channel_pairing_requests": "codes of pairings, which end within an hour",
    "mcp_oauth_stores": "sign in again with `hermes mcp login NAME`: a copied login ends with its renewal",
    "meeting_transcript_sessions": "transcripts of meetings; this program has none",
    "projects": "projects; this program has none",
    "secret_store_entries": "secrets of OpenClaw's own store: set those that you need in .env",
    "skill_workshop_proposals": "proposals for skills: decide them in OpenClaw, and import again",
    "user_profiles": "users of OpenClaw's own protocol",
}
"""Tables with content of users that are not imported, with the reason."""


def read_state(copy: Path, path: str, content: HomeContent) -> list[Any]:
    """Add jobs and approved users to the content, and return the stores of logins.

    Args:
        copy: the copy of the database.
        path: its path in the home.
    """
    stores: list[Any] = []
    content.leave("database", path, "devices, registries and states of the other program", path)
    known = {str(job.fields.get("id")) for job in content.jobs}
    try:
        with contextlib.closing(sqlite3.connect(copy)) as db:
            db.row_factory = sqlite3.Row
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for row in db.execute("SELECT * FROM cron_jobs") if "cron_jobs" in tables else ():
                if str(row["job_id"]) not in known:
                    add_job(content, _stored_job(dict(row)), path)
            if "channel_pairing_allow_entries" in tables:
                for channel, user in db.execute("SELECT channel_key, entry FROM channel_pairing_allow_entries"):
                    add_user(content, str(channel), str(user), path)
            if "config_machine_state" in tables:
                found = "SELECT value_json FROM config_machine_state WHERE state_key = 'authProfiles.store'"
                stores += [_parsed(row[0]) for row in db.execute(found)]
            for name in sorted(_TABLES.keys() & tables):
                if count := db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]:
                    content.leave("table", f"{path}: {name}", _TABLES[name], path, count)
    except (sqlite3.Error, IndexError) as exc:
        content.leave("database", path, f"it cannot be read any further: {exc}", path)
    return stores


def add_user(content: HomeContent, platform: str, user: str, path: str) -> None:
    """Add an approved user of a channel."""
    if user == "*":
        content.leave("paired user", f"{platform}: *", "it lets everyone in: decide it here", path)
    else:
        content.users.append(PairedUser(platform, user.removeprefix(f"{platform}:"), "", 0.0, path))


def add_job(content: HomeContent, job: Any, path: str) -> None:
    """Add a job in upstream's form."""
    if not isinstance(job, dict):
        content.leave("job", str(job)[:40], "it is no mapping", path)
        return
    payload, schedule, delivery = (_mapping(job.get(key)) for key in ("payload", "schedule", "delivery"))
    name = str(job.get("name") or job.get("id") or "?")
    if str(job.get("declarationKey") or "").startswith(_OWN_JOBS):
        content.leave("job", name, "a job that OpenClaw makes for itself", path)
        return
    prompt = payload.get("message") or payload.get("text")
    if not prompt:
        content.leave("job", name, f"it runs no model: {payload.get('kind') or 'no payload'}", path)
        return
    fields: dict[str, Any] = {"id": str(job.get("id") or job.get("jobId") or ""), "name": name, "prompt": prompt}
    match schedule.get("kind"):
        case "cron":
            fields["schedule"] = {"kind": "cron", "expr": schedule.get("expr")}
        case "every":
            fields["schedule"] = {"kind": "interval", "minutes": int(schedule.get("everyMs") or 0) // 60_000}
        case _:
            fields["schedule"] = {"kind": "once", "run_at": schedule.get("at")}
    fields["enabled"] = job.get("enabled") is not False
    zone = schedule.get("tz")
    if zone and str(local_zone()) != zone:
        fields["enabled"] = False
        reason = f"it is paused here: its times are those of {zone}; `hermes cron edit` sets them, then resume it"
        content.leave("job", f"{name}: time zone", reason, path)
    channel, to = delivery.get("channel"), delivery.get("to")
    if delivery.get("mode") != "webhook" and channel and channel != "last" and to:
        chat = str(to).removeprefix(f"{channel}:").removeprefix("group:").removeprefix("channel:")
        fields["deliver"] = f"{channel}:{chat.replace(':topic:', ':')}"
    elif delivery and delivery.get("mode") != "none":
        reason = "the answer is stored here only: `hermes cron edit --deliver` names a chat"
        content.leave("job", f"{name}: delivery", reason, path)
    content.jobs.append(JobEntry(fields, path))


def _stored_job(row: Mapping[str, Any]) -> Any:
    """Return a row of `cron_jobs` in the form of `jobs.json`."""
    if text := row.get("job_json"):
        job = _parsed(text)
        return job | {"enabled": bool(row.get("enabled", 1))} if isinstance(job, dict) else text
    return {
        "id": row.get("job_id"),
        "name": row.get("name"),
        "enabled": bool(row.get("enabled", 1)),
        "schedule": {
            "kind": row.get("schedule_kind"),
            "expr": row.get("schedule_expr"),
            "tz": row.get("schedule_tz"),
            "everyMs": row.get("every_ms"),
            "at": row.get("at"),
        },
        "payload": {"kind": row.get("payload_kind"), "message": row.get("payload_message")},
        "delivery": {
            "mode": row.get("delivery_mode"),
            "channel": row.get("delivery_channel"),
            "to": row.get("delivery_to"),
        },
    }


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
