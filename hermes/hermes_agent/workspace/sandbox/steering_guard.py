"""Stays beside a background command and sets aside what it plants (`steering_watch`), also when the agent has ended.

`guarded` wraps the command into this program, which a keeper (`io.supervise`) runs as if it were the command. Its file
says what there was before; it is gone when the last look was taken. Where it is left, somebody killed the guard, and
the agent takes that look (`finish_abandoned`). Imports the standard library and the modules for it alone.
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
"""What an interpreter with `-I -S -c` runs: source directory, file, program, arguments."""
PAUSE_S = 2.0
"""Between two looks."""
SHARE = 20
"""A look that takes long is taken less often: it may take one part in so many of the time."""
GUARDED = "steering.json"
"""Name of the file; in the directory of a process."""
_APPROVED = "approved.jsonl"


def guard_command(argv: Sequence[str], before: SteeringBaseline, directory: Path) -> list[str]:
    """Return the program that runs `argv` and sets aside what it plants; `directory` is for its file."""
    write_atomic(directory / GUARDED, json.dumps(before.to_json()), mode=PRIVATE)
    source = str(Path(hermes_agent.__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", START, source, str(directory), *argv]


def note_approved(directories: Iterable[Path], path: str, data: bytes) -> None:
    """Tell guards what the user let a file tool write, so that they leave it there."""
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
    """Take the last look of a command that has ended, where its guard did not."""
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
    """Run the command, look at what it plants, and end as it ends."""
    place, *argv = sys.argv[1:]
    directory = Path(place)
    before = SteeringBaseline.from_json(json.loads((directory / GUARDED).read_bytes()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, frame: None)  # the command has got it, too; a last look comes after it
    process = subprocess.Popen(argv)
    ended = select.poll()
    ended.register(os.pidfd_open(process.pid), select.POLLIN)
    pause, told = PAUSE_S, ""
    while not ended.poll(pause * 1000):
        began = time.monotonic()
        told = _check(before, directory, told)
        pause = max(PAUSE_S, SHARE * (time.monotonic() - began))
    process.wait()
    _check(before, directory, told)
    with contextlib.suppress(FileNotFoundError):
        (directory / GUARDED).unlink()
    code = process.returncode
    os._exit(128 - code if code < 0 else code)


def _check(before: SteeringBaseline, directory: Path, told: str) -> str:
    """Set aside what there is, and say it in the command's output, unless that is what was said the last time."""
    before.approved = _approved(directory)
    held = "; ".join(before.finish())
    if held and held != told:
        text = f"[set aside, because other programs of the user would run or obey it: {held}]\n"
        with contextlib.suppress(OSError):
            os.write(1, text.encode("utf-8", "replace"))
    return held
