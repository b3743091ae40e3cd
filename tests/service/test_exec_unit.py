"""Commands in units of their own, under a real systemd: the contract suite of backends, and the attacks."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from exec_units import ATTACKS, as_packaged, run


@pytest.fixture(scope="module")
def attacks() -> dict[str, str]:
    return run(as_packaged(), "service/exec_unit_attacks.py")[0]


@pytest.mark.attack("exec unit", at="systemd")
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_from_inside_is_refused(attack: str, attacks: dict[str, str]) -> None:
    mine = {name: problem for name, problem in attacks.items() if name.startswith(ATTACKS[attack])}
    assert mine and not any(mine.values()), "\n".join(mine.values())


def test_the_unit_is_a_backend_like_the_others() -> None:
    what = "contracts/test_terminal_env.py e2e/builtin_tools/test_script.py -k 'systemd and not refused'"
    found, outcome = run(as_packaged(), what)

    assert len(found) >= 16 and "test_a_script_in_a_unit_of_systemd_calls_tools" in found, outcome.stderr
    problems = [f"{name}: {text}" for name, text in found.items() if text]
    assert problems == []


@pytest.mark.skipif(not os.environ.get("HERMES_ATTACK_FULL"), reason="`make attack` runs it")
@pytest.mark.attack("interfaces", at="systemd")
def test_the_socket_is_for_the_daemons_user_who_leaves_places_for_root(attempt: Callable[[bool, str], None]) -> None:
    limits = "Environment=HERMES_EXEC_PER_CALLER=4 HERMES_EXEC_MOST=6"
    found, outcome = run(as_packaged(), "service/exec_callers.py", user="", more=limits)

    assert len(found) == 6, outcome.stderr
    for name, problem in found.items():
        attempt(not problem, f"{name}: {problem}")
