"""Seconds until the first word of the embedded model, with the shipped tools. On two cores 2 s are the goal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from homes import Installation, environment
from processes import ahead_of_others
from rows import Row

__all__ = ["measure"]

INSIDE = Path(__file__).parent / "inside"
IDLE_S = 2.0
"""Seconds without a request until the model gives its memory back."""
GOAL_S = 2.0
"""Seconds until the first word of a later turn, and until the model has what it had read before it was unloaded."""


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure turns of a session with the embedded model: the first, later ones, and one after it was unloaded."""
    ours = next(each for each in installations if each.is_ours)
    asked = subprocess.run([ours.hermes, "model", "path"], capture_output=True, text=True, check=True)
    weights = Path(asked.stdout.strip())
    if not weights.is_file():
        return [Row("first word of the embedded model (not measured: hermes model pull)", "", 0.0)]
    home = folder / "home"
    link = folder / ".cache" / "hermes" / "models" / weights.name
    link.parent.mkdir(parents=True)
    link.symlink_to(weights)
    home.mkdir()
    (home / "config.yaml").write_text(f"model:\n  provider: local\n  local: {{idle_s: {IDLE_S}}}\n")
    command = [ours.python, str(INSIDE / "local_turns.py"), str(IDLE_S)]
    with ahead_of_others():
        done = subprocess.run(command, env=environment(home), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"local_turns.py failed:\n{done.stderr[-2000:]}")
    spent: dict[str, list[float]] = json.loads(done.stdout)
    first, second, restored = (median(spent[name]) for name in ("first", "second", "restored"))
    shown = f"{restored - second:.1f} s, first word {restored:.1f} s"
    return [
        Row("first word of a first turn, with the start of the model: s", f"{first:.1f} s", first),
        Row("first word of a later turn: s", f"{second:.1f} s", second, GOAL_S),
        # the goal and the machine's noise
        Row("start after it was unloaded, with what it had read: s", shown, restored - second, GOAL_S * 1.25),
    ]
