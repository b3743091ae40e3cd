"""Installed skills: quarantine, scan, lock with hashes, update, removal and audit.

A skill is written into `skills/.hub/quarantine` first and moved to its place only after the scan. The lock
`skills/.hub/lock.json` has the hash of each file. Source: later plugin contract §13.2.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.skills.taps import Tap, Taps, TapSkill
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.skills.history import SkillHistory, difference, replace_folder, write_entries
from hermes_agent.skills.scan import SkillEntry, SkillScan, read_entries, scan_skill
from hermes_agent.skills.skill_file import HUB
from hermes_agent.system.files import JsonFile

POLICY = {"trusted": ("safe", "caution"), "community": ("safe",)}
"""The verdicts of the scan with which a skill is installed, by trust level of its tap."""


class InstalledSkill(LazyNamedTuple):
    """A row of the lock."""

    name: str
    source: str
    identifier: str
    trust_level: str
    scan_verdict: str
    content_hash: str
    files: Mapping[str, str]
    metadata: Mapping[str, Any]
    installed_at: str
    updated_at: str


class SkillUpdate(LazyNamedTuple):
    """A change that a tap has for an installed skill."""

    skill: TapSkill
    entries: Mapping[str, SkillEntry]
    scan: SkillScan
    diff: str
    modified: tuple[str, ...]
    """Files that were changed here since the installation."""


class SkillHub:
    """The skills of a home that come from taps.

    Args:
        skills: the folder `skills/` of the home.
    """

    def __init__(self, skills: Path, taps: Taps) -> None:
        self._skills = skills
        self._lock = JsonFile(skills / HUB / "lock.json")
        self.taps = taps
        self.history = SkillHistory(skills)

    def installed(self) -> dict[str, InstalledSkill]:
        """Return the installed skills by name."""
        rows = self._lock.read().get("installed") or {}
        names = InstalledSkill._fields[1:]
        return {name: InstalledSkill(name, **{k: row.get(k, "") for k in names}) for name, row in sorted(rows.items())}

    def scan(self, skill: TapSkill) -> tuple[dict[str, SkillEntry], SkillScan]:
        """Return the files of a skill of a tap and what the scan says about them."""
        entries = self.taps.entries(skill)
        return entries, scan_skill(skill.name, entries)

    def refusal(self, tap: Tap, scan: SkillScan, *, force: bool = False) -> str:
        """Return why a skill is not installed, or "" if it is.

        Args:
            force: accept what the scan only warns of.
        """
        allowed = POLICY["trusted" if force else tap.trust_level]
        if scan.verdict in allowed:
            return ""
        found = "; ".join(scan.lines()[:5])
        more = " (--force installs it nevertheless)" if scan.verdict == "caution" else ""
        return f"the scan says {scan.verdict}: {found}{more}"

    def install(self, skill: TapSkill, *, force: bool = False) -> SkillScan:
        """Install a skill and return what the scan said.

        Raises:
            UserError: the scan refuses it, or another skill has its name; nothing is changed.
        """
        target = self._skills / skill.name
        known = self.installed().get(skill.name)
        entries, scan = self.scan(skill)
        if why := self.refusal(skill.tap, scan, force=force):
            raise UserError(f"{skill.identifier} is not installed: {why}")
        if target.exists() and known is None:
            hint = f"Move {target} away, or install the other one under another name."
            raise UserError(f"{skill.identifier} is not installed: this home has a skill {skill.name!r}", hint=hint)
        if known is not None and known.source != skill.tap.repo:
            hint = f"`hermes skills remove {skill.name}` first."
            raise UserError(f"{skill.name} is installed from {known.source}", hint=hint)
        self._place(skill, entries, scan)
        return scan

    def update(self, name: str) -> SkillUpdate | None:
        """Return what the fetched tap has for an installed skill, or None if nothing changed.

        Raises:
            UserError: it is not installed, or its tap does not have it any more.
        """
        known = self._known(name)
        skill = self.taps.find_skill(name, known.source)
        entries, scan = self.scan(skill)
        modified = tuple(self.modified(name))
        if _hashes(entries) == dict(known.files) and not modified:
            return None
        diff = difference(read_entries(self._skills / name), entries)
        return SkillUpdate(skill, entries, scan, diff, modified) if diff else None

    def apply(self, update: SkillUpdate, *, force: bool = False) -> None:
        """Put the new state of a skill in its place; the present one can be restored.

        Raises:
            UserError: the scan refuses it; nothing is changed.
        """
        if why := self.refusal(update.skill.tap, update.scan, force=force):
            raise UserError(f"{update.skill.identifier} is not updated: {why}")
        self._place(update.skill, update.entries, update.scan)

    def remove(self, name: str) -> None:
        """Remove an installed skill; `revert` brings it back.

        Raises:
            UserError: it is not installed.
        """
        self._known(name)
        self.history.keep(name)
        replace_folder(None, self._skills / name)
        with self._lock.change() as value:
            value.get("installed", {}).pop(name, None)

    def modified(self, name: str) -> list[str]:
        """Return the files of an installed skill that differ from the lock, with how."""
        known = self._known(name)
        now = _hashes(read_entries(self._skills / name))
        rows = [(path, "missing") for path in known.files if path not in now]
        rows += [(path, "added") for path in now if path not in known.files]
        rows += [(path, "changed") for path, digest in now.items() if known.files.get(path, digest) != digest]
        return [f"{path} ({how})" for path, how in sorted(rows)]

    def _known(self, name: str) -> InstalledSkill:
        known = self.installed().get(name)
        if known is None:
            names = ", ".join(self.installed()) or "none"
            raise UserError(f"{name!r} was not installed from a tap", hint=f"Installed: {names}.")
        return known

    def _place(self, skill: TapSkill, entries: Mapping[str, SkillEntry], scan: SkillScan) -> None:
        quarantine = self._skills / HUB / "quarantine" / f"{skill.name}-{time.time_ns()}"
        quarantine.mkdir(parents=True, mode=0o700)
        try:
            write_entries(entries, quarantine)
            written = read_entries(quarantine)
            if _hashes(written) != _hashes(entries):
                raise UserError(f"{skill.identifier} was not written as it was scanned", hint="Is the disk full?")
            self.history.keep(skill.name)
            quarantine.chmod(0o755)
            replace_folder(quarantine, self._skills / skill.name)
        finally:
            shutil.rmtree(quarantine, ignore_errors=True)
        files = _hashes(entries)
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        with self._lock.change() as value:
            value["version"] = 1
            rows = value.setdefault("installed", {})
            rows[skill.name] = {
                "source": skill.tap.repo,
                "identifier": skill.identifier,
                "trust_level": skill.tap.trust_level,
                "scan_verdict": scan.verdict,
                "content_hash": content_hash(files),
                "install_path": skill.name,
                "files": files,
                "metadata": {"commit": self.taps.commit(skill.tap), "version": skill.version, "place": skill.place},
                "scan_provenance": scan.lines(),
                "installed_at": rows.get(skill.name, {}).get("installed_at", now),
                "updated_at": now,
            }


def _hashes(entries: Mapping[str, SkillEntry]) -> dict[str, str]:
    return {path: hashlib.sha256(entry.data or b"").hexdigest() for path, entry in sorted(entries.items())}


def content_hash(files: Mapping[str, str]) -> str:
    """Return the hash of a skill from the hashes of its files."""
    text = "".join(f"{path}\0{digest}\n" for path, digest in sorted(files.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
