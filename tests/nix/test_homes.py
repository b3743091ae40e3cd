"""The module for Home Manager: a service of the user from the same options, and the same refusals."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from run_in_systemd import Container, Interpreter, Process

pytestmark = pytest.mark.nix

BOOT = """
set -eu
install -d -o someone -g someone -m 0700 /home/someone /home/someone/.secrets
echo only-for-this-test > /home/someone/.secrets/openai; chown someone /home/someone/.secrets/openai
uid=$(id -u someone)
systemctl start user@$uid
as() { setpriv --reuid someone --regid someone --init-groups env -i HOME=/home/someone USER=someone \\
  XDG_RUNTIME_DIR=/run/user/$uid PATH=$PATH HERMES_HOME=/home/someone/.hermes HERMES_DECLARED_CONFIG=@declared@ "$@"; }
cd /home/someone
as systemctl --user start hermes-agent
as systemctl --user show -P ActiveState hermes-agent
as @hermes@ plugins list | grep -o calculator
cat .hermes/SOUL.md; echo
key=$(as @hermes@ gateway key)
question='{"model": "hermes-agent", "messages": [{"role": "user", "content": "say good evening"}]}'
as curl -fsS http://127.0.0.1:8642/v1/chat/completions -H "Authorization: Bearer $key" \\
  -H 'Content-Type: application/json' -d "$question" | grep -o 'good evening'
as systemctl --user kill -s KILL hermes-agent
for _ in $(seq 300); do as @hermes@ gateway status > /tmp/status && break; sleep 0.2; done
grep -o 'unit hermes-agent.service' /tmp/status
as @hermes@ gateway status | grep -o 'works in .*workspace'
stat -c '%a %U' .hermes/workspace
as systemctl --user show -P NRestarts hermes-agent
as @hermes@ gateway stop > /dev/null
as systemctl --user show -P Result hermes-agent
stat -c '%a %U' .hermes/state.db
"""


def test_a_home_has_the_daemon_as_a_service_of_the_user(nix) -> None:
    text = (nix.build("homes.full.unit").path / "hermes-agent.service").read_text()
    for line in (
        "Type=notify",
        'Environment="HERMES_HOME=/home/someone/.hermes"',
        'Environment="PERCENT=100%%"',
        "LoadCredential=OPENROUTER_API_KEY:/home/someone/.secrets/openrouter",
        "WorkingDirectory=~",
        "WatchdogSec=60",
        "LimitNOFILE=1024:65536",
        "NoNewPrivileges=true",
        "WantedBy=default.target",
    ):
        assert line in text.splitlines()
    package = nix.evaluate("homes.full.config.services.hermes-agent.finalPackage")
    assert f'ExecStart="{package}/bin/hermes" "gateway" "run"' in text
    assert nix.evaluate("homes.full.config.home.packages") == [package]
    declared = nix.evaluate("homes.full.config.home.sessionVariables")["HERMES_DECLARED_CONFIG"]
    assert f'Environment="HERMES_DECLARED_CONFIG={declared}"' in text
    report = json.loads(
        (
            nix.build("homes.full.config.services.hermes-agent.finalPackage").path / "nix-support" / "plugins.json"
        ).read_text()
    )
    assert [plugin["key"] for plugin in report["plugins"]] == ["hello"]


def test_a_home_with_a_wrong_setting_does_not_build(nix) -> None:
    refused = nix.build("homes.broken.unit")
    assert refused.status != 0
    assert "services.hermes-agent.settings: unknown key `modle`" in refused.stderr


def test_a_home_has_several_services_and_a_command_for_each(nix) -> None:
    assert nix.evaluate("homes.several.unitNames") == ["hermes-agent", "hermes-agent-notes"]
    config = "homes.several.config"
    notes = nix.evaluate(f"{config}.systemd.user.services")["hermes-agent-notes"]["Service"]
    assert '"HERMES_HOME=/home/someone/.hermes/profiles/notes"' in notes["Environment"]
    names = {path.rpartition("-hermes-")[2] for path in nix.evaluate(f"{config}.home.packages")}
    assert {"notes", "drafts"} <= names


def test_a_switch_of_a_home_says_what_the_checks_let_pass(nix) -> None:
    activation = nix.evaluate("homes.warned.config.home.activation")
    assert list(activation) == ["hermes-agent-warnings"]
    nix.build("homes.warned.startCheck")
    said = subprocess.run(
        ["bash", "-eu", "-c", activation["hermes-agent-warnings"]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, *rest = said.stderr.splitlines()
    assert first == "hermes-agent: the checks of the build let this pass:"
    assert any("not ours, kept for plugins: `my_plugin`" in line for line in rest)


def test_two_services_of_a_home_with_one_port_or_home_are_refused(nix) -> None:
    refused = nix.build("homes.onePort.unit")
    assert refused.status != 0
    assert "the instances `default` and `notes` have one home, `/home/someone/.hermes`" in refused.stderr
    assert "Set services.hermes-agent.instances.notes.hermesHome to a directory of its own." in refused.stderr
    assert "both listen on port 8642" in refused.stderr


def test_the_option_reference_is_that_of_the_module(nix) -> None:
    made = nix.build("optionReference").path.read_text()
    there = (nix.tree / "docs" / "reference" / "nixos-options.md").read_text()
    assert made == there, "cp $(nix-build tests/nix -A optionReference) docs/reference/nixos-options.md"


@pytest.mark.service
@pytest.mark.xdist_group("systemd")
def test_the_service_of_the_user_runs_under_the_users_own_manager(nix) -> None:
    unit = (nix.build("homes.booted.unit").path / "hermes-agent.service").read_text()
    hermes = nix.build("homes.booted.config.services.hermes-agent.finalPackage").path / "bin" / "hermes"
    declared = nix.evaluate("homes.booted.config.home.sessionVariables")["HERMES_DECLARED_CONFIG"]
    python = Interpreter.of_this_process()
    model = Path(__file__).parent / "e2e" / "model.py"
    booted = Container(
        binds={"/nix/store": "/nix/store"} | python.binds,
        files={
            "/etc/systemd/user/hermes-agent.service": unit,
            "/etc/sysusers.d/someone.conf": "u someone - - /home/someone\n",
            "/srv/model.py": model.read_text(),
        },
        processes=[
            Process("model", [python.executable, "/srv/model.py"], {"RUNTIME_DIRECTORY": "/tmp"}, port=8643),
        ],
        environment=python.environment,
    )
    script = BOOT.replace("@hermes@", str(hermes)).replace("@declared@", declared)
    seen = booted.run(script, timeout_s=550).succeeded().stdout.splitlines()
    words = ["active", "calculator", "You are terse.", "good evening", "unit hermes-agent.service"]
    words += ["works in /home/someone/.hermes/workspace", "700 someone", "1", "success"]
    assert seen == [*words, "600 someone"]
