"""Pytest plugin that counts attempts of attacks by class and prints how many of them were held off.

A test names its class: `@pytest.mark.attack("sandbox: reading")`. It counts as one attempt, unless it asks for the
fixture `attempt` and calls it for each of its attempts. `make attack` loads the plugin (`-p attack.table`) and fails
where a class has no attempt that ran, so that a skipped class is not taken for one that held.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

PROPERTY = "attack"  # of a report: (class, attempts, attempts that were held off)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the attempts of a test to its report, which is what reaches the table from a worker of pytest-xdist."""
    report = yield
    marker = item.get_closest_marker("attack")
    if marker and call.when == "call" and not report.skipped:
        counted = item.stash.get(ATTEMPTS, None) or [report.passed]
        report.user_properties.append((PROPERTY, [marker.args[0], len(counted), sum(counted)]))
    elif marker and report.skipped:
        report.user_properties.append((PROPERTY, [marker.args[0], 0, 0]))
    return report


ATTEMPTS = pytest.StashKey[list[bool]]()


def counted(reports: list[pytest.TestReport]) -> dict[str, tuple[int, int]]:
    """Return attempts and held-off attempts by class."""
    table: dict[str, tuple[int, int]] = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY:
                kind, tried, held = value  # type: ignore[misc]
                before = table.get(kind, (0, 0))
                table[kind] = (before[0] + tried, before[1] + held)
    return table


def lines(table: dict[str, tuple[int, int]]) -> list[str]:
    """Return the table as lines of text."""
    width = max([len(kind) for kind in table] + [5])
    head = f"{'class':<{width}}  tried   held"
    rows = [f"{kind:<{width}}  {tried:>5}  {held:>5}" for kind, (tried, held) in sorted(table.items())]
    total = [sum(column) for column in zip(*table.values(), strict=True)] or [0, 0]
    return [head, *rows, f"{'all':<{width}}  {total[0]:>5}  {total[1]:>5}"]


class Table:
    """Collects the reports of a run."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what has attempts: the call, or the set-up of a skipped test."""
        if report.when == "call" or report.skipped:
            self.reports.append(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where a class was only skipped."""
        if any(not tried for tried, _held in counted(self.reports).values()):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        table = counted(self.reports)
        terminalreporter.section("attacks")
        for line in lines(table):
            terminalreporter.line(line)
        for kind in sorted(kind for kind, (tried, _held) in table.items() if not tried):
            terminalreporter.line(
                f"nothing was tried of “{kind}”: its tests were skipped (pytest -rs says why)", red=True
            )


def pytest_configure(config: pytest.Config) -> None:
    """Begin a table, in the process that prints."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(), "attack-table")
