"""The answers of an evaluation on disk, so that a later run continues; and the table that is made of them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import statistics
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operator" / "models-embedded.md"
ADAPTER = ROOT / "plugins" / "model-providers" / "local"
NOT_ABOUT_ANSWERS = {"availability", "commands", "download", "sources", "weights", "server", "server_process"} | {
    *("gguf", "template_request"),  # of models of one's own
}
BEGIN, END = "<!-- evaluation: written by make eval -->", "<!-- end of evaluation -->"
MOST_WRONG = {"everyday": (60, 12), "guide": (40, 2)}
"""Suite to how many are asked and how many of them may be wrong."""


class AskedItem(NamedTuple):
    """One judged item of a suite."""

    suite: str
    group: str
    name: str
    verdict: str
    """`right`, `missed`, `FALSE` or, without a difference between the last two, `wrong`."""
    reason: str
    seconds: float
    answer: str
    calls: list[Any]

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the item in each run."""
        return self.suite, self.group, self.name


def adapter_hash() -> str:
    """Return the state of the sources that decide an answer."""
    digest = hashlib.sha256()
    for path in sorted(ADAPTER.glob("*.py")):
        if path.stem not in NOT_ABOUT_ANSWERS:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class EvaluationRecord:
    """The file of answers.

    Args:
        keep_older: also take answers of another state of the adapter.
    """

    def __init__(self, path: Path, *, keep_older: bool = False) -> None:
        self.path = path
        self.adapter = adapter_hash()
        self.items: dict[tuple[str, str, str], AskedItem] = {}
        self._states: dict[tuple[str, str, str], str] = {}
        if path.is_file():
            for line in path.read_text().splitlines():
                saved = json.loads(line)
                state = saved.pop("adapter")
                if state == self.adapter or keep_older:
                    item = AskedItem(**saved)
                    self.items[item.key], self._states[item.key] = item, state

    def add(self, item: AskedItem) -> None:
        """Keep the item, on disk at once."""
        self.items[item.key], self._states[item.key] = item, self.adapter
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"adapter": self.adapter, **item._asdict()}, ensure_ascii=False) + "\n")

    def table(self) -> str:
        """Return the table in Markdown: a row for each group."""
        groups: dict[tuple[str, str], list[AskedItem]] = {}
        for item in self.items.values():
            groups.setdefault((item.suite, item.group), []).append(item)
        lines = ["| suite | group | asked | right | median seconds |", "| --- | --- | --- | --- | --- |"]
        for suite in dict.fromkeys(suite for suite, _ in groups):
            rows = [(group, items) for (of, group), items in groups.items() if of == suite]
            lines += [_row(suite, group, items) for group, items in rows]
            if len(rows) > 1 and suite != "bfcl":
                lines.append(_row(suite, "**all**", [item for _, items in rows for item in items]))
        return "\n".join(lines)

    def write_page(self, page: Path = PAGE) -> None:
        """Write the table between its marks in the page."""
        text = page.read_text()
        suites: dict[str, list[str]] = {}
        for key, state in self._states.items():
            suites.setdefault(state, []).append(key[0])
        states = "; ".join(f"`{state}` ({', '.join(sorted(set(names)))})" for state, names in suites.items())
        head = f"Measured on {date.today():%Y-%m-%d}: {machine()}. State of the adapter: {states}."
        body = f"{BEGIN}\n\n{head}\n\n{self.table()}\n\n{END}"
        pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
        changed, count = re.subn(pattern, lambda _: body, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{page} has no marks for the table")
        page.write_text(changed)

    def find_shortfalls(self) -> Iterable[str]:
        """Yield the suites that are complete and below what they have to reach, each with its figures."""
        for suite, (asked, wrong) in MOST_WRONG.items():
            items = [item for item in self.items.values() if item.suite == suite]
            right = sum(item.verdict == "right" for item in items)
            if len(items) - right > wrong:
                yield f"{suite}: {right} of {len(items)} right; {asked - wrong} of {asked} have to be"
        false = [item.name for item in self.items.values() if item.suite == "failing" and item.verdict == "FALSE"]
        if false:
            yield f"false sentences after failed tools: {', '.join(false)}"


def _row(suite: str, group: str, items: list[AskedItem]) -> str:
    right = sum(item.verdict == "right" for item in items)
    return f"| {suite} | {group} | {len(items)} | {right} | {statistics.median(i.seconds for i in items):.1f} |"


def machine() -> str:
    """Return processor, cores and memory of this machine."""
    info = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = found[1].strip() if found else platform.machine()
    return f"{name}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GB"
