"""Hosts that must not build: each is refused, in exactly the words of `refused/<name>.expected`.

`refused.nix` are built whole. Of `refused-evaluated.nix` the assertions are evaluated, all hosts at once. Those of
`refused-started.nix` go through the check of the start, in one derivation; HERMES_NIX_FULL=1 builds them whole, too.
`UPDATE_EXPECTED=1 pytest tests/nix/test_refused.py` writes the files anew; read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from textwrap import indent

import pytest

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent


def names(file: str) -> list[str]:
    return re.findall(r"^  ([a-z-]+) =\s", (HERE / file).read_text().split("\nin\n")[-1], re.MULTILINE)


BUILT = names("refused.nix")
EVALUATED = names("refused-evaluated.nix")
STARTED = names("refused-started.nix")
UNITS = names("refused-units.nix")
NAMES = [*UNITS, *BUILT, *EVALUATED, *STARTED]
GATE_LOG_LINES = 10
"""How much of a failed builder's log `nix build` shows."""
MODULE = "services.hermes-agent"
VERSIONS = re.compile(r"(Python|pyyaml) \d+\.\d+\.\d+")


def compare(name: str, text: str) -> None:
    expected = HERE / "refused" / f"{name}.expected"
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(text)
    assert text == expected.read_text()


@pytest.mark.parametrize("name", BUILT)
def test_a_host_that_would_not_run_is_refused_with_the_reason(name: str, nix) -> None:
    refused = nix.build(f"refused.{name}")
    assert refused.status != 0, f"{name} was built: {refused.stdout}"
    compare(name, nix.shown(refused))


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_that_systemd_would_misread_is_refused(name: str, nix) -> None:
    refused = nix.build(f"refusedUnits.{name}")
    assert refused.status != 0, f"{name} was built: {refused.stdout}"
    compare(name, nix.shown(refused))


@pytest.mark.parametrize("name", EVALUATED)
def test_evaluation_refuses_a_host_with_the_reason(name: str, nix) -> None:
    messages = nix.evaluate("refusedMessages")[name]
    if messages is None:  # the text of an error of a type is that of Nix
        refused = nix.build(f"refusedEvaluated.{name}")
        assert refused.status != 0, f"{name} was built: {refused.stdout}"
        compare(name, nix.shown(refused))
        return
    listed = "\n".join(f"- {message}" for message in messages)
    text = indent(f"Failed assertions:\n{listed}".rstrip(), " " * 7)
    compare(name, f"error:\n{text}\n")


@pytest.fixture(scope="module")
def starts(nix) -> Path:
    """What the check of the start says of each host, from one derivation."""
    return nix.build("refusedStarts").path


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STARTED)
def test_the_check_of_the_start_refuses_a_host_with_the_reason(name: str, starts: Path, nix) -> None:
    assert (starts / f"{name}.status").read_text() == "1\n"
    text = VERSIONS.sub(r"\1 <version>", (starts / f"{name}.text").read_text())
    compare(name, text)


@pytest.mark.skipif(not os.environ.get("HERMES_NIX_FULL"), reason="HERMES_NIX_FULL is not set: takes minutes")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STARTED)
def test_a_host_that_does_not_start_is_not_built(name: str, nix) -> None:
    refused = nix.build(f"refusedStarted.{name}")
    assert refused.status != 0, f"{name} was built: {refused.stdout}"
    first = (HERE / "refused" / f"{name}.expected").read_text().splitlines()[0]
    assert re.sub(r"/nix/store/[0-9a-z]{32}-", "/nix/store/<hash>-", first) in VERSIONS.sub(
        r"\1 <version>", nix.shown(refused)
    )


def test_every_expected_text_belongs_to_a_refused_host() -> None:
    assert sorted(NAMES) == sorted(path.stem for path in (HERE / "refused").glob("*.expected"))
    assert len(NAMES) >= 120


@pytest.mark.parametrize("name", [*UNITS, *BUILT, *STARTED])
def test_the_reason_fits_into_what_nix_shows_of_a_log(name: str) -> None:
    text = (HERE / "refused" / f"{name}.expected").read_text()
    before_nix = text.split("error: builder for")[0]
    if before_nix != text or name in STARTED:
        assert before_nix.startswith("error: hermes-agent: ")
        assert "hint: " in before_nix or "did you mean" in before_nix
        assert len(before_nix.splitlines()) <= GATE_LOG_LINES


@pytest.mark.parametrize("name", EVALUATED)
def test_the_reason_names_the_option(name: str) -> None:
    text = (HERE / "refused" / f"{name}.expected").read_text()
    assert MODULE in text or "The option definition" in text
