"""`make upstream-tests DIR=… [ARGS="FILE … [--write]"]`: run upstream's tests and compare with the list."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from compat.peer_suite.outcomes import LIST, REASONS, UNEXPLAINED, changes, judge, load_list, load_reasons, text_of
from compat.peer_suite.run import COMMIT, NotFound, Outcome, extract, run_files


def main(argv: Sequence[str]) -> int:
    """Run the files; return 1 when a test's verdict differs from the list, 2 when there are no tests."""
    parser = argparse.ArgumentParser(prog="make upstream-tests", description="Run upstream's own tests.")
    parser.add_argument("directory", metavar="DIR", help=f"upstream's checkout or git directory with commit {COMMIT}")
    parser.add_argument("names", nargs="*", metavar="FILE", help="these files alone; a part of the name will do")
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name}")
    parser.add_argument("--causes", action="store_true", help="show why each test fails")
    options = parser.parse_args(argv)
    expected = load_list()
    files = [name for name in expected if not options.names or any(part in name for part in options.names)]
    reasons = load_reasons()
    found = {}
    with tempfile.TemporaryDirectory(prefix="upstream-tests-", ignore_cleanup_errors=True) as place:
        root = Path(place)
        try:
            extract(Path(options.directory).resolve(), files, root)
        except NotFound as exc:
            print(f"make upstream-tests: {exc}", file=sys.stderr)
            return 2
        for file, outcomes in run_files(root, files):
            found[file] = judge(file, outcomes, reasons)
            _show(file, outcomes, found[file], causes=options.causes)
    if options.write:
        LIST.write_text(text_of({**expected, **found}), encoding="utf-8")
    total = Counter(verdict.partition(" ")[0] for verdicts in found.values() for verdict in verdicts.values())
    print(", ".join(f"{total[kind]} {text}" for kind, text in KINDS.items() if total[kind]))
    different = [] if options.write else changes(expected, found)
    for line in different:
        print(line)
    if total[UNEXPLAINED]:
        print(f"{total[UNEXPLAINED]} tests fail without a reason in {REASONS.name}", file=sys.stderr)
    return 1 if different or total[UNEXPLAINED] else 0


KINDS = {
    "pass": "pass",
    "private": "lean on private structure",
    "differs": "differ on purpose",
    "skipped": "are skipped",
    UNEXPLAINED: "have no reason",
}


def _show(file: str, outcomes: Sequence[Outcome], verdicts: dict[str, str], *, causes: bool) -> None:
    count = Counter(verdict.partition(" ")[0] for verdict in verdicts.values())
    print(f"{file:60} {' '.join(f'{kind} {count[kind]}' for kind in KINDS if count[kind])}", flush=True)
    for outcome in outcomes:
        verdict = verdicts[outcome.test]
        if verdict == UNEXPLAINED or (causes and verdict not in ("pass", "skipped")):
            print(f"    {outcome.test} [{verdict}]: {outcome.cause}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
