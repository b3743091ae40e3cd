"""What a tool call costs without a model, and what it costs to say which tools there are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from homes import TOOL, Installation, environment, make_home
from rows import Row

__all__ = ["measure"]

INSIDE = Path(__file__).parent / "inside"
HOOKS = ("pre_tool_call", "post_tool_call")
ROUNDS = 4
"""Of both installations in turn, the least of which counts: a machine that others use too is slow now and then."""


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure `model_tools.handle_function_call`, our asynchronous way, and the definitions of 520 tools."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for turn in range(ROUNDS):
        for hooks in ((), HOOKS):
            for installation in installations:
                home = folder / f"dispatch-{installation.name}-{len(hooks)}-{turn}" / "home"
                make_home(home, 1, model_port=9, hooks=hooks)  # nobody asks that model
                measured = _run(installation, home)
                least = found.setdefault((installation.name, len(hooks)), measured)
                least.update({name: min(value, least[name]) for name, value in measured.items()})
    rows = []
    for count, name in ((0, "without hooks"), (2, "with a pre and a post hook")):
        rows.append(_row(f"handle_function_call {name}", "call", found, count, budget=1.0))
    rows.append(_row("definitions of 520 tools", "definitions", found, 0, budget=0.1))
    asynchronous = found["ours", 2]
    hop = asynchronous["hop"]
    shown = f"{asynchronous['async']:.0f} us, a hop is {hop:.0f} us"
    limit = found.get(("peer", 2), found["ours", 2])["call"]
    name = "call of the model's, less a thread hop, by the peer's call"
    rows.append(Row(name, shown, (asynchronous["async"] - hop) / limit, budget=3.0))
    return rows


def _row(name: str, what: str, found: dict[tuple[str, int], dict[str, float]], count: int, budget: float) -> Row:
    ours = found["ours", count][what]
    if ("peer", count) not in found:
        return Row(name, f"{ours:.1f} us CPU", ours)
    theirs = found["peer", count][what]
    return Row(f"{name}, by the peer's", f"{ours:.1f} / {theirs:.1f} us CPU", ours / theirs, budget)


def _run(installation: Installation, home: Path) -> dict[str, float]:
    run = ["-m", "hermes_agent.compat"] if installation.is_ours else []
    command = [installation.python, *run, str(INSIDE / "dispatch.py"), TOOL]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"dispatch.py failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    if installation.is_ours:
        command = [installation.python, str(INSIDE / "our_calls.py"), TOOL]
        found |= json.loads(subprocess.run(command, env=environment(home), stdout=subprocess.PIPE, check=True).stdout)
    return found
