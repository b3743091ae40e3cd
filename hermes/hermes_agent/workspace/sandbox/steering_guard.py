"""Guard program of a background command: sets aside its steering files, also without the agent.

`guard_command` wraps a command into this program, which a keeper (`system.process_keeper`) runs in place of it. Its
file has the baseline of steering files, and is deleted after the last check. If the guard was killed, the file remains,
and the agent makes the last check (`finish_abandoned`). Imports little, because it runs with `-I -S`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import hermes_agent
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.workspace.sandbox.steering_watch import SteeringBaseline, digest

START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from hermes_agent.workspace.sandbox.steering_guard import main; main()"
)
"""Code for an interpreter with `-I -S -c`; its arguments: source directory, directory, program, arguments."""
PAUSE_S = 2.0
"""Shortest time between two checks."""
SHARE = 20
"""Checks may take one part in this many of the time; slow checks run less often."""
GUARDED = "steering.json"
"""Name of the file with the baseline in the directory of a process."""
_APPROVED = "approved.jsonl"


def guard_command(argv: Sequence[str], before: SteeringBaseline, directory: Path) -> list[str]:
    """Return the program that runs `argv` under a guard, with its file in `directory`."""
    write_atomic(directory / GUARDED, json.dumps(before.to_json()), mode=PRIVATE)
    source = str(Path(hermes_agent.__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", START, source, str(directory), *argv]


def note_approved(directories: Iterable[Path], path: str, data: bytes) -> None:
    """Record for guards what the user allowed a file tool to write, so that they leave it."""
    line = json.dumps([path, digest(data)]) + "\n"
    for directory in directories:
        if (directory / GUARDED).exists():
            with contextlib.suppress(OSError), (directory / _APPROVED).open("a") as file:
                file.write(line)


def _approved(directory: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(line) for line in (directory / _APPROVED).read_text().splitlines())
    return {}


def finish_abandoned(directory: Path) -> None:
    """Make the last check of an ended command if its guard did not."""
    try:
        before = SteeringBaseline.from_json(json.loads((directory / GUARDED).read_bytes()))
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError):
        before = None
    if before is not None:
        before.approved = _approved(directory)
        before.finish()
    with contextlib.suppress(FileNotFoundError):
        (directory / GUARDED).unlink()


def main() -> None:
    """Run the command, check its steering files, and exit with its exit code."""
    place, *argv = sys.argv[1:]
    directory = Path(place)
    before = SteeringBaseline.from_json(json.loads((directory / GUARDED).read_bytes()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, frame: None)  # the command gets it, too; the last check follows
    process = subprocess.Popen(argv)
    ended = select.poll()
    ended.register(os.pidfd_open(process.pid), select.POLLIN)
    pause, reported = PAUSE_S, ""
    while not ended.poll(pause * 1000):
        began = time.monotonic()
        reported = _check(before, directory, reported)
        pause = max(PAUSE_S, SHARE * (time.monotonic() - began))
    process.wait()
    _check(before, directory, reported)
    with contextlib.suppress(FileNotFoundError):
        (directory / GUARDED).unlink()
    code = process.returncode
    os._exit(128 - code if code < 0 else code)


def _check(before: SteeringBaseline, directory: Path, reported: str) -> str:
    """Set aside steering files, and report it in the output of the command unless `reported` has it."""
    before.approved = _approved(directory)
    held = "; ".join(before.finish())
    if held and held != reported:
        text = f"[set aside, because other programs of the user would run or obey it: {held}]\n"
        with contextlib.suppress(OSError):
            os.write(1, text.encode("utf-8", "replace"))
    return held
