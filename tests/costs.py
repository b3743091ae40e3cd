"""What each file of tests costs: `costs.txt` has the seconds of a run, for the files that take two or more.

`--max-cost S` leaves out the files that cost more, `--write-costs` writes the table from the run. With several workers
each file is run by one of them, so that fixtures of a module are made once, and the dearest file is started first.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

TABLE = Path(__file__).with_name("costs.txt")
ROOT = TABLE.parents[1]
LEAST_S = 2.0


def read_costs(table: Path = TABLE) -> dict[str, float]:
    """Return the seconds of each listed file, by path from the root of the repository."""
    lines = (line.split() for line in table.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {path: float(seconds) for seconds, path in lines}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("costs")
    group.addoption("--max-cost", type=float, metavar="S", help="leave out files of tests that take longer, in seconds")
    group.addoption("--write-costs", action="store_true", help="write tests/costs.txt from this run")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-costs") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(CostWriter())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> DearestFirst | None:
    """Distribute by file for `--dist loadgroup`; other ways stay what they are."""
    return DearestFirst(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with the cost of its file, and leave out those above `--max-cost`."""
    costs, limit = read_costs(), config.getoption("--max-cost")
    for item in items:
        if seconds := costs.get(item.nodeid.partition("::")[0]):
            item.add_marker(pytest.mark.cost(seconds))
    if limit is None:
        return
    dear = [item for item in items if (mark := item.get_closest_marker("cost")) and mark.args[0] > limit]
    config.hook.pytest_deselected(items=dear)
    left_out = set(dear)
    items[:] = [item for item in items if item not in left_out]


class DearestFirst(LoadGroupScheduling):
    """Gives a worker the dearest group of tests that is left; tests without a group are one for each file."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._costs = read_costs()
        self._group_costs: dict[str, float] = {}

    def _split_scope(self, nodeid: str) -> str:
        return str(super()._split_scope(nodeid)).partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self._cost), last=False)
        super()._assign_work_unit(node)

    def _cost(self, group: str) -> float:
        if group not in self._group_costs:
            files = {test.partition("::")[0] for test in self.workqueue[group]}
            self._group_costs[group] = sum(self._costs.get(file, 0.0) for file in files)
        return self._group_costs[group]


class CostWriter:
    """Adds up the seconds of each file, and writes the table at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = {path: seconds for path, seconds in read_costs().items() if (ROOT / path).is_file()}
        found = known | {path: seconds for path, seconds in self.seconds.items() if not path.startswith("::")}
        rows = sorted((-round(seconds, 1), path) for path, seconds in found.items() if seconds >= LEAST_S)
        head = "# seconds of each file of tests that takes two or more, from `pytest --write-costs`\n"
        TABLE.write_text(head + "".join(f"{-seconds:7.1f} {path}\n" for seconds, path in rows), "utf-8")
