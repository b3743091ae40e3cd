"""The broken configurations of tests/data go through the gate that a host's settings go through.

The gate says what `hermes config check` says, with the option in place of file and line.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix

BROKEN = Path(__file__).parents[1] / "data" / "config" / "broken"
NAMES = sorted(path.stem for path in BROKEN.glob("*.yaml"))
PLACE = re.compile(r"^\S+\.yaml(:\d+)?: ")
OPTION = "services.hermes-agent.settings"


@pytest.fixture(scope="module")
def gate(nix) -> Path:
    """The outcomes for all files, from one derivation."""
    return nix.build("configGate").path


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_configuration_does_not_pass_the_gate(name: str, gate: Path) -> None:
    assert (gate / f"{name}.status").read_text() == "1\n"
    *findings, _ = (BROKEN / f"{name}.expected").read_text().splitlines()
    expected = [PLACE.sub(f"error: hermes-agent: {OPTION}: ", finding) for finding in findings]
    hint = "hint: docs/reference/config.md has every key with its type and default."
    assert (gate / f"{name}.text").read_text().splitlines() == [*expected, hint]
