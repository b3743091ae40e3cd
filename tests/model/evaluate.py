"""`make eval-model`: every situation, asked of the real agent in a fresh home; prints a table and the rates."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fresh_home import CALCULATOR, fresh_home
from situations import Situation, judge, named

MOST_FALSE = 0
"""False answers among the guide's prompts and the failing tools that let the command end well."""


async def evaluate(situations: list[Situation], calculator: Path, runs: int, *, show: bool) -> Counter[tuple[str, str]]:
    """Ask each situation `runs` times, each in a directory of another name; return verdicts by group."""
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="eval-") as folder:
        async with fresh_home(Path(folder), calculator=calculator, plugins=("station",)) as home:
            for run in range(runs):
                for situation in situations:
                    directory = Path(folder) / f"desk-{run}"  # one for all: what the model read before stays read
                    shutil.rmtree(directory, ignore_errors=True)
                    directory.mkdir()
                    situation.prepare(directory)
                    began = time.monotonic()
                    record = await home.ask(situation.question, directory, station=situation.station)
                    verdict, reason = judge(situation, record, directory)
                    counts[situation.group, verdict] += 1
                    seconds = time.monotonic() - began
                    print(
                        f"{situation.group:8} {situation.name:18} {verdict:10} {seconds:5.1f} s  {reason}", flush=True
                    )
                    if show or verdict != "right":
                        for tool, status, result in record.calls:
                            print(f"      {tool}: {status}: {result[:200]!r}")
                        print(f"      = {record.text[:300]!r}", flush=True)
    return counts


def main() -> int:
    """Print the table; 1 when an answer of the guide's prompts or after a failed tool was false."""
    parser = argparse.ArgumentParser(prog="make eval-model")
    parser.add_argument("--only", default="", help="situations whose group or name matches this pattern")
    parser.add_argument("--runs", type=int, default=1, help="how many times each is asked")
    parser.add_argument("--calculator", type=Path, default=CALCULATOR, help="folder of the calculator plugin")
    parser.add_argument("--show", action="store_true", help="show calls and answers of the right ones, too")
    options = parser.parse_args()
    counts = asyncio.run(evaluate(named(options.only), options.calculator, options.runs, show=options.show))
    print(f"\n{'group':10}{'asked':>7}{'right':>7}{'missed':>8}{'FALSE':>7}")
    for group in dict.fromkeys(group for group, _ in counts):
        row = [counts[group, verdict] for verdict in ("right", "missed", "FALSE")]
        print(f"{group:10}{sum(row):7}{row[0]:7}{row[1]:8}{row[2]:7}")
    return int(counts["guide", "FALSE"] + counts["failing", "FALSE"] > MOST_FALSE)


if __name__ == "__main__":
    raise SystemExit(main())
