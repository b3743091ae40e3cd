"""Several agents on one host, under a real systemd: each works, and sees nothing of the others.

Three in every run; ten with HERMES_NIX_FULL=1 (`make test-nix`).
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from nix.booting import container
from nix.promises import variant
from run_in_systemd import Outcome

pytestmark = [
    pytest.mark.nix,
    pytest.mark.service,
    pytest.mark.xdist_group("systemd"),
    pytest.mark.timeout(900 if os.environ.get("HERMES_NIX_FULL") else 600),
]

HERE = Path(__file__).parent
COUNT, HOST = (10, "agents.ten") if os.environ.get("HERMES_NIX_FULL") else (3, "agents.three")
NAMES = ["default", *(f"a{number}" for number in range(1, COUNT))]
DRIVER = """
import json, subprocess, sys, time
from pathlib import Path

agents, since = json.loads(Path("/srv/agents.json").read_text()), time.time() - 600
out = {"answers": {}, "plugins": {}, "states": {}, "probes": {}}

def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)

def show(unit, name):
    return run("systemctl", "show", "-P", name, unit).stdout.strip()

for name, agent in agents.items():
    run("systemctl", "start", agent["unit"])
    out["states"][name] = show(agent["unit"], "ActiveState")
    agent["pid"] = int(show(agent["unit"], "MainPID"))
    asked = run("hermes-service", "--instance", name, "-z", f"say {agent['marker']}")
    out["answers"][name] = asked.stdout.strip() or asked.stderr
    out["plugins"][name] = "calculator" in run("hermes-service", "--instance", name, "plugins", "list").stdout
for agent in agents.values():
    del agent["unit"]
Path("/srv/probes/facts.json").write_text(json.dumps({"agents": agents, "since": since}))
Path("/srv/probes/facts.json").chmod(0o644)

as_ann = ["runuser", "-u", "ann", "--", "env", "HOME=/home/ann"]
out["ann"] = [
    [done.returncode, (done.stdout or done.stderr).strip()]
    for done in (
        run(*as_ann, "hermes-a1", "-z", "say good day"),
        run(*as_ann, "hermes-a1", "gateway", "status"),
        run(*as_ann, "hermes-a2", "-z", "say good day"),
        run(*as_ann, "hermes-a1", "send", "--to", "nowhere:room", "x"),
        run(*as_ann, "hermes-a1", "plugins", "list"),
    )
]
out["of_nobody"] = [run("hermes-service", "--instance", "bob", "plugins", "list").stderr]
run("hermes-a1", "-z", "run umask 077; echo of a command > made.txt")
out["made"] = run("hermes-a1", "-z", "run cat made.txt").stdout
out["read"] = run("runuser", "-u", "hermes-a1", "--", "cat", "/var/lib/hermes-a1/workspace/made.txt").stdout

control = run("/usr/bin/python3", "-I", "/srv/probes/probe.py", "control", "")
out["control"] = [control.returncode, control.stderr]
units = sorted(path.name for path in Path("/etc/systemd/system").glob("probe-*.service"))
run("systemctl", "start", *units)
out["probes"] = {unit: [show(unit, "Result"), show(unit, "ExecMainStatus")] for unit in units}
for name, agent in agents.items():
    out["states"][name] += " " + show("hermes-agent" if name == "default" else f"hermes-agent-{name}", "ActiveState")
run("systemctl", "stop", "hermes-agent-a1")
out["after_a_stop"] = [show("hermes-agent-a1", "ActiveState"), show("hermes-agent", "ActiveState")]
# With many of them the machine may need more than the time of a shutdown.
run("systemctl", "stop", "hermes-agent*.service", "probe-*.service", "hermes-exec*.socket", "scripted-model.service")
print(json.dumps(out))
"""


def described(number: int) -> dict[str, Any]:
    name = NAMES[number]
    suffix = "" if number == 0 else f"-{name}"
    state = f"/var/lib/hermes{suffix}"
    return {
        "unit": f"hermes-agent{suffix}",
        "marker": f"marker-{secrets.token_hex(12)}",
        "home": f"{state}/.hermes",
        "workspace": f"{state}/workspace",
        "run": f"/run/hermes-agent{suffix}",
        "exec_socket": f"/run/hermes-exec{suffix}.sock",
        "port": 8700 + number,
        "profile": ("strict", "host", "workspace")[number % 3],
    }


@pytest.fixture(scope="module")
def booted(nix) -> tuple[Outcome, dict[str, Any]]:
    """The host with all its agents, once each was asked and the probes have run within each."""
    agents = {NAMES[number]: described(number) for number in range(COUNT)}
    system = nix.build(f"{HOST}.toplevel").path
    probes = {}
    for name, agent in agents.items():
        suffix = "" if name == "default" else f"-{name}"
        for kind, unit in (("agent", f"hermes-agent{suffix}.service"), ("command", f"hermes-exec{suffix}@.service")):
            probe = f"probe-{kind}-{name}"
            as_kind = "command-host" if kind == "command" and agent["profile"] == "host" else kind
            text = variant((system / unit).read_text(), probe, f"/srv/probes/probe.py {as_kind} {name}")
            probes[f"{probe}.service"] = text
        agent["unit"] = f"hermes-agent{suffix}"
    host = container(
        nix,
        HOST,
        enable=["scripted-model.service", *(path.name for path in system.glob("hermes-exec*.socket"))],
        files={
            "/srv/agents.json": json.dumps(agents),
            "/srv/driver.py": DRIVER,
            "/srv/probes/probe.py": (HERE / "instances_probe.py").read_text(),
            **{f"/etc/agents/key-{n}": agents[name]["marker"] for n, name in enumerate(NAMES)},
            "/etc/tmpfiles.d/agents.conf": "z /etc/agents/* 0600 root root\nz /srv/agents.json 0600 root root\n",
        },
        units=probes,
    )
    outcome = host.run("/usr/bin/python3 /srv/driver.py", timeout_s=560).succeeded()
    return outcome, json.loads(outcome.stdout) | {"agents": agents}


def test_each_agent_answers_by_its_own_command(booted: tuple[Outcome, dict[str, Any]]) -> None:
    _, seen = booted
    assert seen["states"] == dict.fromkeys(NAMES, "active active")
    assert seen["answers"] == {name: agent["marker"] for name, agent in seen["agents"].items()}


def test_each_has_the_plugins_that_it_declares(booted: tuple[Outcome, dict[str, Any]]) -> None:
    assert [name for name, there in booted[1]["plugins"].items() if there] == ["a1"]


def test_root_would_find_all_of_them(booted: tuple[Outcome, dict[str, Any]]) -> None:
    """Without it the next test could find nothing because it looks nowhere."""
    assert booted[1]["control"] == [0, ""]


@pytest.mark.parametrize("kind", ["agent", "command"])
@pytest.mark.parametrize("name", NAMES)
def test_it_finds_no_file_socket_process_memory_or_log_of_another(
    name: str, kind: str, booted: tuple[Outcome, dict[str, Any]]
) -> None:
    outcome, seen = booted
    unit = f"probe-{kind}-{name}.service"
    said = " ".join(str(entry["MESSAGE"]) for entry in outcome.entries(_SYSTEMD_UNIT=unit))
    assert seen["probes"][unit] == ["success", "0"], said


def test_a_member_of_its_group_asks_it_and_no_other(booted: tuple[Outcome, dict[str, Any]]) -> None:
    answer, status, other, sent, plugins = booted[1]["ann"]
    assert answer == [0, "good day"]
    assert status[0] == 0 and "running: pid" in status[1]
    assert other[0] == 1 and "the agent 'a2' does not answer you" in other[1], other
    assert "members of the group `hermes-a2`" in other[1]
    assert sent[0] != 0 and "nowhere" in sent[1]
    assert plugins[0] != 0 and "`sudo hermes-a1`" in plugins[1], plugins


def test_a_name_that_is_none_is_told_with_those_that_are(booted: tuple[Outcome, dict[str, Any]]) -> None:
    (said,) = booted[1]["of_nobody"]
    assert said.startswith("hermes-service: there is no instance `bob` here; there is: default, a1")


def test_the_operators_command_reads_what_commands_made(booted: tuple[Outcome, dict[str, Any]]) -> None:
    assert "of a command" in booted[1]["made"]
    assert booted[1]["read"] == "of a command\n"


def test_one_stops_without_the_others(booted: tuple[Outcome, dict[str, Any]]) -> None:
    assert booted[1]["after_a_stop"] == ["inactive", "active"]


def test_no_log_has_a_secret(booted: tuple[Outcome, dict[str, Any]]) -> None:
    outcome, seen = booted
    for name, agent in seen["agents"].items():
        told = [e for e in outcome.journal if agent["marker"] in str(e.get("MESSAGE"))]
        assert not told, f"{name}: {told[0]}"
        assert outcome.entries(_SYSTEMD_UNIT=f"{agent['unit']}.service")


def test_a_host_with_one_named_agent_needs_no_name_for_it(nix) -> None:
    script = (nix.build("named.sw").path / "bin" / "hermes-service").resolve().read_text()
    assert script.splitlines()[1] == "instance=alice"
    assert "hermes-agent.service" not in nix.evaluate("named.unitNames")
    assert "hermes-agent-alice.service" in nix.evaluate("named.unitNames")


def test_a_profile_of_upstream_is_an_instance_with_the_common_packages(nix) -> None:
    services = nix.evaluate("upstream.profiles.unitNames")
    assert {"hermes-agent.service", "hermes-agent-research.service"} <= set(services)
    assert "hermes-agent-drafts.service" not in services
    research = nix.evaluate("upstream.profiles.config.services.hermes-agent.profiles.research.extraPackages")
    assert any("jq" in path for path in research)
    (warning,) = nix.evaluate("upstream.profiles.config.warnings")
    assert warning.startswith("services.hermes-agent.profiles.drafts: `gateway.enable` is not set")
