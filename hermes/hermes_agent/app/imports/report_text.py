"""The report of an import as text for a terminal. Values of settings and secrets are never part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hermes_agent.app.imports.content import ImportItem, ImportReport, Outcome
from hermes_agent.app.plugins.terminal_io import printable

MAX_SHOWN = 12
"""Largest number of lines of one kind; `--all` shows the others."""
_TITLES: dict[Outcome, str] = {
    "new": "Imported",
    "replaced": "Replaced",
    "same": "Here already",
    "conflict": "Different here, and left as it is",
    "not imported": "Not imported",
}
_PLURALS = {"notes": "notes", "plugin data": "plugin data", "config": "settings", "workspace": "files of the workspace"}


def report_lines(report: ImportReport, *, is_complete: bool = False) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        is_complete: show every item.
    """
    yield printable(f"{report.source}: {report.files} files, {report.size / 1e6:,.1f} MB, sha256 {report.digest[:16]}")
    for outcome, title in _TITLES.items():
        items = report.by_outcome(outcome)
        if not items:
            continue
        if report.is_dry_run and outcome in ("new", "replaced"):
            title = {"new": "Would be imported", "replaced": "Would be replaced"}[outcome]
        yield f"\n{title}: {', '.join(_counts(items))}"
        if outcome in ("conflict", "not imported", "replaced") or is_complete:
            yield from _rows(items, is_complete=is_complete)
    for note in report.notes:
        yield "\n" + printable(f"Note: {note}.")


def _counts(items: Sequence[ImportItem]) -> Iterator[str]:
    for kind, count in Counter(item.kind for item in items).items():
        messages = sum(item.amount for item in items if item.kind == kind)
        plural = _PLURALS.get(kind, f"{kind}s" if not kind.endswith("s") else kind)
        extra = f" ({messages:,} messages)" if kind == "session" and messages else ""
        yield f"{count} {kind if count == 1 and kind != 'config' else plural}{extra}"


def _rows(items: Sequence[ImportItem], *, is_complete: bool) -> Iterator[str]:
    shown: Counter[str] = Counter()
    for item in items:
        shown[item.kind] += 1
        if not is_complete and shown[item.kind] > MAX_SHOWN:
            continue
        place = f" [{item.profile}]" if item.profile else ""
        count = f" ({item.amount})" if item.amount > 1 else ""
        reason = f": {item.reason}" if item.reason else ""
        yield "  " + printable(f"{item.kind} {item.name}{place}{count}{reason}")
    for kind, number in shown.items():
        if not is_complete and number > MAX_SHOWN:
            yield f"  … and {number - MAX_SHOWN} more of the kind {kind}; --all shows them"
