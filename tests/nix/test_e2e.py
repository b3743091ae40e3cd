"""One script for two drivers: in a virtual machine for those who have nixpkgs, here in a container."""

from __future__ import annotations

import json
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


def test_the_container_and_the_version_test_for_those_who_have_nixpkgs_are_handed_the_same(nix) -> None:
    """They are tests of the package (`tests.vm`, `tests.container`, `tests.version`), which are not run here."""
    given = nix.evaluate("container")
    assert given == {**nix.evaluate("vm"), "machines": ["machine"]}
    assert nix.evaluate("versionTest") == {"command": "HOME=$TMPDIR hermes --version", "package": "hermes-agent"}


def test_the_modular_service_runs_the_daemon_with_its_settings(nix) -> None:
    """It is evaluated with the options of NixOS' base of such services; NixOS itself runs none here."""
    service = json.loads(nix.build("modularService").path.read_text())
    program, *arguments = service["argv"]
    assert program.endswith("/bin/hermes") and arguments == ["gateway", "run", "--verbose"]
    assert service["withoutSystemd"] == service["argv"]
    unit = service["unit"]
    assert unit["environment"]["HERMES_HOME"] == "/var/lib/agent"
    assert json.loads(Path(unit["environment"]["HERMES_DECLARED_CONFIG"]).read_text()) == {
        "model": {"default": "test/model"}
    }
    assert unit["serviceConfig"]["RestartPreventExitStatus"] == "2 75 78"
    assert unit["serviceConfig"]["Type"] == "notify" and unit["serviceConfig"]["StateDirectory"] == "agent"
