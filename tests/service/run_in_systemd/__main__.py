"""`python -m run_in_systemd`: the harness at the command line, for a look by hand.

    python -m run_in_systemd --unit a.service --bind "$PWD/.venv:/opt/a" -- SCRIPT [ARG]...

Exit status: the script's; 125 when the container could not do its part.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from run_in_systemd.container import Container, read_journal
from run_in_systemd.directory import run_directory
from run_in_systemd.plan import HarnessError
from run_in_systemd.requirements import PACKAGES, systemd_version, unavailable

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one script and return its exit status."""
    args = _parser().parse_args(argv)
    if args.packages:
        print("\n".join(f"{name}\t{use}" for name, use in PACKAGES.items()))
        return 0
    if (why := unavailable(args.root)) is not None:
        print(f"run_in_systemd: {why}", file=sys.stderr)
        return 125
    if not args.command:
        print(f"ok: systemd {systemd_version(args.root)}")
        return 0
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    script: Path | list[str] = args.command[:1]
    if os.path.isfile(args.command[0]):
        script = Path(args.command[0])
    try:
        with run_directory() as directory:
            return _run(args, directory, script)
    except HarnessError as exc:
        print(f"run_in_systemd: {exc}", file=sys.stderr)
        return 125


def _run(args: argparse.Namespace, directory: Path, script: Path | list[str]) -> int:
    container = Container(
        units={os.path.basename(unit.rstrip("/")): Path(unit) for unit in args.unit},
        enable=args.enable,
        binds=dict(bind.split(":", 1) for bind in args.bind),
        environment=dict(pair.split("=", 1) for pair in args.setenv),
        root=args.root,
    )
    out, err = sys.stdout.buffer, sys.stderr.buffer
    status, _ = container.stream(
        directory,
        script,
        args.command[1:],
        lambda data: (out.write(data), out.flush()),
        lambda data: (err.write(data), err.flush()),
        timeout_s=args.timeout,
    )
    if args.journal:
        Path(args.journal).write_text("".join(json.dumps(e) + "\n" for e in read_journal(directory)))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m run_in_systemd", description="Run a script under a real systemd.")
    o = parser.add_argument
    o("--unit", action="append", default=[], metavar="FILE", help="unit file or drop-in directory (repeatable)")
    o("--enable", action="append", default=[], metavar="UNIT", help="start it with the boot (repeatable)")
    o("--bind", action="append", default=[], metavar="SRC:DST[:rw]", help="show SRC at DST (repeatable)")
    o("--setenv", action="append", default=[], metavar="K=V", help="for the script (repeatable)")
    o("--root", default="/", metavar="DIR", help="another root file system, e.g. with a newer systemd")
    o("--timeout", type=float, default=90, metavar="S", help="for the script (90)")
    o("--journal", metavar="FILE", help="write the journal there, as JSON lines")
    o("--packages", action="store_true", help="list the Debian packages that are needed")
    o("command", nargs="*", metavar="SCRIPT", help="a file of the host, or a command; none: say whether it can be done")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
