"""What the limits of `hermes-exec@.service` hold: run in the virtual machine as the agent's user, with less of both."""

from __future__ import annotations

from pathlib import Path

from contracts.terminal_places import Place, systemd
from unit.workspace.test_bounds import FORKS, MIB, PARTS, TAKES, number

SLOW_S = 200
"""The processor is emulated: a unit needs half a minute to begin."""


def run(place: Place, program: str) -> str:
    """Run a Python program in a unit and return what it printed."""
    done = place("exec python3 -", stdin=program.encode(), timeout_s=SLOW_S)
    assert not done.timed_out, done.output
    return done.output.decode()


def test_memory_of_all_processes_together_is_limited(tmp_path: Path) -> None:
    place = systemd(tmp_path)
    Path(place.cwd, "part.py").write_text(TAKES.format(bytes=60 * MIB, kind="MAP_PRIVATE") + "; input()")
    assert number(run(place, PARTS)) < 6
    assert number(run(place, PARTS.replace("range(6)", "range(2)"))) == 2


def test_one_process_takes_what_is_allowed_and_no_more(tmp_path: Path) -> None:
    place = systemd(tmp_path)
    much, fits = (TAKES.format(bytes=size * MIB, kind="MAP_PRIVATE") for size in (400, 100))
    assert "taken" not in run(place, much)
    assert "taken" in run(place, fits)


def test_processes_are_counted_together(tmp_path: Path) -> None:
    said = run(systemd(tmp_path), FORKS.format(most=300))
    assert "refused" in said and 10 < number(said) < 40
