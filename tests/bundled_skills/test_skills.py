"""Each bundled skill on a machine that has what it is about: its first commands show the fault and change nothing.

`make test-skills` tries all of them in an image; `make test` those for which this machine has the programs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bundled_skills.conftest import FULL
from bundled_skills.network_subjects import SUBJECTS as NETWORK
from bundled_skills.program_subjects import SUBJECTS as PROGRAMS
from bundled_skills.system_subjects import HARDWARE
from bundled_skills.system_subjects import SUBJECTS as SYSTEM
from bundled_skills.trial import SKILLS, Subject, commands, problems, run_steps

SUBJECTS = [*SYSTEM, *NETWORK, *PROGRAMS]
NOT_RUN = {
    "nixos-version": "NixOS alone has it",
    "nixos-rebuild list-generations": "nixpkgs alone has it",
    "nixos-rebuild dry-build": "nixpkgs alone has it",
}
"""Documented commands that no subject runs, and why."""


@pytest.mark.parametrize(
    "subject", SUBJECTS, ids=lambda subject: f"{subject.skill}-{subject.script.removesuffix('.sh')}"
)
def test_the_first_commands_show_the_fault_and_change_nothing(subject: Subject, machine: Path) -> None:
    if not FULL and not subject.quick:
        pytest.skip("needs a machine with the subject: HERMES_SKILLS_FULL=1 (make test-skills)")
    found = problems(subject, run_steps(subject, machine))
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("name", sorted(SKILLS))
def test_every_documented_command_is_expected_in_its_order_and_run(name: str) -> None:
    mine = [subject for subject in (*SUBJECTS, HARDWARE) if subject.skill == name]
    documented = commands(name)
    for subject in mine:
        assert list(subject.shown) == documented
    ran = {line for subject in mine for line, shown in subject.shown.items() if shown is not None}
    assert [line for line in documented if line not in ran] == [line for line in documented if line in NOT_RUN]
    promising = {line for subject in mine for line, shown in subject.shown.items() if shown and shown.patterns}
    assert [line for line in documented if line in ran - promising] == []
