"""Read the daemon's entries from the journal, through `journalctl`."""

from __future__ import annotations

import grp
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from hermes_agent.core.errors import UserError
from hermes_agent.service.entries import LogEntry, LogFilter, from_journal, group, select
from hermes_agent.service.state import Scope

__all__ = ["JournalReader"]

_PRIORITY = {"DEBUG": "7", "INFO": "6", "WARNING": "4", "ERROR": "3", "CRITICAL": "2"}


@dataclass(slots=True)
class JournalReader:
    """One reader of a unit's journal. `recent` comes first, then `follow`; between the two nothing is lost."""

    unit: str | None
    """Name of the unit; None when it is not known, then `invocation` is."""
    scope: Scope | None = "system"
    """Which manager has the unit; None looks at both."""
    invocation: str | None = None
    """systemd's id of one start."""
    _cursor: str = ""

    def recent(self, count: int, wanted: LogFilter) -> list[LogEntry]:
        """Return the last `count` wanted records, oldest first.

        Raises:
            UserError: there is no journalctl, or it fails.
        """
        found: list[LogEntry] = []
        lines: list[LogEntry] = []
        for entry in self._read(wanted, "--reverse"):
            self._cursor = self._cursor or entry.cursor
            lines.append(entry)
            if entry.continued:
                continue
            if len(found) < count:
                found += group(select(reversed(lines), wanted))
            lines = []
            if len(found) >= count:
                break
        return found[::-1]

    def follow(self, wanted: LogFilter) -> Iterator[LogEntry]:
        """Yield wanted entries as they come, until the caller stops.

        Raises:
            UserError: there is no journalctl, or it fails.
        """
        place = ["--after-cursor", self._cursor] if self._cursor else ["--lines=all"]
        yield from select(self._read(wanted, "--follow", *place), wanted)

    def may_be_hidden(self) -> bool:
        """Whether this user sees only entries of his own, so that there may be more than is shown."""
        if os.geteuid() == 0 or self.scope == "user":
            return False
        mine = {os.getegid(), *os.getgroups()}
        return not any(_group_id(name) in mine for name in ("systemd-journal", "adm", "wheel"))

    def _read(self, wanted: LogFilter, *options: str) -> Iterator[LogEntry]:
        command = ["journalctl", "--quiet", "--no-pager", "--all", "--output=json", *self._match(), *options]
        command.append(f"--priority={_PRIORITY[wanted.level]}")
        if wanted.since is not None:
            command.append(f"--since=@{int(wanted.since)}")
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except FileNotFoundError as exc:
            raise UserError(
                "the daemon logs to the journal, and there is no journalctl to read it",
                hint="Run `hermes logs` where systemd is installed; `--source file` reads agent.log.",
            ) from exc
        assert process.stdout is not None and process.stderr is not None
        try:
            for line in process.stdout:
                yield from_journal(json.loads(line))
            if process.wait():
                text = process.stderr.read().decode("utf-8", "replace").strip()
                raise UserError(f"journalctl failed with status {process.returncode}: {text}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    def _match(self) -> list[str]:
        if self.unit is None:
            return [f"_SYSTEMD_INVOCATION_ID={self.invocation}"]
        both = (("system", "--unit"), ("user", "--user-unit"))
        return [f"{option}={self.unit}" for scope, option in both if self.scope in (None, scope)]


def _group_id(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
