"""Measure, and compare with budgets: `make bench` (README.md beside this file says what and how)."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import daemon
import dispatch
import local_model
import prompt
import sandbox
import startup
import turns
from homes import Installation
from rows import table

__all__ = ["main"]

SECTIONS = {
    "startup": startup,
    "prompt": prompt,
    "dispatch": dispatch,
    "turns": turns,
    "daemon": daemon,
    "sandbox": sandbox,
    "model": local_model,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; 1 when a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, metavar="VENV", help="a venv with another hermes-agent, measured beside")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"only these of: {', '.join(SECTIONS)}")
    args = parser.parse_args(argv)
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}: {', '.join(SECTIONS)}")
    installations = [Installation("ours", Path(sys.executable).parent)]
    if args.peer:
        installations.append(Installation("peer", args.peer.resolve() / "bin"))
    rows = []
    for name in args.sections or SECTIONS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found = SECTIONS[name].measure(installations, Path(folder))
        table(f"{name}: {(SECTIONS[name].__doc__ or '').partition('.')[0]}", found)
        rows += found
    missed = sum(row.missed for row in rows)
    print(f"\n{missed} of {sum(r.budget is not None or r.floor is not None for r in rows)} budgets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
