"""Under a real systemd: the unit that the module rendered runs commands, and refuses the attacks from inside."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from exec_units import ATTACKS, as_rendered, run

pytestmark = [pytest.mark.nix, pytest.mark.service, pytest.mark.xdist_group("systemd")]

NETWORK = ("loopback", "the network")
"""The profile `workspace` has the machine's, but for its loopback."""
WITHOUT = {"strict": "", "workspace": "-k 'not test_8_ and not test_9_ and not without_a_file'"}
"""Sockets without a file belong to the network, too."""


@pytest.fixture(scope="module")
def attacks(nix) -> Callable[[str], dict[str, str]]:
    """Return what became of the attacks in a profile, by test; they run once for each."""
    ran: dict[str, dict[str, str]] = {}

    def of(profile: str) -> dict[str, str]:
        if profile not in ran:
            system = nix.build(f"sandboxed.{profile}.toplevel").path
            ran[profile] = run(as_rendered(system), f"service/exec_unit_attacks.py {WITHOUT[profile]}")[0]
        return ran[profile]

    return of


@pytest.mark.attack("exec unit", at="systemd")
@pytest.mark.parametrize(
    ("profile", "attack"),
    [(p, a) for p in ("strict", "workspace") for a in ATTACKS if p == "strict" or a not in NETWORK],
)
def test_an_attack_from_inside_is_refused(profile: str, attack: str, attacks) -> None:
    mine = {name: problem for name, problem in attacks(profile).items() if name.startswith(ATTACKS[attack])}
    assert mine and not any(mine.values()), "\n".join(mine.values())


@pytest.mark.skipif(
    not os.environ.get("HERMES_NIX_FULL"), reason="`make test-nix`; the unit of packaging/ is tried always"
)
def test_the_unit_is_a_backend_like_the_others(nix) -> None:
    found, outcome = run(
        as_rendered(nix.build("sandboxed.strict.toplevel").path),
        "contracts/test_terminal_env.py -k 'systemd and not refused'",
    )
    assert len(found) >= 15, outcome.stderr
    assert [f"{name}: {text}" for name, text in found.items() if text] == []
