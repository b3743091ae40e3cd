"""Process that runs one file of upstream's tests and writes what came of each test.

python child.py ROOT FILE ANSWER
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from compat.peer_suite import stand_ins

sys.path.pop(0)

LONGEST = 300
"""Longest message of a failure, in characters."""
PLACES = re.compile(r"(?:/[\w.@+-]+){2,}")
ADDRESSES = re.compile(r"0x[0-9a-f]+")


class Outcomes:
    """Pytest plugin that keeps the outcome of each test and runs coroutines."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool | None:
        """Run an `async def` test in an event loop of its own."""
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        names = pyfuncitem._fixtureinfo.argnames  # without what `mock.patch` passes
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True

    def pytest_itemcollected(self, item: Any) -> None:
        """Note a test before it runs, so that a process that dies names it."""
        self.tests[_name(item.nodeid)] = {"outcome": "ended"}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note the outcome of a test."""
        test = self.tests[_name(report.nodeid)]
        if report.outcome == "failed":
            test |= {"outcome": "failed", "cause": _cause(report)}
        elif report.outcome == "skipped" and test["outcome"] != "failed":
            test["outcome"] = "skipped"
        elif report.when == "call":
            test["outcome"] = "passed"

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be imported."""
        if report.outcome == "failed":
            self.tests["*"] = {"outcome": "failed", "cause": _cause(report)}


def _name(nodeid: str) -> str:
    return nodeid.partition("::")[2]


def _cause(report: Any) -> str:
    lines = [line[1:].strip() for line in report.longreprtext.splitlines() if re.match(r"E\s", line)]
    text = " / ".join(lines[:3]) if lines else report.longreprtext.strip().rpartition("\n")[2]
    text = text.removeprefix("compat.peer_suite.stand_ins.")
    return ADDRESSES.sub("0x", PLACES.sub("<path>", text))[:LONGEST]


def main(root: str, file: str, answer: str) -> int:
    """Run the file and write the outcomes as JSON."""
    from hermes_agent.compat import agent, import_hook

    os.chdir(root)
    import_hook.install()
    agent.allow_building()
    stand_ins.install(Path("tests", file), import_hook.RESERVED)
    outcomes = Outcomes()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not integration", "--rootdir", root]
    code = pytest.main([f"tests/{file}", *options], plugins=[outcomes])
    Path(answer).write_text(json.dumps(outcomes.tests), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads of the tested code must not keep the process
