"""The committed list of upstream's tests: which pass, which lean on private structure, which differ and why.

`list.txt` has a section for each file. A line has a verdict, a reason, and the tests, each class once:
`pass: TestName::one two`, `private NAME: …`, `differs KEY: …`, `skipped: …`. The keys are those of `reasons.toml`,
which names the tests of each reason as patterns.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import groupby

from compat.corpus.lists import DATA
from compat.peer_suite.run import Outcome

PLACE = DATA.parent / "upstream_tests"
LIST, REASONS = PLACE / "list.txt", PLACE / "reasons.toml"
UNEXPLAINED = "unexplained"
WIDTH = 116
SPACE = "␣"
"""Stands for a space in the name of a test, since spaces separate the names."""
PRIVATE = (
    re.compile(r"PrivateStructureError: ([\w.]+)"),
    re.compile(r"module '([\w.]+)'.* has no attribute '(\w+)'"),
    re.compile(r"<module '([\w.]+)'.*(?:does not have the|has no) attribute '(\w+)'"),
    re.compile(r"No module named '([\w.]+)'"),
    re.compile(r"<class '([\w.]+)'> does not have the attribute '(_\w+)'"),
    re.compile(r"'(\w+)' object has no attribute '(\w+)'"),
    re.compile(r"property '(\w+)' of '\w+' object has no setter"),
    re.compile(r"(PluginManager)\.__init__\(\) missing"),
    re.compile(r"StandIn()\b|object\.readline\(\) returned non-string()"),
)
"""Errors by which a test leans on a name that is not served."""

Verdicts = dict[str, str]
"""The verdict by test: `pass`, `private NAME`, `differs KEY` or `skipped`."""


def judge(file: str, outcomes: Iterable[Outcome], reasons: Mapping[str, Mapping[str, list[str]]]) -> Verdicts:
    """Return the verdict of each test of a file."""
    return {outcome.test: _verdict(file, outcome, reasons) for outcome in outcomes}


def load_reasons() -> dict[str, dict[str, list[str]]]:
    """Return the patterns of each reason's tests, by file."""
    return {key: row["tests"] for key, row in tomllib.loads(REASONS.read_text(encoding="utf-8")).items()}


def load_list() -> dict[str, Verdicts]:
    """Return the committed verdicts by file."""
    found: dict[str, Verdicts] = {}
    verdict = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            tests = found[line[1:-1]] = {}
            continue
        if not line or line.startswith("#"):
            continue
        rest = line
        if not line.startswith(" "):
            verdict, _, rest = f"{line} ".partition(": ")
        for word in rest.split():
            group, there, name = word.rpartition("::")
            if there:
                prefix = f"{group}::"
            elif word.startswith("="):
                prefix, name = "", word[1:]
            tests[(prefix + name).replace(SPACE, " ")] = verdict
    return found


def text_of(found: Mapping[str, Verdicts]) -> str:
    """Return the list as text."""
    lines = [
        "# Upstream's tests and what came of each here; `make upstream-tests DIR=… ARGS=--write` writes this list.",
        f"# `Class::one two` are two tests of a class, `=one` is a test outside a class, `{SPACE}` a space in a name.",
    ]
    for file, verdicts in found.items():
        lines.append(f"\n[{file}]")
        for verdict in sorted(set(verdicts.values()), key=lambda v: (v != "pass", v)):
            tests = sorted((t for t, v in verdicts.items() if v == verdict), key=_class_of)
            words: list[str] = []
            for group, names in groupby(tests, key=_class_of):
                short = [name.removeprefix(f"{group}::") if group else f"={name}" for name in names]
                short = [name.replace(" ", SPACE) for name in short]
                words += [f"{group}::{short[0]}", *short[1:]] if group else short
            lines += _wrap(f"{verdict}: ", words)
    return "\n".join(lines) + "\n"


def changes(expected: Mapping[str, Verdicts], found: Mapping[str, Verdicts]) -> list[str]:
    """Return a line for each test of the run files with another verdict than the committed one."""
    lines = []
    for file, verdicts in found.items():
        before = expected.get(file, {})
        for test in sorted({*before, *verdicts}):
            there, here = before.get(test, "not on the list"), verdicts.get(test, "not run")
            if there != here:
                lines.append(f"{file}::{test}: {there} on the list, {here} now")
    return lines


def _verdict(file: str, outcome: Outcome, reasons: Mapping[str, Mapping[str, list[str]]]) -> str:
    if outcome.result == "passed":
        return "pass"
    if outcome.result == "skipped":
        return "skipped"
    for key, tests in reasons.items():
        if any(fnmatchcase(outcome.test, pattern) for pattern in tests.get(file, ())):
            return f"differs {key}"
    for shape in PRIVATE:
        match = shape.search(outcome.cause)
        if match:
            return f"private {'.'.join(filter(None, match.groups()))}".strip()
    return UNEXPLAINED


def _class_of(test: str) -> str:
    return test.partition("[")[0].rpartition("::")[0]


def _wrap(head: str, words: list[str]) -> list[str]:
    lines, line = [], head.rstrip()
    for word in words:
        if len(line) + 1 + len(word) > WIDTH and line.strip():
            lines.append(line)
            line = " "
        line += f" {word}"
    return [*lines, line]
