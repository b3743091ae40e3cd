"""`make compat [ARGS="NAME … [--all]"]`: the table, and how many plugins are as they are with the peer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from compat.corpus.expect import recorded
from compat.corpus.lists import plugins
from compat.corpus.table import rows, show
from compat.corpus.world import offline

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Print a row for each run; return 1 when one is red."""
    parser = argparse.ArgumentParser(prog="make compat", description="Run published plugins and compare with the peer.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these plugins alone; a part of the name will do")
    parser.add_argument("--all", action="store_true", help="show every difference, not the first four of a run")
    parser.add_argument("--no-smoke", action="store_true", help="do not call what was registered")
    parser.add_argument("--later", metavar="DIR", type=Path, help="a folder with the repositories of contract23.toml")
    parser.add_argument("--record", action="store_true", help="write what is expected of contract23")
    options = parser.parse_args(argv)
    chosen = plugins(options.names, later=options.later)
    if not offline():
        print("the runs have the network: `unshare -n` needs root", file=sys.stderr)
    if options.record:
        for plugin in chosen:
            print(recorded(plugin), flush=True)
        return 0
    green: dict[str, list[bool]] = {}
    for plugin, found in rows(chosen, smoke=not options.no_smoke):
        if any(row.verdict == "skipped" for row in found):
            print(show(found[0]), flush=True)
            continue
        for row in found:
            print(show(row, 10_000 if options.all else 4), flush=True)
        green.setdefault(plugin.listing, []).append(all(row.green for row in found))
    for listing, verdicts in green.items():
        print(f"{listing}: {sum(verdicts)} of {len(verdicts)} plugins green")
    return 0 if all(all(verdicts) for verdicts in green.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
