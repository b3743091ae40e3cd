"""Proposals: changes that the agent suggests and a user accepts or rejects, in one place.

A proposal is a file in `proposals/` of the home. Its id is the hash of its content, and a key of the home signs it, so
that what is accepted is what was shown. It expires, and takes effect only when it is accepted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from hermes_agent.core.errors import CommandFailed, ToolFailed, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.system.files import JsonFile, write_atomic
from hermes_agent.system.locks import FileLock

logger = logging.getLogger(__name__)

FOLDER = "proposals"
KEY_FILE = ".key"
LOCK_FILE = ".lock"
LIFETIME_S = 14 * 86_400.0
MAX_OPEN = 50
"""Proposals that wait at the same time; further ones are refused."""
SHORT = 8
"""Digits of an id that are shown and typed."""


class Proposal(LazyNamedTuple):
    """One change that waits."""

    id: str
    kind: str
    """`skill` or `memory`."""
    title: str
    reason: str
    change: Mapping[str, Any]
    """What the kind applies."""
    origin: str
    """`tool` or `review`."""
    session_id: str
    created_at: float
    expires_at: float
    signature: str

    @property
    def short(self) -> str:
        """Return the beginning of the id."""
        return self.id[:SHORT]


class ProposalKind(Protocol):
    """Shows and applies the proposals of one kind."""

    def show(self, change: Mapping[str, Any]) -> str:
        """Return what the change does, as a diff.

        Raises:
            UserError: it does not fit what is there now.
        """
        ...

    def apply(self, change: Mapping[str, Any]) -> str:
        """Make the change and return what happened, with how to revert it.

        Raises:
            UserError: it is not possible; nothing is changed.
        """
        ...


class Proposals:
    """The proposals of a home.

    Args:
        clock: returns seconds since the epoch.
    """

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = home / FOLDER
        self._clock = clock
        self._kinds: dict[str, ProposalKind] = {}

    def serve(self, kind: str, handler: ProposalKind) -> None:
        """Set what shows and applies the proposals of a kind."""
        self._kinds[kind] = handler

    def add(
        self,
        kind: str,
        title: str,
        change: Mapping[str, Any],
        *,
        reason: str = "",
        origin: str = "tool",
        session_id: str = "",
        lifetime_s: float = LIFETIME_S,
    ) -> Proposal:
        """Store a proposal and return it; the same change is stored once.

        Raises:
            UserError: too many wait.
        """
        waiting = self.all()
        content = {"kind": kind, "title": title, "change": dict(change)}
        number = hashlib.sha256(_canonical(content)).hexdigest()
        for known in waiting:
            if known.id == number:
                return known
        if len(waiting) >= MAX_OPEN:
            raise UserError(f"{MAX_OPEN} proposals wait already", hint="`hermes proposals` accepts or rejects them.")
        now = self._clock()
        about = {"reason": redactor(reason), "origin": origin, "session_id": session_id}
        row: dict[str, Any] = {**content, **about, "created_at": now, "expires_at": now + lifetime_s}
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        row["signature"] = self._sign(row)
        write_atomic(self._folder / f"{number}.json", json.dumps(row, ensure_ascii=False, indent=1), mode=0o600)
        return Proposal(number, **row)

    def all(self) -> list[Proposal]:
        """Return the proposals that wait, oldest first; expired ones are deleted, forged ones left out."""
        found = []
        for file in self._folder.glob("*.json"):
            proposal = self._read(file)
            if proposal is None:
                continue
            if proposal.expires_at <= self._clock():
                file.unlink(missing_ok=True)
                self._log(proposal, "expired")
            else:
                found.append(proposal)
        return sorted(found, key=lambda each: (each.created_at, each.id))

    def find(self, wanted: str) -> Proposal:
        """Return the proposal with that beginning of its id.

        Raises:
            UserError: there is none, or several.
        """
        found = [each for each in self.all() if wanted and each.id.startswith(wanted.lower())]
        if len(found) != 1:
            known = ", ".join(each.short for each in self.all()) or "none"
            what = "several proposals begin" if found else "no proposal begins"
            raise UserError(f"{what} with {wanted!r}", hint=f"There are: {known}.")
        return found[0]

    def diff(self, proposal: Proposal) -> str:
        """Return what a proposal changes, as a diff.

        Raises:
            UserError: it does not fit what is there now.
        """
        return self._kind(proposal).show(proposal.change)

    def show(self, proposal: Proposal) -> str:
        """Return title, reason and diff of a proposal."""
        try:
            diff = self.diff(proposal)
        except UserError as error:
            diff = f"It cannot be accepted any more: {error.message}"
        return f"{line(proposal)}\n{diff}".rstrip()

    def accept(self, proposal: Proposal) -> str:
        """Make the change of a proposal, and return what happened.

        Raises:
            UserError: it is not possible; the proposal stays. Or another answer came first.
        """
        with FileLock(self._folder / LOCK_FILE, subject="the proposals of this home"):
            if not self._file(proposal).exists():
                raise UserError(f"the proposal {proposal.short} was answered already")
            try:
                said = self._kind(proposal).apply(proposal.change)
            except ToolFailed as error:
                raise UserError(str(error)) from error
            self._drop(proposal, "accepted")
        return said

    def reject(self, proposal: Proposal) -> None:
        """Delete a proposal."""
        self._drop(proposal, "rejected")

    def _kind(self, proposal: Proposal) -> ProposalKind:
        if proposal.kind not in self._kinds:
            raise UserError(f"this release makes no changes of the kind {proposal.kind!r}")
        return self._kinds[proposal.kind]

    def _read(self, file: Path) -> Proposal | None:
        row = JsonFile(file).read()
        content = {name: row.get(name) for name in ("kind", "title", "change")}
        number = hashlib.sha256(_canonical(content)).hexdigest()
        signature = str(row.get("signature") or "")
        is_genuine = file.stem == number and hmac.compare_digest(signature, self._sign(row))
        if not is_genuine or set(row) != set(Proposal._fields) - {"id"}:
            logger.warning("proposal %s: left out: its content is not what was signed", file)
            return None
        return Proposal(number, **row)

    def _sign(self, row: Mapping[str, Any]) -> str:
        unsigned = {name: value for name, value in row.items() if name != "signature"}
        return hmac.new(self._key(), _canonical(unsigned), hashlib.sha256).hexdigest()

    def _key(self) -> bytes:
        file = self._folder / KEY_FILE
        with contextlib.suppress(FileExistsError):
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as out:
                out.write(secrets.token_hex(32))
        return file.read_bytes()

    def _drop(self, proposal: Proposal, outcome: str) -> None:
        self._file(proposal).unlink(missing_ok=True)
        self._log(proposal, outcome)

    def _file(self, proposal: Proposal) -> Path:
        return self._folder / f"{proposal.id}.json"

    def _log(self, proposal: Proposal, outcome: str) -> None:
        logger.info("proposal %s (%s): %s", proposal.short, proposal.title, outcome)


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def line(proposal: Proposal) -> str:
    """Return a proposal in one line."""
    until = time.strftime("%Y-%m-%d", time.localtime(proposal.expires_at))
    reason = f" ({proposal.reason})" if proposal.reason else ""
    return f"{proposal.short}  {proposal.kind}: {proposal.title}{reason}, until {until}"


USAGE = "/proposals [show ID | accept ID | reject ID]"


def answer(proposals: Proposals, raw_args: str) -> str:
    """Run `/proposals` and return the answer."""
    action, _, wanted = raw_args.strip().partition(" ")
    try:
        if action in ("", "list"):
            rows = [line(each) for each in proposals.all()]
            return "\n".join([*rows, f"{USAGE}"]) if rows else "No proposal waits."
        if action not in ("show", "accept", "reject"):
            raise CommandFailed(f"There is no action {action!r}: {USAGE}")
        proposal = proposals.find(wanted.strip())
        if action == "show":
            return proposals.show(proposal)
        if action == "accept":
            return proposals.accept(proposal)
        proposals.reject(proposal)
        return f"Rejected: {proposal.title}."
    except UserError as error:
        raise CommandFailed(str(error)) from error
