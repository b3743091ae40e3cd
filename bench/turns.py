"""What a turn costs against an instant model: CPU time beside the peer's, over a long session, in a new session."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import stub_model
from homes import TOOL, Installation, environment, make_home
from rows import Row

__all__ = ["measure"]

INSIDE = Path(__file__).parent / "inside"
LONG = 500
"""Turns of our long session."""
SESSIONS = 80
PEER_TURNS = 30
WINDOW = 12_000
"""Tokens that the model of a session sees that outgrows it; the stub reports 105 tokens for every request."""
WARM = 3
"""First turns of a process that are not counted: they import what the others need."""


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure turns without and with a tool call (one call, two requests)."""
    rows = []
    for kind in ("text", "tool"):
        ours, peer = {}, {}
        for installation in installations:
            with stub_model.running(TOOL) as port:
                home = folder / f"turns-{kind}-{installation.name}" / "home"
                make_home(home, 1, port)
                if installation.is_ours:
                    ours = _run(installation, home, "our_turns.py", kind, LONG, SESSIONS)
                else:
                    peer = _run(installation, home, "peer_turns.py", kind, PEER_TURNS, f"http://127.0.0.1:{port}/v1")
        early = ours["turns"][WARM : PEER_TURNS + WARM]
        if peer:
            theirs = peer["turns"][WARM:]
            shown = f"{median(early):.1f} / {median(theirs):.1f} ms CPU"
            rows.append(Row(f"{kind} turn, by the peer's", shown, median(early) / median(theirs), budget=0.1))
        else:
            rows.append(Row(f"{kind} turn", f"{median(early):.1f} ms CPU", median(early)))
        # 1.1 and the machine's noise: the long session's request is as long as its history
        rows.append(_compared(f"{kind} turn {LONG} of a session, by turn 2 of another", ours, "late", budget=1.15))
        rows.append(_compared(f"first {kind} turn of a session, by its second", ours, "first", budget=2.0))
    return rows + _outgrown(next(i for i in installations if i.is_ours), folder)


def _outgrown(ours: Installation, folder: Path) -> list[Row]:
    """Measure a session that is many times as long as what its model sees."""
    with stub_model.running(TOOL) as port:
        home = folder / "turns-outgrown" / "home"
        make_home(home, 1, port, window=WINDOW)
        found = _run(ours, home, "our_turns.py", "tool", LONG, SESSIONS // 2)
    early, late = max(found["held"][: LONG // 2]), max(found["held"][LONG // 2 :])
    return [
        Row(
            f"messages held, turns {LONG // 2} to {LONG}, by turns 1 to {LONG // 2}",
            f"{late:.0f} / {early:.0f}",
            late / early,
            budget=1.1,
        ),
        _compared(f"turn {LONG} of a session beyond its window, by turn 2", found, "late", budget=1.3),
    ]


def _compared(name: str, found: dict[str, list[float]], what: str, budget: float) -> Row:
    """Return a row of some turns by the second turns beside them.

    The ratio is the median of those of neighbours: a busy machine changes its speed between them.
    """
    shown = f"{median(found[what]):.1f} / {median(found['second']):.1f} ms CPU"
    ratios = [one / second for one, second in zip(found[what], found["second"], strict=True)]
    return Row(name, shown, median(ratios), budget)


def _run(installation: Installation, home: Path, script: str, *args: object) -> dict[str, list[float]]:
    command = [installation.python, str(INSIDE / script), *map(str, args)]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found
