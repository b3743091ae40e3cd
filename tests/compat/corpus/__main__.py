"""`make compat [ARGS="NAME … [--all]"]`: the table, and how many plugins are as they are with the peer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from compat.corpus.lists import plugins
from compat.corpus.table import Row, rows, show
from compat.corpus.world import offline

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Print a row for each run; return 1 when one is red."""
    parser = argparse.ArgumentParser(prog="make compat", description="Run published plugins and compare with the peer.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these plugins alone; a part of the name will do")
    parser.add_argument("--all", action="store_true", help="show every difference, not the first four of a run")
    parser.add_argument("--no-smoke", action="store_true", help="do not call what was registered")
    options = parser.parse_args(argv)
    chosen = plugins(options.names)
    if not offline():
        print("the runs have the network: `unshare -n` needs root", file=sys.stderr)
    found: list[Row] = []
    for row in rows(chosen, smoke=not options.no_smoke):
        print(show(row, 10_000 if options.all else 4), flush=True)
        found.append(row)
    red = {row.plugin for row in found if not row.green}
    print(f"{len(chosen) - len(red)} of {len(chosen)} plugins green, {len(found)} runs")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
