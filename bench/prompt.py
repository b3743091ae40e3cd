"""The console: its first prompt against a bare prompt_toolkit prompt, and the frames of a long answer."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from homes import Installation, environment, make_home
from rows import Row

__all__ = ["measure"]

RUNS = 12
FRAME_RUNS = 3
TERM = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
PROMPT = "❯".encode()
HELLO = "from prompt_toolkit import PromptSession; PromptSession().prompt('❯ ')"
LIMIT_S = 30


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure the first prompt of our installation."""
    home = folder / "prompt" / "home"
    make_home(home, 3, model_port=9)  # no request is sent before the first question
    rows = []
    for installation in installations:
        if not installation.is_ours:
            continue  # another console has another prompt
        commands = [[str(installation.python), "-c", HELLO], [str(installation.hermes)]]
        spent: list[list[float]] = [[] for _ in commands]
        env = {**environment(home), "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
        for _ in range(RUNS):  # in turns, so that what else the machine does is added to both
            for command, times in zip(commands, spent, strict=True):
                times.append(_cpu_ms_to_prompt(command, env))
        hello, ours = map(min, spent)
        rows += [
            Row("python, a bare prompt_toolkit prompt", f"{hello:.0f} ms CPU", 1.0, None),
            Row("hermes: the first prompt, in bare prompts", f"{ours:.0f} ms CPU", ours / hello, 3.0),
            *_frames(installation, folder),
        ]
    return rows


def _frames(installation: Installation, folder: Path) -> list[Row]:
    """Return the CPU time of the frames of an answer of 100 kB: the best of several runs for each frame."""
    program, out = Path(__file__).parent / "inside" / "frames.py", folder / "frames.json"
    runs = []
    for _ in range(FRAME_RUNS):
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(folder)
            os.execve(installation.python, [installation.python, str(program), str(out)], environment(folder) | TERM)
        with contextlib.suppress(OSError):  # the program has ended
            while os.read(terminal, 65_536):
                pass
        os.waitpid(child, 0)
        os.close(terminal)
        runs.append(json.loads(out.read_text()))
    best = sorted(map(min, zip(*runs, strict=True)))
    slow = best[len(best) * 99 // 100]
    shown = f"{best[len(best) // 2]:.1f} ms in the middle, {best[-1]:.1f} ms at most"
    return [Row(f"{len(best)} frames of 100 kB: CPU milliseconds of 99 in 100", shown, slow, 10.0)]


def _cpu_ms_to_prompt(command: Sequence[str], env: dict[str, str]) -> float:
    """Return the CPU time of all threads of a program until its terminal shows the prompt, in milliseconds."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], list(command), env)
    seen, until = b"", time.monotonic() + LIMIT_S
    try:
        while PROMPT not in seen:
            if time.monotonic() > until or not select.select([terminal], [], [], LIMIT_S)[0]:
                sys.exit(f"{command[0]} showed no prompt within {LIMIT_S} s:\n{seen.decode(errors='replace')}")
            try:
                seen += os.read(terminal, 65_536)
            except OSError:  # the program has ended
                sys.exit(f"{command[0]} ended before its prompt:\n{seen.decode(errors='replace')}")
    finally:
        os.kill(child, signal.SIGKILL)
        usage = os.wait4(child, 0)[2]
        os.close(terminal)
    return (usage.ru_utime + usage.ru_stime) * 1000
