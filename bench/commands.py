"""Judge the corpus of shell commands, and count misses and false alarms; on wish, the peer's detector beside ours.

make commands                       ours; exit 1 when a hard-line command runs, over 2 % miss, or over 5 % alarm falsely
make commands ARGS='--peer DIR'     the detector of a peer's venv on the same commands
make commands ARGS='--all'          name each command that was judged wrong
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from hermes_agent.policy.shell import judge

__all__ = ["main"]

DATA = Path(__file__).parents[1] / "tests" / "data" / "policy"
PEER = """
import json, sys
from tools.approval import detect_dangerous_command, detect_hardline_command
out = []
for command in json.load(sys.stdin):
    hard = detect_hardline_command(command)
    found = detect_dangerous_command(command)
    out.append("hardline" if hard[0] else "dangerous" if found[0] else "harmless")
json.dump(out, sys.stdout)
"""


def corpus() -> list[tuple[str, str]]:
    """Return each command with the verdict that is right: `hardline`, `dangerous` or `harmless`."""
    keyed = yaml.safe_load((DATA / "commands.yaml").read_text())
    found = [
        (section.replace("disguised", "hardline"), command)
        for section in ("hardline", "disguised", "dangerous")
        for commands in keyed[section].values()
        for command in commands
    ]
    found += [("harmless", command) for command in keyed["harmless"]]
    plain = yaml.safe_load((DATA / "verdicts.yaml").read_text())
    return found + [(verdict, command) for verdict, commands in plain.items() for command in commands]


def ours(commands: Sequence[str]) -> list[str]:
    """Return our verdicts."""
    judged = map(judge, commands)
    return ["hardline" if found.hardline else "dangerous" if found.keys else "harmless" for found in judged]


def peers(venv: Path, commands: Sequence[str]) -> list[str]:
    """Return the verdicts of the detector that is installed in a venv."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [venv / "bin" / "python", "-c", PEER],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "/usr/bin:/bin", "HOME": home, "HERMES_HOME": home},
        )
    return list(json.loads(done.stdout))


def rates(wanted: Sequence[str], given: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return (how many, of how many) for each kind of mistake."""
    pairs = list(zip(wanted, given, strict=True))

    def count(kind: str, *wrong: str) -> tuple[int, int]:
        mine = [got for want, got in pairs if want == kind]
        return sum(got in wrong for got in mine), len(mine)

    return {
        "hard-line that is not refused": count("hardline", "dangerous", "harmless"),
        "hard-line that runs unasked": count("hardline", "harmless"),
        "dangerous that is missed": count("dangerous", "harmless"),
        "harmless that is asked about": count("harmless", "dangerous", "hardline"),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 when ours is over the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="directory of a venv that has the published program")
    parser.add_argument("--all", action="store_true", help="name each command that was judged wrong")
    options = parser.parse_args(argv)
    wanted, commands = map(list, zip(*corpus(), strict=True))
    columns = {"ours": ours(commands)}
    if options.peer is not None:
        columns["peer"] = peers(options.peer, commands)
    tables = {name: rates(wanted, given) for name, given in columns.items()}
    print(f"{len(commands)} commands" + "".join(f"{name:>22}" for name in tables))
    for row in next(iter(tables.values())):
        cells = [table[row] for table in tables.values()]
        print(f"{row:32}" + "".join(f"{n:>6} of {of} ({n / of:6.1%})" for n, of in cells))
    for name, given in columns.items() if options.all else ():
        for want, got, command in zip(wanted, given, commands, strict=True):
            if want != got and (want, got) != ("dangerous", "hardline"):
                print(f"{name}: {got} instead of {want}: {command!r}")
    own = {row: n / of for row, (n, of) in tables["ours"].items()}
    over = [limit for limit, row in ((0, 0), (0.02, 2), (0.05, 3)) if list(own.values())[row] > limit]
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
