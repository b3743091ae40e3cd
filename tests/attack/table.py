"""Pytest plugin that counts attempts of attacks by class and place, and prints how many of them were held off.

A test names its class, and where it tries it: `@pytest.mark.attack("sandbox: reading", at="bubblewrap")`. It counts as
one attempt, unless it asks for the fixture `attempt` and calls it for each of its attempts. `make attack` loads the
plugin (`-p attack.table`) and names the page that promises (`--promises docs/security.md`): the run fails where a class
has no attempt at a place that the page names, so that a skipped class is not taken for one that held.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

PLACES = {
    "program": "functions and the host, in the process of the test",
    "daemon": "`hermes gateway run`, over HTTP and a chat, with a model that asks for the attack",
    "bubblewrap": "commands in a real sandbox of bubblewrap",
    "systemd": "units of a real systemd",
}
PROPERTY = "attack"  # of a report: (class, place, attempts, attempts that were held off)
HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
TRIED = re.compile(r"^\*\*Tried\.\*\* (.+)\.$", re.MULTILINE)
Counts = dict[tuple[str, str], tuple[int, int]]
"""Attempts and held-off attempts by class and place."""


def where(marker: pytest.Mark) -> tuple[str, str]:
    """Return class and place of a mark."""
    place = marker.kwargs.get("at", "program")
    if place not in PLACES:
        raise pytest.UsageError(f"an attack is tried at {', '.join(PLACES)}; not at {place!r}")
    return str(marker.args[0]), place


def sections(page: str) -> dict[str, str]:
    """Return the text of the page by class of attacks."""
    parts = HEADING.split(re.sub(r"^## .*$", "", page, flags=re.MULTILINE))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def promised(page: str) -> set[tuple[str, str]]:
    """Return classes and places which the page says are tried."""
    return {
        (kind, place.strip())
        for kind, text in sections(page).items()
        for line in TRIED.findall(text)
        for place in line.split(",")
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the attempts of a test to its report, which is what reaches the table from a worker of pytest-xdist."""
    report = yield
    marker = item.get_closest_marker("attack")
    if marker and call.when == "call" and not report.skipped:
        counted = item.stash.get(ATTEMPTS, None) or [report.passed]
        report.user_properties.append((PROPERTY, [*where(marker), len(counted), sum(counted)]))
    elif marker and report.skipped:
        report.user_properties.append((PROPERTY, [*where(marker), 0, 0]))
    return report


ATTEMPTS = pytest.StashKey[list[bool]]()


def counted(reports: Iterable[pytest.TestReport]) -> Counts:
    """Return the attempts by class and place."""
    table: Counts = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY:
                kind, place, tried, held = value  # type: ignore[misc]
                before = table.get((kind, place), (0, 0))
                table[kind, place] = (before[0] + tried, before[1] + held)
    return table


def untried(table: Counts, promises: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return classes and places without an attempt: of the page, and those whose tests were all skipped."""
    return sorted(one for one in promises | set(table) if not table.get(one, (0, 0))[0])


def lines(table: Counts) -> list[str]:
    """Return the table as lines of text. A cell has what was tried, `held of tried` where one got through."""
    kinds = sorted({kind for kind, _place in table})
    width = max([len(kind) for kind in kinds] + [5])

    def row(name: str, mine: Counts) -> str:
        cells = []
        for place in PLACES:
            found = [value for (_kind, at), value in mine.items() if at == place]
            tried, held = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0)
            cells.append(("-" if not found else str(tried)) if tried == held else f"{held} of {tried}")
        tried, held = (sum(column) for column in zip(*mine.values(), strict=True)) if mine else (0, 0)
        return " ".join([f"{name:<{width}}", *(f"{cell:>11}" for cell in cells), f"{tried:>7} {held:>7}"])

    head = " ".join([f"{'class':<{width}}", *(f"{place:>11}" for place in PLACES), f"{'tried':>7} {'held':>7}"])
    rows = [row(kind, {one: value for one, value in table.items() if one[0] == kind}) for kind in kinds]
    return [head, *rows, row("all", table)]


class Table:
    """Collects the reports of a run."""

    def __init__(self, promises: set[tuple[str, str]]) -> None:
        self.reports: list[pytest.TestReport] = []
        self.promises = promises

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what has attempts: the call, or the set-up of a skipped test."""
        if report.when == "call" or report.skipped:
            self.reports.append(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where a class was not tried at a place."""
        if untried(counted(self.reports), self.promises):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        table = counted(self.reports)
        terminalreporter.section("attacks")
        for line in lines(table):
            terminalreporter.line(line)
        for kind, place in untried(table, self.promises):
            why = "its tests were skipped (pytest -rs says why)" if (kind, place) in table else "no test of it ran"
            terminalreporter.line(f"nothing was tried of “{kind}” at {place}: {why}", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the page that says what is tried where."""
    parser.addoption("--promises", type=Path, help="page that says of each class of attacks where it is tried")


def pytest_configure(config: pytest.Config) -> None:
    """Begin a table, in the process that prints."""
    if not hasattr(config, "workerinput"):
        page: Path | None = config.getoption("promises")
        whole = page is not None and not config.getoption("keyword")  # `-k` chooses a part, which is not all of a page
        promises = promised(page.read_text(encoding="utf-8")) if page is not None and whole else set()
        config.pluginmanager.register(Table(promises), "attack-table")
