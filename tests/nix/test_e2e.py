"""One script for two drivers: in a virtual machine for those who have nixpkgs, here in a container."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nix.booting import container
from run_in_systemd import Interpreter

pytestmark = [pytest.mark.nix, pytest.mark.service, pytest.mark.xdist_group("systemd")]

HERE = Path(__file__).parent / "e2e"
SUBTESTS = re.findall(r'^with subtest\("(.*)"\):', (HERE / "script.py").read_text(), re.MULTILINE)


def test_the_script_passes_on_a_machine_with_the_built_units(nix) -> None:
    booted = container(
        nix,
        "e2e",
        enable=["hermes-agent.service", "hermes-exec.socket", "scripted-model.service"],
        files={
            "/srv/machine.py": (HERE / "machine.py").read_text(),
            "/srv/script.py": (HERE / "script.py").read_text(),
        },
    )
    outcome = booted.run([Interpreter.of_this_process().executable, "/srv/machine.py", "/srv/script.py"], timeout_s=550)
    assert outcome.succeeded().stdout.splitlines() == SUBTESTS
    assert len(SUBTESTS) >= 10


def test_the_test_for_those_who_have_nixpkgs_is_the_same_machine_and_script(nix) -> None:
    """`runNixOSTest` is handed what it is handed there; its machine is evaluated with the stand-in's options."""
    given = nix.evaluate("vm")
    assert given["name"] == "hermes-agent"
    assert given["testScript"] == (HERE / "script.py").read_text()
