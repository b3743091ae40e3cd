"""The content of a home of another program, in the terms of this one, and what became of each part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from typing import Any, Literal

from hermes_agent.app.imports.source_tree import SourceTree
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.credentials.logins import Login
from hermes_agent.sessions.imported_sessions import ImportedSession

UNKNOWN = "this program does not know it"


class FileEntry(LazyNamedTuple):
    """A file or folder that is copied as it is. Paths are relative to the two homes."""

    kind: str
    """`skill`, `plugin`, `notes`, `workspace`, …"""
    source: str
    target: str
    entries: tuple[str, ...] = ()
    """Entries of a file of notes, which can be added to those here."""

    @property
    def name(self) -> str:
        """The path in this home without the folder of its kind."""
        return self.target.partition("/")[2] or self.target


class JobEntry(LazyNamedTuple):
    """A scheduled job in upstream's form."""

    fields: dict[str, Any]
    source: str

    @property
    def name(self) -> str:
        """Its name or id."""
        return str(self.fields.get("name") or self.fields.get("id") or "?")


class PairedUser(LazyNamedTuple):
    """A user of a chat platform who is allowed."""

    platform: str
    user_id: str
    user_name: str
    approved_at: float
    source: str


class Setting(LazyNamedTuple):
    """Values of one file that become settings or variables here; `origin` names the keys there."""

    values: dict[str, Any]
    source: str


Outcome = Literal["new", "same", "conflict", "replaced", "not imported"]


class ImportItem(LazyNamedTuple):
    """One thing of the source, and what became of it."""

    kind: str
    name: str
    outcome: Outcome
    reason: str = ""
    source: str = ""
    """Path in the source, or "" for a part of a file that another item names."""
    amount: int = 1
    """Number of messages, entries or files."""
    digest: str = ""
    profile: str = ""


@lazy_dataclass(slots=True)
class HomeContent:
    """The content of one home: the main one, or a profile."""

    profile: str = ""
    files: list[FileEntry] = field(default_factory=list)
    config: list[Setting] = field(default_factory=list)
    env: list[Setting] = field(default_factory=list)
    jobs: list[JobEntry] = field(default_factory=list)
    users: list[PairedUser] = field(default_factory=list)
    logins: list[tuple[Login, str]] = field(default_factory=list)
    sessions: Callable[[], Iterator[tuple[ImportedSession, str]]] = lambda: iter(())
    """Yields each session with the path of its file; adds to `left` what it leaves out."""
    left: list[ImportItem] = field(default_factory=list)
    """What is not imported, with the reason."""

    def leave(self, kind: str, name: str, reason: str, source: str = "", count: int = 1) -> None:
        """Record that something is not imported."""
        self.left.append(ImportItem(kind, name, "not imported", reason, source, count, profile=self.profile))


def leave_rest(tree: SourceTree, content: HomeContent) -> None:
    """Name what no reader took: entries of the home, or single files of an entry that is imported in part."""
    rest: dict[str, int] = {}
    whole: dict[str, bool] = {}
    for found in tree.untaken():
        entry = found.path.split("/", 1)[0]
        if found.problem:
            content.leave("file", found.path, found.problem, found.path)
            continue
        if entry not in whole:
            whole[entry] = not any(tree.is_taken(other.path) for other in tree.below(entry))
        name = entry if whole[entry] else found.path
        rest[name] = rest.get(name, 0) + 1
    for path, count in sorted(rest.items()):
        content.leave("file", path, UNKNOWN, path, count)


@lazy_dataclass(slots=True)
class ImportReport:
    """The result of an import or of a dry run."""

    program: str
    source: str
    home: str
    id: str = ""
    is_dry_run: bool = False
    digest: str = ""
    """Hash of the source, before and after."""
    files: int = 0
    size: int = 0
    items: list[ImportItem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def by_outcome(self, *outcomes: Outcome) -> list[ImportItem]:
        """Return the items with one of these outcomes."""
        return [item for item in self.items if item.outcome in outcomes]

    def as_json(self) -> dict[str, Any]:
        """Return the report with its items as mappings."""
        return {**asdict(self), "items": [item._asdict() for item in self.items]}
