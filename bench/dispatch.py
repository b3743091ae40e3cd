"""What a tool call costs without a model, and what it costs to say which tools there are.

What is compared runs in turns, a few milliseconds each, and the ratio is the median of those of neighbours: a machine
that others use too changes its speed from one tenth of a second to the next.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from homes import TOOL, Installation, environment, make_home
from rows import Row

__all__ = ["measure"]

INSIDE = Path(__file__).parent / "inside"
HOOKS = ("pre_tool_call", "post_tool_call")
ROUNDS, WARM = 150, 5
"""Turns, and those before them that do not count."""

Ask = Callable[[str, int], float]
"""`ask(name, times)`: the microseconds of one of so many runs."""


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure `model_tools.handle_function_call`, our asynchronous way, and the definitions of 520 tools."""
    rows = []
    for hooks, name in (((), "without hooks"), (HOOKS, "with a pre and a post hook")):
        with contextlib.ExitStack() as stack:
            asked: dict[str, Ask] = {}
            for installation in installations:
                home = folder / f"dispatch-{installation.name}-{len(hooks)}" / "home"
                make_home(home, 1, model_port=9, hooks=hooks)  # nobody asks that model
                asked[installation.name] = stack.enter_context(_running(installation, "dispatch.py", home))
                if installation.is_ours:
                    asked["turns"] = stack.enter_context(_running(installation, "our_calls.py", home))
            found = _in_turns({who: (ask, "call", 100) for who, ask in asked.items() if who != "turns"})
            rows.append(_row(f"handle_function_call {name}", found, budget=1.0))
            if hooks:
                rows.append(_asynchronous(asked))
            else:
                rows.append(_definitions({who: ask for who, ask in asked.items() if who != "turns"}))
    return rows


def _definitions(asked: dict[str, Ask]) -> Row:
    for ask in asked.values():
        ask("fill", 1)
    return _row(
        "definitions of 520 tools",
        _in_turns({who: (ask, "definitions", 2) for who, ask in asked.items()}, ROUNDS // 3),
        budget=0.1,
    )


def _asynchronous(asked: dict[str, Ask]) -> Row:
    """Return what a call of the model's costs more than a hop, by a synchronous call: the peer's, if it is there."""
    turns, other = asked["turns"], asked.get("peer", asked["ours"])
    found = _in_turns({"async": (turns, "async", 50), "hop": (turns, "hop", 50), "call": (other, "call", 100)})
    value = median((a - h) / c for a, h, c in zip(found["async"], found["hop"], found["call"], strict=True))
    shown = f"{median(found['async']):.0f} us, a hop is {median(found['hop']):.0f} us"
    return Row("call of the model's, less a thread hop, by the peer's call", shown, value, budget=3.0)


def _in_turns(asked: dict[str, tuple[Ask, str, int]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {who: [] for who in asked}
    for turn in range(WARM + rounds):
        for who, (ask, name, times) in asked.items():
            value = ask(name, times)
            if turn >= WARM:
                found[who].append(value)
    return found


def _row(name: str, found: dict[str, list[float]], budget: float) -> Row:
    ours = median(found["ours"])
    if "peer" not in found:
        return Row(name, f"{ours:.1f} us CPU", ours)
    ratio = median(mine / theirs for mine, theirs in zip(found["ours"], found["peer"], strict=True))
    return Row(f"{name}, by the peer's", f"{ours:.1f} / {median(found['peer']):.1f} us CPU", ratio, budget)


@contextlib.contextmanager
def _running(installation: Installation, script: str, home: Path) -> Iterator[Ask]:
    """Start a script of `inside` and yield what asks it."""
    run = ["-m", "hermes_agent.compat"] if installation.is_ours and script == "dispatch.py" else []
    command = [installation.python, *run, str(INSIDE / script), TOOL]
    errors = home.parent / f"{script}.log"
    with errors.open("w") as log:
        process = subprocess.Popen(
            command, env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(name: str, times: int) -> float:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{name} {times}\n")
                process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise SystemExit(f"{script} of {installation.name} failed:\n{errors.read_text()[-2000:]}")
            return float(answer)

        try:
            yield ask
        finally:
            process.kill()
            process.communicate()
