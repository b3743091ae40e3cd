"""The steps of an import: how each is applied, checked and undone. Each may be repeated after a crash.

The stores of this program write what belongs to them; files are moved into their place.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.journal import STAGED, ImportJournal, put_in_place, remove_place
from hermes_agent.app.imports.source_tree import Progress, hash_place, ignore_progress
from hermes_agent.config import home_paths
from hermes_agent.config.dotenv import read_env_file, write_env_value
from hermes_agent.config.edit import set_value, unset_value
from hermes_agent.config.schema import MISSING, find_value
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.errors import ToolFailed, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.cron.job_store import JobStore, published_job
from hermes_agent.cron.jobs import Job
from hermes_agent.gateway.access import PairingStore
from hermes_agent.memory.notes import NoteChange, Notes
from hermes_agent.sessions import Transcript
from hermes_agent.sessions.imported_sessions import (
    ImportedSession,
    Removal,
    add_sessions,
    messages_digest,
    remove_sessions,
    stored_messages,
)
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.locks import hold_lock

Step = dict[str, Any]


class StepKind(LazyNamedTuple):
    """The functions of one kind of step. Texts that they return name what did not go as planned."""

    apply: Callable[[ImportJournal, Step], None]
    check: Callable[[ImportJournal, Step], list[str]]
    undo: Callable[[ImportJournal, Step], list[str]]


def digest_of(value: Any) -> str:
    """Return the hash of a JSON value, such as a secret that the journal must not hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


# --- files ---------------------------------------------------------------------------------------------------------


def _apply_files(journal: ImportJournal, step: Step) -> None:
    new = journal.folder / step["new"]
    if new.exists() or new.is_symlink():
        put_in_place(
            new, journal.home_of(step["profile"]) / step["target"], journal.folder / step["old"], step["replaces"]
        )


def _check_files(journal: ImportJournal, step: Step) -> list[str]:
    target = journal.home_of(step["profile"]) / step["target"]
    return [] if hash_place(target) == step["digest"] else [f"{target} is not as it was copied"]


def _undo_files(journal: ImportJournal, step: Step) -> list[str]:
    target, old = journal.home_of(step["profile"]) / step["target"], journal.folder / step["old"]
    present = hash_place(target)
    if present and present != step["digest"]:
        if present == step["replaces"]:
            return []
        return [f"{target} was changed since, and stays"]
    if present:
        remove_place(target)
    if old.exists() or old.is_symlink():
        old.rename(target)
    for folder in step["made"]:
        with contextlib.suppress(OSError):  # something else is in it
            Path(folder).rmdir()
    return []


# --- notes ---------------------------------------------------------------------------------------------------------


def _notes(journal: ImportJournal, step: Step) -> Notes:
    return Notes(journal.home_of(step["profile"]) / "memories", {step["file"]: step["limit"]})


def _apply_notes(journal: ImportJournal, step: Step) -> None:
    notes = _notes(journal, step)
    present = notes.entries(step["file"])
    new = [NoteChange("add", entry) for entry in step["entries"] if entry not in present]
    if new:
        notes.change(step["file"], new)


def _check_notes(journal: ImportJournal, step: Step) -> list[str]:
    present = _notes(journal, step).entries(step["file"])
    return [f"an entry of {step['file']} is missing" for entry in step["entries"] if entry not in present]


def _undo_notes(journal: ImportJournal, step: Step) -> list[str]:
    notes, kept = _notes(journal, step), []
    for entry in step["entries"]:
        if entry in notes.entries(step["file"]):
            try:
                notes.change(step["file"], [NoteChange("remove", old_text=entry)])
            except ToolFailed as exc:
                kept.append(f"an entry of {step['file']} stays: {exc}")
    return kept


# --- sessions ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _transcript(journal: ImportJournal, step: Step) -> Iterator[Transcript]:
    with contextlib.closing(Transcript(journal.home_of(step["profile"]) / "state.db")) as transcript:
        yield transcript


def staged_sessions(path: Path) -> Iterator[ImportedSession]:
    """Read the staged sessions one by one."""
    with path.open(encoding="utf-8") as file:
        yield from map(ImportedSession.from_json, file)


def _apply_sessions(journal: ImportJournal, step: Step) -> None:
    staged = journal.folder / step["new"]
    if staged.exists():
        with _transcript(journal, step) as transcript:
            add_sessions(transcript.database, staged_sessions(staged))


def _check_sessions(journal: ImportJournal, step: Step) -> list[str]:
    with _transcript(journal, step) as transcript:
        return [
            f"session {session_id} is not as it was copied"
            for session_id, digest, _ in step["sessions"]
            if messages_digest(stored_messages(transcript.database, session_id) or ()) != digest
        ]


def _undo_sessions(journal: ImportJournal, step: Step) -> list[str]:
    removals = [Removal(*row) for row in reversed(step["sessions"])]
    with _transcript(journal, step) as transcript:
        kept = remove_sessions(transcript.database, removals)
    return [f"session {session_id} was continued since, and stays" for session_id in kept]


# --- settings ------------------------------------------------------------------------------------------------------


def _apply_settings(journal: ImportJournal, step: Step) -> None:
    stage, home = journal.folder / step["new"], journal.home_of(step["profile"])
    there, here = home_paths(stage), home_paths(home)
    if step["config"] and there.editable.exists():
        _replace(here.editable, there.editable, step["config"], journal.folder / step["old"] / "config")
        document, present = read_file(there.editable), read_file(here.editable)
        for path in map(tuple, step["keys"]):  # the file was changed since it was staged
            if find_value(present.value, path) != (wanted := find_value(document.value, path)):
                set_value(home, path, wanted)
    if step["env"] and there.env.exists():
        _replace(here.env, there.env, step["env"], journal.folder / step["old"] / "env")
        values, variables = read_env_file(there.env), read_env_file(here.env)
        for name in step["variables"]:
            if variables.get(name) != values[name]:
                write_env_value(here.env, name, values[name])


def _replace(path: Path, staged: Path, hashes: list[str], old: Path) -> None:
    """Replace a file that did not change since it was staged; keep the previous one."""
    with hold_lock(path):
        if hash_place(path) == hashes[0]:
            if hashes[0]:
                old.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_atomic(old, path.read_bytes(), mode=PRIVATE)
            is_config = path.suffix == ".yaml" and path.exists()
            write_atomic(path, staged.read_bytes(), mode=None if is_config else PRIVATE)


def _check_settings(journal: ImportJournal, step: Step) -> list[str]:
    home = home_paths(journal.home_of(step["profile"]))
    config = read_file(home.editable).value
    wrong = [
        f"`{'.'.join(path)}` is not as it was copied"
        for path, digest in zip(step["keys"], step["key_digests"], strict=True)
        if digest_of(find_value(config, tuple(path))) != digest
    ]
    present = read_env_file(home.env) if step["variables"] else {}
    return wrong + [
        f"{name} is not as it was copied"
        for name, digest in zip(step["variables"], step["variable_digests"], strict=True)
        if digest_of(present.get(name)) != digest
    ]


def _undo_settings(journal: ImportJournal, step: Step) -> list[str]:
    home = journal.home_of(step["profile"])
    here, old = home_paths(home), journal.folder / step["old"]
    kept = []
    if step["config"] and not _restore(here.editable, step["config"], old / "config"):
        before = read_file(old / "config").value
        for path, digest in zip(map(tuple, step["keys"]), step["key_digests"], strict=True):
            present = find_value(read_file(here.editable).value, path)
            if present is MISSING:
                continue
            if digest_of(present) != digest:
                kept.append(f"`{'.'.join(path)}` was changed since, and stays")
            elif (previous := find_value(before, path)) is MISSING:
                unset_value(home, path)
            else:
                set_value(home, path, previous)
    if step["env"] and not _restore(here.env, step["env"], old / "env"):
        before_env = read_env_file(old / "env")
        for name, digest in zip(step["variables"], step["variable_digests"], strict=True):
            present_value = read_env_file(here.env).get(name)
            if present_value is not None and digest_of(present_value) == digest:
                write_env_value(here.env, name, before_env.get(name))
            elif present_value is not None:
                kept.append(f"{name} was changed since, and stays")
    return kept


def _restore(path: Path, hashes: list[str], old: Path) -> bool:
    """Put the previous file back if the present one is as the import left it; return whether it is done."""
    with hold_lock(path):
        present = hash_place(path)
        if present == hashes[0]:
            return True
        if present != hashes[1]:
            return False
        if old.exists():
            write_atomic(path, old.read_bytes(), mode=PRIVATE if path.suffix != ".yaml" else None)
        else:
            path.unlink()
        return True


# --- jobs, users, logins ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _jobs(journal: ImportJournal, step: Step) -> Iterator[tuple[JobStore, dict[str, Job]]]:
    with contextlib.closing(JobStore(journal.home_of(step["profile"]) / "state.db")) as store:
        yield store, {job.id: job for job in store.jobs()}


def _apply_job(journal: ImportJournal, step: Step) -> None:
    with _jobs(journal, step) as (store, others):
        if step["id"] not in others or step["previous"]:
            store.put(published_job(step["fields"], journal.home_of(step["profile"]), time.time(), others))


def _check_job(journal: ImportJournal, step: Step) -> list[str]:
    with _jobs(journal, step) as (_, present):
        found = present.get(step["id"])
        is_whole = found is not None and job_digest(found) == step["digest"]
        return [] if is_whole else [f"job {step['id']} is not as it was copied"]


def _undo_job(journal: ImportJournal, step: Step) -> list[str]:
    with _jobs(journal, step) as (store, present):
        found = present.get(step["id"])
        if found is None:
            return []
        if job_digest(found) != step["digest"]:
            return [f"job {found.name!r} was changed since, and stays"]
        if step["previous"]:
            store.put(published_job(step["previous"], journal.home_of(step["profile"]), time.time(), present))
        else:
            store.remove(found.id)
        return []


def job_digest(job: Job) -> str:
    """Return the hash of what a user sets of a job; a time of its next run is no part of it."""
    return digest_of([job.name, job.spec()])


def _apply_user(journal: ImportJournal, step: Step) -> None:
    store = PairingStore.of_home(journal.home_of(step["profile"]))
    store.approve(step["platform"], step["user_id"], step["user_name"], approved_at=step["approved_at"])


def _check_user(journal: ImportJournal, step: Step) -> list[str]:
    store = PairingStore.of_home(journal.home_of(step["profile"]))
    is_there = store.is_approved(step["platform"], step["user_id"])
    return [] if is_there else [f"{step['platform']} user {step['user_id']} is not allowed"]


def _undo_user(journal: ImportJournal, step: Step) -> list[str]:
    PairingStore.of_home(journal.home_of(step["profile"])).revoke(step["platform"], step["user_id"])
    return []


def _apply_login(journal: ImportJournal, step: Step) -> None:
    staged = LoginStore(journal.folder / step["new"]).get(step["provider"], step["label"])
    if staged is not None:
        LoginStore(journal.home_of(step["profile"]) / "auth.json").put(staged)


def _check_login(journal: ImportJournal, step: Step) -> list[str]:
    found = LoginStore(journal.home_of(step["profile"]) / "auth.json").get(step["provider"], step["label"])
    is_whole = found is not None and digest_of(found.access_token) == step["digest"]
    return [] if is_whole else [f"the key {step['label']!r} of {step['provider']} is not as it was copied"]


def _undo_login(journal: ImportJournal, step: Step) -> list[str]:
    if _check_login(journal, step):
        return []
    LoginStore(journal.home_of(step["profile"]) / "auth.json").remove(step["provider"], step["label"])
    return []


KINDS = {
    "files": StepKind(_apply_files, _check_files, _undo_files),
    "notes": StepKind(_apply_notes, _check_notes, _undo_notes),
    "settings": StepKind(_apply_settings, _check_settings, _undo_settings),
    "sessions": StepKind(_apply_sessions, _check_sessions, _undo_sessions),
    "job": StepKind(_apply_job, _check_job, _undo_job),
    "user": StepKind(_apply_user, _check_user, _undo_user),
    "login": StepKind(_apply_login, _check_login, _undo_login),
}


def commit(journal: ImportJournal, progress: Progress = ignore_progress) -> None:
    """Apply all steps and check them; an import that fails the check is undone.

    Raises:
        UserError: a check failed; nothing is left of the import.
    """
    journal.enter("committing")
    for step in journal.steps:
        progress(f"writing {step['do']} {step.get('target', '')}")
        KINDS[step["do"]].apply(journal, step)
    progress("checking the copy")
    wrong = [text for step in journal.steps for text in KINDS[step["do"]].check(journal, step)]
    if wrong:
        undo(journal)
        raise UserError("the import is undone, since its check failed: " + "; ".join(wrong[:5]))
    journal.drop(*STAGED)
    journal.enter("done")


def undo(journal: ImportJournal) -> list[str]:
    """Undo all steps, the last first; return what was changed since and stays."""
    journal.enter("undoing")
    kept = [text for step in reversed(journal.steps) for text in KINDS[step["do"]].undo(journal, step)]
    journal.drop(*STAGED, "old")
    journal.enter("undone")
    return kept
