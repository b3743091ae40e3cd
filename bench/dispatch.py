"""What a tool call costs without a model, and what it costs to say which tools there are.

What is compared runs in turns, a few milliseconds each, and the ratio is the median of those of neighbours: a machine
that others use too changes its speed from one tenth of a second to the next. And it runs in several processes each, for
one may be half as fast again as another of the same program, by where its memory happens to lie.
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
PROCESSES = 7
ROUNDS, WARM = 30, 5
"""Turns of each, and those before them that do not count."""
GOAL, NOISE = 0.8, 0.05
"""The goal of a call with hooks, and by how much a busy machine moves the figure."""
HOP_NOISE = 0.2
"""By how much it moves the figure of a call less a hop: the hop takes 65 to 80 us."""

Ask = Callable[[str, int], float]
"""`ask(name, times)`: the microseconds of one of so many runs."""
Found = dict[str, list[float]]
"""Of each of the asked, what it answered, turn by turn."""


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure `model_tools.handle_function_call`, our asynchronous way, and the definitions of 520 tools."""
    plain, hooked, listed, turns = [], [], [], []
    for number in range(PROCESSES):
        place = folder / f"dispatch-{number}"
        with contextlib.ExitStack() as stack:
            asked = _all_running(stack, installations, place / "plain")
            plain.append(_in_turns({who: (ask, "call", 100) for who, ask in asked.items()}))
            for ask in asked.values():
                ask("fill", 1)
            listed.append(_in_turns({who: (ask, "definitions", 2) for who, ask in asked.items()}, 7))
        with contextlib.ExitStack() as stack:
            asked = _all_running(stack, installations, place / "hooked", HOOKS)
            hooked.append(_in_turns({who: (ask, "call", 100) for who, ask in asked.items()}))
            ours = next(one for one in installations if one.is_ours)
            turn = stack.enter_context(_running(ours, "our_calls.py", place / "turns", HOOKS))
            call = asked.get("peer", asked["ours"])
            turns.append(
                _in_turns({"async": (turn, "async", 50), "hop": (turn, "hop", 50), "call": (call, "call", 100)})
            )
    return [
        _row("handle_function_call without hooks", plain, budget=1.0),
        _row("handle_function_call with a pre and a post hook", hooked, budget=GOAL + NOISE),
        _row("definitions of 520 tools", listed, budget=0.1),
        _asynchronous(turns),
    ]


def _asynchronous(found: list[Found]) -> Row:
    """Return what a call of the model's costs more than a hop, by a synchronous call: the peer's, if it is there."""
    ratios = [[(a - h) / c for a, h, c in zip(one["async"], one["hop"], one["call"], strict=True)] for one in found]
    shown = f"{_middle(found, 'async'):.0f} us, a hop is {_middle(found, 'hop'):.0f} us"
    value = median(map(median, ratios))
    return Row("call of the model's, less a thread hop, by the peer's call", shown, value, budget=3.0 + HOP_NOISE)


def _middle(found: list[Found], who: str) -> float:
    return median(median(one[who]) for one in found)


def _in_turns(asked: dict[str, tuple[Ask, str, int]], rounds: int = ROUNDS) -> Found:
    found: Found = {who: [] for who in asked}
    for turn in range(WARM + rounds):
        for who, (ask, name, times) in asked.items():
            value = ask(name, times)
            if turn >= WARM:
                found[who].append(value)
    return found


def _row(name: str, found: list[Found], budget: float) -> Row:
    ours = _middle(found, "ours")
    if "peer" not in found[0]:
        return Row(name, f"{ours:.1f} us CPU", ours)
    ratios = [[mine / theirs for mine, theirs in zip(one["ours"], one["peer"], strict=True)] for one in found]
    shown = f"{ours:.1f} / {_middle(found, 'peer'):.1f} us CPU"
    return Row(f"{name}, by the peer's", shown, median(map(median, ratios)), budget)


def _all_running(
    stack: contextlib.ExitStack, installations: Sequence[Installation], folder: Path, hooks: Sequence[str] = ()
) -> dict[str, Ask]:
    return {one.name: stack.enter_context(_running(one, "dispatch.py", folder, hooks)) for one in installations}


@contextlib.contextmanager
def _running(installation: Installation, script: str, folder: Path, hooks: Sequence[str] = ()) -> Iterator[Ask]:
    """Start a script of `inside`, with a plugin that has those hooks, and yield what asks it."""
    home = folder / installation.name / "home"
    make_home(home, 1, model_port=9, hooks=hooks)  # nobody asks that model
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
