"""The store of jobs and their runs in `state.db`, and the import of upstream's jobs.

All methods are synchronous: the daemon calls them in one thread, a command of the terminal directly. Jobs of
`HOME/cron/jobs.json` are imported once; the file stays unchanged. Source: plugin contract §12.1.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.cron.jobs import SPEC_FIELDS, Job, JobOutcome, JobRun, edit_job
from hermes_agent.cron.schedule import Schedule
from hermes_agent.store import Database, Schema
from hermes_agent.system.files import write_atomic

SCHEMA = Schema(
    "cron",
    (
        """
        CREATE TABLE cron_jobs (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            principal TEXT NOT NULL,
            spec TEXT NOT NULL,
            enabled INTEGER NOT NULL,
            next_run REAL,
            asked REAL,
            last_run REAL,
            last_status TEXT NOT NULL DEFAULT '',
            last_error TEXT NOT NULL DEFAULT '',
            completed INTEGER NOT NULL DEFAULT 0,
            created REAL NOT NULL
        );
        CREATE INDEX cron_jobs_due ON cron_jobs (next_run) WHERE enabled AND next_run IS NOT NULL;
        CREATE TABLE cron_runs (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            job TEXT NOT NULL REFERENCES cron_jobs (id) ON DELETE CASCADE,
            due REAL NOT NULL,
            started REAL NOT NULL,
            ended REAL,
            status TEXT NOT NULL DEFAULT 'running',
            session TEXT NOT NULL DEFAULT '',
            output TEXT NOT NULL DEFAULT ''
        );
        CREATE UNIQUE INDEX cron_runs_one ON cron_runs (job) WHERE ended IS NULL;
        CREATE INDEX cron_runs_of_job ON cron_runs (job, id DESC);
        """,
    ),
)
COLUMNS = "id, name, principal, spec, enabled, next_run, last_run, last_status, last_error, completed, created"
NOT_RUNNING = "id NOT IN (SELECT job FROM cron_runs WHERE ended IS NULL)"
MAX_OUTPUT = 200_000
INTERRUPTED = "the agent was stopped during the run; what it did until then stays"


def outputs_of(home: Path) -> Path:
    """Return the folder for copies of the outputs, which are written if a plugin has made it."""
    return home / "cron" / "output"


def write_output(place: Path, job: Job, outcome: JobOutcome, now: float, keep: int) -> None:
    """Write an output as a file where upstream's plugins look for it; the newest `keep` of a job stay.

    A failure is logged: the output itself is stored already.
    """
    folder = place / job.id
    at = datetime.fromtimestamp(now)
    head = f"# Cron Job: {job.name}\n\n**Job ID:** {job.id}\n**Run Time:** {at:%Y-%m-%d %H:%M:%S}\n"
    prompt = "" if job.no_agent else f"## Prompt\n\n{job.prompt}\n\n"
    title = "Response" if outcome.status in ("ok", "silent") else "Error"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        text = f"{head}**Schedule:** {job.schedule.text}\n\n{prompt}## {title}\n\n{outcome.text[:MAX_OUTPUT]}\n"
        write_atomic(folder / f"{at:%Y-%m-%d_%H-%M-%S}.md", text.encode())
        for old in sorted(folder.glob("*.md"))[:-keep]:
            old.unlink()
    except OSError as exc:
        logger.warning("the output of job %s was not copied to %s: %s", job.id, folder, exc)


class JobStore:
    """The jobs of one home."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path, (SCHEMA,))
        self._outputs = outputs_of(path.parent)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def jobs(self, principals: Sequence[str] | None = None) -> list[Job]:
        """Return the jobs, ordered by their next run. `principals`: only their jobs; None takes all."""
        rows = self._db.read(f"SELECT {COLUMNS} FROM cron_jobs ORDER BY next_run IS NULL, next_run, created")
        return [_job_of_row(row) for row in rows if principals is None or row["principal"] in principals]

    def find(self, wanted: str, principals: Sequence[str] | None = None) -> Job:
        """Return the job with an id, a beginning of an id, or a name.

        Raises:
            UserError: no job fits, or more than one.
        """
        jobs = self.jobs(principals)
        for match in (
            [j for j in jobs if j.id == wanted],
            [j for j in jobs if j.name == wanted],
            [j for j in jobs if wanted and j.id.startswith(wanted)],
        ):
            if len(match) == 1:
                return match[0]
            if match:
                ids = ", ".join(j.id for j in match)
                raise UserError(f"{wanted!r} fits more than one job: {ids}", hint="Give the id.")
        raise UserError(f"there is no job {wanted!r}", hint="`hermes cron list` shows what there is.")

    def put(self, job: Job) -> Job:
        """Add a job, which gets an id, or change the job with its id; the results of its runs stay.

        Known secrets are masked.
        """
        job = replace(job, name=redactor.mask_known(job.name), prompt=redactor.mask_known(job.prompt))
        job = job if job.id else replace(job, id=secrets.token_hex(6))
        with self._db.write() as db:
            db.execute(
                "INSERT INTO cron_jobs (id, name, principal, spec, enabled, next_run, created) VALUES (?,?,?,?,?,?,?)"
                " ON CONFLICT (id) DO UPDATE SET name = excluded.name, spec = excluded.spec,"
                " enabled = excluded.enabled, next_run = excluded.next_run",
                (
                    job.id,
                    job.name,
                    job.principal,
                    json.dumps(job.spec(), ensure_ascii=False),
                    job.enabled,
                    job.next_run,
                    job.created,
                ),
            )
        return job

    def remove(self, job_id: str) -> None:
        """Remove a job and its runs."""
        with self._db.write() as db:
            db.execute("DELETE FROM cron_jobs WHERE id = ?", (job_id,))

    # -- runs ----------------------------------------------------------------------------------------------------

    def end_interrupted(self, now: float) -> list[JobRun]:
        """End the runs that a previous process left unfinished, and return them."""
        rows = self._db.read("SELECT id, job, due FROM cron_runs WHERE ended IS NULL")
        runs = [JobRun(row[0], self.find(row[1]), row[2]) for row in rows]
        for run in runs:
            self.finish(run, JobOutcome("interrupted", INTERRUPTED), now)
        return runs

    def next_due(self) -> float | None:
        """Return the time of the next job that is due and does not run, or None."""
        rows = self._db.read(
            "SELECT min(CASE WHEN asked IS NOT NULL THEN asked ELSE next_run END) FROM cron_jobs"
            f" WHERE (asked IS NOT NULL OR (enabled AND next_run IS NOT NULL)) AND {NOT_RUNNING}"
        )
        return None if rows[0][0] is None else float(rows[0][0])

    def request_run(self, job_id: str, now: float) -> None:
        """Have the daemon run a job once, soon; its schedule stays."""
        with self._db.write() as db:
            db.execute("UPDATE cron_jobs SET asked = ? WHERE id = ?", (now, job_id))

    def claim_due(self, now: float, limit: int) -> list[JobRun]:
        """Start the due jobs that do not run, at most `limit`, and set their next time.

        A job that was due several times while the daemon was stopped runs once.
        """
        rows = self._db.read(
            f"SELECT {COLUMNS}, asked FROM cron_jobs"
            f" WHERE (asked IS NOT NULL OR (enabled AND next_run <= ?)) AND {NOT_RUNNING}"
            " ORDER BY coalesce(asked, next_run) LIMIT ?",
            (now, max(limit, 0)),
        )
        claims = [self.claim(_job_of_row(row), now, is_requested=row["asked"] is not None) for row in rows]
        return [run for run in claims if run is not None]

    def claim(self, job: Job, now: float, *, is_requested: bool = False) -> JobRun | None:
        """Start a run; return None if the job runs already, or another process was first.

        Args:
            is_requested: `request_run` asked for the run, so the schedule stays.
        """
        due = now if is_requested or job.next_run is None else job.next_run
        with self._db.write() as db:
            if is_requested:
                db.execute("UPDATE cron_jobs SET asked = NULL WHERE id = ?", (job.id,))
            else:
                cursor = db.execute(
                    f"UPDATE cron_jobs SET next_run = ? WHERE id = ? AND enabled AND next_run = ? AND {NOT_RUNNING}",
                    (job.schedule.following(due, now), job.id, job.next_run),
                )
                if not cursor.rowcount:
                    return None
            try:
                cursor = db.execute("INSERT INTO cron_runs (job, due, started) VALUES (?, ?, ?)", (job.id, due, now))
            except sqlite3.IntegrityError:  # it runs, or was removed
                return None
            return JobRun(int(cursor.lastrowid or 0), job, due, max(now - due, 0.0), is_requested)

    def finish(self, run: JobRun, outcome: JobOutcome, now: float, *, keep: int = 50) -> None:
        """Store the outcome of a run. A job with its full number of runs becomes inactive.

        Args:
            keep: outputs kept of each job (`cron.output_retention`).
        """
        failed = outcome.status in ("error", "interrupted")
        with self._db.write() as db:
            db.execute(
                "UPDATE cron_runs SET ended = ?, status = ?, session = ?, output = ? WHERE id = ? AND ended IS NULL",
                (now, outcome.status, outcome.session_id, outcome.text[:MAX_OUTPUT], run.id),
            )
            db.execute(
                "UPDATE cron_jobs SET last_run = ?, last_status = ?, last_error = ?, completed = completed + 1"
                " WHERE id = ?",
                (now, outcome.status, outcome.text[:2_000] if failed else "", run.job.id),
            )
            db.execute(
                "UPDATE cron_jobs SET enabled = 0, next_run = NULL WHERE id = ?"
                " AND (next_run IS NULL OR completed >= coalesce(?, completed + 1))",
                (run.job.id, run.job.times),
            )
            db.execute(
                "DELETE FROM cron_runs WHERE job = ? AND ended IS NOT NULL AND id <= ("
                " SELECT id FROM cron_runs WHERE job = ? AND ended IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (run.job.id, run.job.id, keep),
            )
        if self._outputs.is_dir():
            write_output(self._outputs, run.job, outcome, now, keep)

    def runs(self, job_id: str, limit: int = 10) -> list[dict[str, Any]]:
        """Return the last runs as rows of `cron_runs`, newest first."""
        rows = self._db.read(
            "SELECT id, due, started, ended, status, session, output FROM cron_runs WHERE job = ?"
            " ORDER BY id DESC LIMIT ?",
            (job_id, limit),
        )
        return [dict(row) for row in rows]

    def last_output(self, job_id: str) -> str:
        """Return the output of the last successful run, or ""."""
        rows = self._db.read(
            "SELECT output FROM cron_runs WHERE job = ? AND status = 'ok' ORDER BY id DESC LIMIT 1", (job_id,)
        )
        return str(rows[0][0]) if rows else ""

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def _job_of_row(row: sqlite3.Row) -> Job:
    spec = {name: value for name, value in json.loads(row["spec"]).items() if name in SPEC_FIELDS}
    spec["schedule"] = Schedule(*spec["schedule"])
    for name in ("skills", "context_from", "toolsets"):
        spec[name] = None if spec.get(name) is None else tuple(spec[name])
    plain = {name: row[name] for name in row.keys() if name not in ("spec", "asked")}  # noqa: SIM118 - a Row yields values
    return Job(**{**plain, "enabled": bool(row["enabled"])}, **spec)


logger = logging.getLogger(__name__)

DONE_MARK = "jobs.imported"
"""File next to `jobs.json` after its import."""


def with_published_jobs(store: JobStore, home: Path) -> JobStore:
    """Return the store after the import of upstream's jobs."""
    import_jobs(store, home, time.time())
    return store


def import_jobs(store: JobStore, home: Path, now: float) -> list[Job]:
    """Import the jobs of `cron/jobs.json` once, and return them.

    An invalid job is left out and logged.
    """
    place, done = home / "cron" / "jobs.json", home / "cron" / DONE_MARK
    if done.exists() or not place.is_file():
        return []
    try:
        value = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        logger.warning("%s: not imported: %s", place, exc)
        return []
    entries = value.get("jobs", []) if isinstance(value, dict) else value
    found: list[Job] = []
    for entry in entries if isinstance(entries, list) else []:
        try:
            others = {job.id: job for job in store.jobs()}
            if not isinstance(entry, dict) or entry.get("id") in others:
                continue
            found.append(store.put(published_job(entry, home, now, others)))
        except (UserError, TypeError, ValueError) as exc:
            logger.warning("job %r of %s: not imported: %s", entry.get("name") or entry.get("id"), place, exc)
    write_atomic(done, f"{len(found)} jobs, {datetime.fromtimestamp(now).isoformat(timespec='seconds')}\n")
    if found:
        logger.info("jobs imported from %s: %s", place, ", ".join(job.name for job in found))
    return found


def published_job(entry: Mapping[str, Any], home: Path, now: float, others: Mapping[str, Job]) -> Job:
    """Return a job of upstream as a job of this program.

    Args:
        entry: the job as `cron/jobs.json` has it.
        home: the home with the scripts.
        others: the other jobs by id.

    Raises:
        UserError: it cannot run here; the text says why. `TypeError` and `ValueError` mean that it is malformed.
    """
    repeat = entry.get("repeat")
    times = repeat.get("times") if isinstance(repeat, dict) else repeat
    origin = entry.get("origin")
    if isinstance(origin, dict):
        origin = ":".join(str(origin[k]) for k in ("platform", "chat_id", "thread_id") if origin.get(k))
    skills = entry.get("skills") or ([entry["skill"]] if entry.get("skill") else None)
    fields = {name: entry.get(name) for name in ("name", "prompt", "model", "script", "workdir", "enabled_toolsets")}
    fields |= {"no_agent": entry.get("no_agent"), "deliver": entry.get("deliver"), "skills": skills}
    fields |= {"context_from": entry.get("context_from"), "repeat": times, "schedule": _schedule_text(entry)}
    job = Job(str(entry.get("id") or ""), "", Schedule("once", ""), origin=str(origin or ""), created=now)
    imported = edit_job(job, fields, home=home, now=now, others=others)
    paused = entry.get("enabled") is False or entry.get("state") == "paused"
    return replace(imported, enabled=imported.enabled and not paused)


def _schedule_text(entry: Mapping[str, Any]) -> str:
    """Return a stored schedule in the form that users write."""
    value = entry.get("schedule")
    if not isinstance(value, dict):
        return str(value or "")
    match value.get("kind"):
        case "cron":
            return str(value.get("expr") or value.get("display") or "")
        case "interval":
            return f"every {int(value['minutes'])}m" if value.get("minutes") else str(value.get("display") or "")
        case "once":
            return str(value.get("run_at") or value.get("display") or "")
    return str(value.get("display") or entry.get("schedule_display") or "")
