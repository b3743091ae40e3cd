"""The comparison of a source with a home here; what is new is staged, and everything is reported."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.content import FileEntry, HomeContent, ImportItem, Outcome
from hermes_agent.app.imports.journal import ImportJournal, missing_folders
from hermes_agent.app.imports.settings_merge import SettingsMerge
from hermes_agent.app.imports.source_tree import Progress, SourceFile, SourceTree, hash_names, hash_place
from hermes_agent.app.imports.steps import digest_of, job_digest
from hermes_agent.app.manifest_cache import declared_schema
from hermes_agent.config import home_paths
from hermes_agent.config.dotenv import read_env_file
from hermes_agent.config.schema import find_value, render_path
from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.errors import UserError
from hermes_agent.core.untrusted import find_injection
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.cron.job_store import JobStore, published_job
from hermes_agent.cron.jobs import Job
from hermes_agent.gateway.access import PairingStore
from hermes_agent.memory.notes import FILES as NOTE_FILES
from hermes_agent.memory.notes import Notes, NoteSettings
from hermes_agent.sessions import Transcript
from hermes_agent.sessions.imported_sessions import find_presence
from hermes_agent.store import Database

_OTHER = "there is another one here; --overwrite replaces it, and undo brings it back"
_DAY_S = 86400.0
RETENTION = ("sessions", "retention_days")


class Comparison:
    """Compares one home of the source with its home here.

    Args:
        home: the home here.
        targets: the files of this import so far; two of them cannot have one place.
        work: folder for temporary files.
        journal: gets the steps; None for a dry run.
        overwrite: replace what is different here.
    """

    def __init__(
        self,
        tree: SourceTree,
        content: HomeContent,
        home: Path,
        targets: set[Path],
        work: Path,
        journal: ImportJournal | None,
        *,
        overwrite: bool,
    ) -> None:
        self._tree = tree
        self._content = content
        self._home = home
        self._targets = targets
        self._work = work
        self._journal = journal
        self._overwrite = overwrite
        self._name = content.profile or "main"
        self.items: list[ImportItem] = []
        self.notes: list[str] = []

    def run(self, progress: Progress) -> None:
        """Compare everything."""
        for entry in self._content.files:
            progress(f"comparing {entry.source}")
            self._compare_file(entry)
        oldest = self._compare_sessions(progress)
        self._compare_settings(oldest)
        self._compare_jobs()
        self._compare_users()
        self._compare_logins()
        self.items += self._content.left

    def _note(
        self, kind: str, name: str, outcome: Outcome, source: str, reason: str = "", count: int = 1, digest: str = ""
    ) -> None:
        self.items.append(ImportItem(kind, name, outcome, reason, source, count, digest, self._content.profile))

    def _step(self, do: str, **values: Any) -> None:
        if self._journal is not None:
            self._journal.steps.append({"do": do, "profile": self._content.profile, **values})

    # --- files ---------------------------------------------------------------------------------------------------

    def _compare_file(self, entry: FileEntry) -> None:
        kept = {found.path: found for found in self._tree.below(entry.source) if self._can_copy(entry, found)}
        if not kept:
            return
        digest = self._digest(entry, kept)
        target = self._home / entry.target
        present = hash_place(target) if os.path.lexists(target) else ""
        if present == digest:
            self._note(entry.kind, entry.name, "same", entry.source, "", len(kept), digest)
        elif target in self._targets:
            self._note(entry.kind, entry.name, "conflict", entry.source, "the source has two of that name", len(kept))
        elif present and entry.entries and not self._overwrite:
            self._merge_notes(entry)
        elif (present or os.path.lexists(target)) and not (self._overwrite and present):
            self._note(entry.kind, entry.name, "conflict", entry.source, _OTHER, len(kept), digest)
        elif (above := next((one for one in target.parents if one.exists()), target)) and not above.is_dir():
            self._note(entry.kind, entry.name, "conflict", entry.source, f"{above} is no folder", len(kept), digest)
        else:
            self._targets.add(target)
            self._stage_file(entry, kept, digest, present)
            self._note(entry.kind, entry.name, "replaced" if present else "new", entry.source, "", len(kept), digest)

    def _can_copy(self, entry: FileEntry, found: SourceFile) -> bool:
        """Return whether a file can be copied; a relative link out of the entry has another target here."""
        if found.problem:
            return False
        if found.kind == "link":
            target = str((self._tree.root / found.path).readlink())
            above = os.path.normpath(Path(found.path).parent / target)
            if not target.startswith("/") and above != entry.source and not above.startswith(f"{entry.source}/"):
                if found.path == entry.source and self._tree.read_bytes(found.path) is not None:
                    return True  # a file behind a link is copied
                reason = f"a relative link out of its folder, to {target}"
                self._content.leave("file", found.path, reason, found.path)
                return False
        return True

    def _digest(self, entry: FileEntry, kept: dict[str, SourceFile]) -> str:
        if entry.source not in kept:
            start = len(entry.source) + 1
            return hash_names({name[start:]: found.digest for name, found in kept.items()})
        if kept[entry.source].kind == "link" and (data := self._tree.read_bytes(entry.source)) is not None:
            return hashlib.sha256(data).hexdigest()
        return kept[entry.source].digest

    def _stage_file(self, entry: FileEntry, kept: dict[str, SourceFile], digest: str, replaces: str) -> None:
        if self._journal is None:
            return
        number = len(self._journal.steps)
        new = self._journal.folder / "new" / str(number)
        for name, found in kept.items():
            place = new / name[len(entry.source) + 1 :] if name != entry.source else new
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            follow = found.path == entry.source and self._tree.read_bytes(name) is not None
            shutil.copy2(self._tree.root / name, place, follow_symlinks=follow)
        if hash_place(new) != digest:
            raise UserError(
                f"{self._tree.root / entry.source} changed while it was copied; nothing is imported",
                hint="Stop the program that uses it, and try again.",
            )
        made = missing_folders(self._home / entry.target)
        values = {"target": entry.target, "new": f"new/{number}", "old": f"old/{number}", "digest": digest}
        self._step("files", **values, replaces=replaces, made=made)

    def _merge_notes(self, entry: FileEntry) -> None:
        """Add the entries of notes that are not here, as far as they fit."""
        file = next(name for name, path in NOTE_FILES.items() if path == Path(entry.target).name)
        limits = NoteSettings()
        limit = limits.memory_char_limit if file == "memory" else limits.user_char_limit
        present = Notes(self._home / "memories", {}).entries(file)
        new: list[str] = []
        for text in entry.entries:
            if text in present:
                continue
            size = len("\n§\n".join([*present, *new, text]))
            if why := find_injection(text):
                self._content.leave("note", text[:40], f"it would be read as an instruction: {why}")
            elif size > limit:
                reason = f"{Path(entry.target).name} would have {size:,} characters; {limit:,} are the limit"
                self._note("note", text[:40], "conflict", "", f"{reason}; --overwrite takes the whole file")
            else:
                new.append(text)
        if new:
            self._step("notes", file=file, entries=new, limit=limit)
        reason = f"{len(new)} of {len(entry.entries)} entries are added to those here"
        self._note("notes", entry.name, "new" if new else "same", entry.source, reason, len(new))

    # --- sessions ------------------------------------------------------------------------------------------------

    def _compare_sessions(self, progress: Progress) -> float | None:
        """Compare and stage the sessions; return the time of the oldest new one."""
        staged = self._work / f"{self._name}.jsonl"
        if self._journal is not None:
            staged = self._journal.folder / "sessions" / f"{self._name}.jsonl"
        staged.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows: list[list[Any]] = []
        oldest: float | None = None
        with self._database() as database, staged.open("w", encoding="utf-8") as file:
            for found, source in self._content.sessions():
                progress(f"comparing session {found.id}")
                session, reason, keep = found, "", 0
                presence = "new" if database is None else find_presence(database, found)
                if presence == "different":
                    session.id = f"{found.id}_{found.digest[:6]}"
                    reason = f"{found.id} is another conversation here, so it has a new id"
                    assert database is not None
                    presence = find_presence(database, session)
                if presence == "longer":
                    assert database is not None
                    keep = int(database.read("SELECT count(*) FROM messages WHERE session_id = ?", (session.id,))[0][0])
                    reason = f"{len(session.messages) - keep} messages are added"
                outcome: Outcome = "same" if presence == "same" else "new"
                self._note("session", session.id, outcome, source, reason, len(session.messages), session.digest)
                if outcome == "new":
                    file.write(session.to_json() + "\n")
                    rows.append([session.id, session.digest, keep])
                    oldest = min(oldest or session.updated_at, session.updated_at)
        if rows:
            self._step("sessions", new=f"sessions/{self._name}.jsonl", sessions=rows)
        return oldest

    @contextlib.contextmanager
    def _database(self) -> Iterator[Database | None]:
        path = self._home / "state.db"
        if not path.exists():
            yield None
            return
        with contextlib.closing(Transcript(path)) as transcript:
            yield transcript.database

    # --- settings ------------------------------------------------------------------------------------------------

    def _compare_settings(self, oldest: float | None) -> None:
        name = f"settings/{self._name}"
        stage = (self._journal.folder if self._journal is not None else self._work) / name
        merge = SettingsMerge(
            self._home, stage, self._content, overwrite=self._overwrite, schema=declared_schema(self._home)
        )
        merge.merge()
        self._keep_old_sessions(merge, oldest, stage)
        self.items += merge.items
        enabled = [item.name for item in merge.items if item.name == "plugins.enabled" and item.outcome == "new"]
        if enabled:
            self.notes.append(
                "the plugins of `plugins.enabled` run at the next start, with the files as they are now"
                " (`hermes plugins list`)"
            )
        here, there = home_paths(self._home), home_paths(stage)
        if not merge.config_keys and not merge.variables:
            return
        values, variables = read_file(there.editable).value, read_env_file(there.env)
        self._step(
            "settings",
            new=name,
            old=f"old/settings-{self._name}",
            keys=[list(path) for path in merge.config_keys],
            key_digests=[digest_of(find_value(values, path)) for path in merge.config_keys],
            variables=merge.variables,
            variable_digests=[digest_of(variables[name]) for name in merge.variables],
            config=[hash_place(here.editable), hash_place(there.editable)] if merge.config_keys else [],
            env=[hash_place(here.env), hash_place(there.env)] if merge.variables else [],
        )

    def _keep_old_sessions(self, merge: SettingsMerge, oldest: float | None, stage: Path) -> None:
        """Keep the daemon from removing the imported sessions as too old."""
        if oldest is None:
            return
        days = find_value(read_file(home_paths(stage).editable).value, RETENTION)
        age = (time.time() - oldest) / _DAY_S
        if isinstance(days, int | float) and not isinstance(days, bool):
            if days and age > days:
                self.notes.append(
                    f"`{render_path(RETENTION)}` is {days:g}: the daemon removes imported sessions that are older"
                    f" (the oldest has {age:.0f} days); `hermes config set {render_path(RETENTION)} 0` keeps them"
                )
        elif age > 90:
            merge.set_own(RETENTION, 0, "imported sessions are older than 90 days, and would be removed")

    # --- jobs, users, logins ---------------------------------------------------------------------------------------

    def _compare_jobs(self) -> None:
        waiting = list(self._content.jobs)
        known: dict[str, Job] = {}
        if (self._home / "state.db").exists() and waiting:
            with contextlib.closing(JobStore(self._home / "state.db")) as store:
                known = {job.id: job for job in store.jobs()}
        place = self._tree.root / (f"profiles/{self._content.profile}" if self._content.profile else "")
        here = set(known)
        faults: dict[int, str] = {}
        while waiting:
            left = []
            for entry in waiting:
                try:
                    job = published_job(entry.fields, place, time.time(), known)
                except (UserError, TypeError, ValueError, KeyError) as exc:
                    faults[id(entry)] = exc.message if isinstance(exc, UserError) else f"it is malformed: {exc}"
                    left.append(entry)
                else:
                    self._add_job(entry.fields, entry.source, job, known, is_here=job.id in here)
                    known.setdefault(job.id, job)
            if len(left) == len(waiting):  # a job may need another one first (context_from)
                break
            waiting = left
        for entry in waiting:
            self._note("job", entry.name, "not imported", entry.source, faults[id(entry)])

    def _add_job(self, fields: dict[str, Any], source: str, job: Job, known: dict[str, Job], *, is_here: bool) -> None:
        digest = job_digest(job)
        if is_here and (job_digest(known[job.id]) == digest or not self._overwrite):
            same = job_digest(known[job.id]) == digest
            self._note("job", job.name, "same" if same else "conflict", source, "" if same else _OTHER)
            return
        previous = known[job.id].to_dict() if is_here else None
        self._step("job", id=job.id, fields=fields, digest=digest, previous=previous)
        reason = "" if job.enabled else "it is paused"
        self._note("job", job.name, "replaced" if is_here else "new", source, reason, digest=digest)

    def _compare_users(self) -> None:
        store = PairingStore.of_home(self._home)
        for user in self._content.users:
            name = f"{user.platform}: {user.user_name or user.user_id}"
            try:
                is_there = store.is_approved(user.platform, user.user_id)
            except ValueError as exc:
                self._note("paired user", name, "not imported", user.source, str(exc))
                continue
            self._note("paired user", name, "same" if is_there else "new", user.source)
            if not is_there:
                self._step("user", **{key: value for key, value in user._asdict().items() if key != "source"})

    def _compare_logins(self) -> None:
        for login, source in self._content.logins:
            name = f"{login.provider}: {login.label}"
            present = LoginStore(self._home / "auth.json").get(login.provider, login.label)
            if present is not None:
                same = present.access_token == login.access_token
                reason = "" if same else f"another key is stored here; `hermes auth logout {login.provider}` removes it"
                self._note("login", name, "same" if same else "conflict", source, reason)
                continue
            self._note("login", name, "new", source)
            if self._journal is not None:
                file = f"logins/{self._name}.json"
                (self._journal.folder / "logins").mkdir(mode=0o700, exist_ok=True)
                LoginStore(self._journal.folder / file).put(login)
                digest = digest_of(login.access_token)
                self._step("login", new=file, provider=login.provider, label=login.label, digest=digest)
