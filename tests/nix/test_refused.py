"""Hosts that must not build: each is refused, in exactly the words of `refused/<name>.expected`.

`UPDATE_EXPECTED=1 pytest tests/nix/test_refused.py` writes the files anew; read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent
NAMES = re.findall(r"^  ([a-z-]+) = ", (HERE / "refused.nix").read_text(), re.MULTILINE)
GATE_LOG_LINES = 10
"""How much of a failed builder's log `nix build` shows."""


@pytest.mark.parametrize("name", NAMES)
def test_a_host_that_would_not_run_is_refused_with_the_reason(name: str, nix) -> None:
    refused = nix.build(f"refused.{name}")
    assert refused.status != 0, f"{name} was built: {refused.stdout}"
    text = nix.shown(refused)
    expected = HERE / "refused" / f"{name}.expected"
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(text)
    assert text == expected.read_text()


def test_every_expected_text_belongs_to_a_refused_host() -> None:
    assert sorted(NAMES) == sorted(path.stem for path in (HERE / "refused").glob("*.expected"))
    assert len(NAMES) >= 50


@pytest.mark.parametrize("name", NAMES)
def test_the_reason_fits_into_what_nix_shows_of_a_log(name: str) -> None:
    text = (HERE / "refused" / f"{name}.expected").read_text()
    before_nix = text.split("error: builder for")[0]
    if before_nix != text:
        assert before_nix.startswith("error: hermes-agent: ")
        assert "hint: " in before_nix or "did you mean" in before_nix
        assert len(before_nix.splitlines()) <= GATE_LOG_LINES
