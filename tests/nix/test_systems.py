"""Hosts that must build: what their units say, what systemd says to that, and what is in their settings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hermes_agent.host.settings import LIVE

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent
NAMES = re.findall(r"^  ([A-Za-z]+) =\s", (HERE / "systems.nix").read_text(), re.MULTILINE)
EXPOSURE = {"hermes-agent": 13, "strict": 10, "workspace": 13, "host": 46}
"""Tenths of the points that `systemd-analyze security` gives, the daemon and what commands run in: 13 is 1.3 of 10."""


def service(nix, name: str) -> dict:
    return nix.evaluate(f"{name}.config.systemd.services.hermes-agent.serviceConfig")


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: apt-get install systemd)")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_host_is_built_with_all_its_checks(name: str, nix) -> None:
    unit = nix.build(f"systems.{name}.toplevel").path / "hermes-agent.service"
    assert "ExecStart=" in unit.read_text()
    assert "LimitNOFILE=1024:65536" in unit.read_text().splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_systemd_has_nothing_to_say_about_the_unit(name: str, nix) -> None:
    unit = nix.build(f"systems.{name}.toplevel").path / "hermes-agent.service"
    said = systemd_analyze("verify", "--man=no", str(unit))
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_the_unit_is_hardened(name: str, nix) -> None:
    unit = nix.build(f"systems.{name}.toplevel").path / "hermes-agent.service"
    limit = f"--threshold={EXPOSURE['hermes-agent']}"
    said = systemd_analyze("security", "--offline=true", "--no-pager", limit, str(unit))
    assert said.returncode == 0, said.stdout


@pytest.mark.parametrize("profile", ["strict", "workspace", "host"])
def test_what_commands_run_in_is_hardened(profile: str, nix) -> None:
    built = nix.build(f"sandboxed.{profile}.toplevel").path
    unit = built / "hermes-exec@.service"
    said = systemd_analyze("verify", "--man=no", str(unit), str(built / "hermes-exec.socket"))
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    limit = f"--threshold={EXPOSURE[profile]}"
    said = systemd_analyze("security", "--offline=true", "--no-pager", limit, str(unit))
    assert said.returncode == 0, said.stdout


def test_a_unit_of_an_isolated_plugin_is_hardened_and_shows_what_is_granted(nix) -> None:
    built = nix.build("systems.isolated.toplevel").path
    unit, socket = built / "hermes-plugin-calculator@.service", built / "hermes-plugin-calculator.socket"
    said = systemd_analyze("verify", "--man=no", str(unit), str(socket))
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    limit = f"--threshold={EXPOSURE['strict']}"
    said = systemd_analyze("security", "--offline=true", "--no-pager", limit, str(unit))
    assert said.returncode == 0, said.stdout
    lines = unit.read_text().splitlines()
    assert {"BindReadOnlyPaths=-/srv/tables", "BindPaths=-/srv/results", "MemoryMax=1024M", "TasksMax=256"} <= {*lines}
    assert 'Environment="HERMES_PLUGIN_READ=/srv/tables"' in lines
    assert "ListenStream=/run/hermes-plugin/calculator.sock" in socket.read_text().splitlines()
    assert "hermes-plugin-calculator.socket" in (built / "hermes-agent.service").read_text()
    declared = nix.build("systems.isolated.derived.declaredConfig").path
    assert json.loads(declared.read_text())["plugins"]["entries"]["calculator"]["isolation"] == "host"
    names = nix.evaluate("isolatedUnits")
    assert names == {
        "byEntry": ["hermes-plugin-hello.socket", "hermes-plugin-hello@.service"],
        "byAll": ["hermes-plugin-hello.socket", "hermes-plugin-hello@.service"],
        "launcher": [],
        "instance": ["hermes-plugin-alice.hello.socket", "hermes-plugin-alice.hello@.service"],
    }


def test_the_memory_of_a_plugin_s_unit_is_that_of_the_setting(nix) -> None:
    assert nix.evaluate("isolatedMemory") == {"unset": "1024M", "more": "2048M", "none": "infinity"}


def test_a_command_has_limits_of_its_own(nix) -> None:
    for name, memory, tasks in (("systems.minimal", "2G", 512), ("limited", "8G", 4096)):
        unit = nix.evaluate(f"{name}.config.systemd.services")["hermes-exec@"]["serviceConfig"]
        limits = [unit[key] for key in ("MemoryMax", "MemorySwapMax", "TasksMax", "LimitNPROC", "OOMPolicy")]
        assert limits == [memory, 0, tasks, tasks, "kill"]
        assert ("/srv/data" in unit["BindPaths"]) == (name == "limited")


def test_the_daemons_user_alone_starts_commands_and_reads_what_they_made(nix) -> None:
    socket = nix.evaluate("systems.minimal.config.systemd.sockets")["hermes-exec"]["socketConfig"]
    assert (socket["SocketUser"], socket["SocketMode"]) == ("hermes", "0600")
    assert nix.evaluate("systems.minimal.config.users.groups")["hermes-work"] == {"members": ["hermes"]}
    assert "hermes-work" not in nix.evaluate("systems.elsewhere.config.users.groups")


def test_a_host_with_a_local_model_needs_no_key(nix) -> None:
    built = nix.build("systems.localModel.toplevel").path
    unit = (built / "hermes-local-model.service").read_text()
    assert '"--host" "127.0.0.1" "--port" "8641" "--jinja"' in unit
    # A file beside the configuration is in the store, and in what the unit needs.
    assert re.search(r'"--model" "/nix/store/\w{32}-README.md"', unit)
    said = systemd_analyze("verify", "--man=no", str(built / "hermes-local-model.service"))
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    limit = ("security", "--offline=true", "--no-pager", "--threshold=15")
    assert systemd_analyze(*limit, str(built / "hermes-local-model.service")).returncode == 0
    assert "After=network.target hermes-exec.socket hermes-local-model.service" in (
        (built / "hermes-agent.service").read_text()
    )
    declared = nix.build("systems.localModel.derived.declaredConfig").path
    assert json.loads(declared.read_text())["model"] == {
        "provider": "custom",
        "default": "local-model",
        "base_url": "http://127.0.0.1:8641/v1",
        "context_length": 16384,
    }


def test_without_a_sandbox_there_is_no_unit_for_commands(nix) -> None:
    built = nix.build("systems.elsewhere.toplevel").path
    assert [path.name for path in built.iterdir() if "exec" in path.name] == []
    declared = nix.build("systems.elsewhere.derived.declaredConfig").path
    assert "sandbox" not in json.loads(declared.read_text())["terminal"]


def test_the_unit_starts_the_daemon_with_what_was_declared(nix) -> None:
    text = (nix.build("systems.full.toplevel").path / "hermes-agent.service").read_text()
    package = nix.build("systems.full.package").path
    declared = nix.build("systems.full.derived.declaredConfig").path
    for line in (
        f'ExecStart="{package}/bin/hermes" "gateway" "run"',
        'Environment="HERMES_DECLARED_CONFIG=/etc/hermes-agent/settings.json"',
        'Environment="HERMES_HOME=/var/lib/hermes/.hermes"',
        'Environment="PERCENT=100%% of $HOME"',
        "LoadCredential=OPENROUTER_API_KEY:/run/secrets/openrouter",
        "LoadCredential=env-0:/run/secrets/hermes-agent.env",
        "RestartPreventExitStatus=2 75 78",
        "Type=notify",
        "WatchdogSec=60",
        f"X-Reload-Triggers={declared}",
    ):
        assert line in text.splitlines()
    assert f'"PATH={package}/bin:' in text


def test_a_change_of_settings_reloads_when_the_daemon_can_take_it_in_and_restarts_otherwise(nix) -> None:
    """NixOS reloads when nothing but X-Reload-Triggers differs."""

    def unit(name: str) -> set[str]:
        built = nix.build(f"changed.{name}.unit")
        return set((built.path / "hermes-agent.service").read_text().splitlines())

    before = unit("before")
    assert {line.partition("=")[0] for line in before ^ unit("model")} == {"X-Reload-Triggers"}
    assert "X-Restart-Triggers" in {line.partition("=")[0] for line in before ^ unit("turns")}
    assert unit("same") == before


def test_the_agent_takes_in_every_block_that_the_module_reloads_for(nix) -> None:
    text = (nix.tree / "modules" / "hermes-agent" / "service.nix").read_text()
    (listed,) = re.findall(r"live = \[\s+([^]]+)\s\]", text)
    named = set(re.findall(r'"(\w+)"', listed))
    assert {"model", "plugins"} <= named <= LIVE


def test_everybodys_command_is_the_daemons_package_as_its_client(nix) -> None:
    client = (nix.build("systems.full.sw").path / "bin" / "hermes").resolve().read_text()
    assert str(nix.build("systems.full.package").path / "bin" / "hermes") in client
    assert "/run/hermes-agent/control.sock" in client
    elsewhere = service(nix, "systems.elsewhere")["RuntimeDirectoryMode"]
    assert (service(nix, "systems.full")["RuntimeDirectoryMode"], elsewhere) == ("0750", "0700")
    (alone,) = nix.evaluate("systems.minimal.config.environment.systemPackages")
    assert alone.endswith("-hermes-service")


def test_declared_settings_are_what_was_written_and_nothing_else(nix) -> None:
    declared = nix.build("systems.full.derived.declaredConfig").path
    assert json.loads(declared.read_text()) == {
        "model": {"default": "test/model", "context_length": 65536},
        "agent": {"max_turns": 40},
        "approvals": {"mode": "manual"},
        "plugins": {"auto_enable": True},
        "server": {"port": 8700},
        "terminal": {"cwd": "/var/lib/hermes/workspace", "sandbox": "systemd"},
    }


def test_a_state_directory_outside_of_var_lib_is_made_and_opened(nix) -> None:
    config = service(nix, "systems.elsewhere")
    assert "StateDirectory" not in config
    assert config["ReadWritePaths"] == ["/srv/hermes", "/home/owner/project"]
    assert (config["ProtectHome"], config["BindPaths"]) == ("tmpfs", ["/home/owner/project"])
    made = nix.evaluate("systems.elsewhere.config.systemd.tmpfiles.settings")
    rule = {"d": {"user": "owner", "group": "users", "mode": "0750"}}
    assert made == {"10-hermes-agent": {"/srv/hermes": rule, "/srv/hermes/.hermes": rule}}
    assert nix.evaluate("systems.elsewhere.config.users.users") == {}


def test_an_mcp_server_that_compiles_while_it_runs_may(nix) -> None:
    assert service(nix, "systems.compiling")["MemoryDenyWriteExecute"] is False
    assert service(nix, "systems.minimal")["MemoryDenyWriteExecute"] is True


def test_every_hardening_key_can_be_taken_back(nix) -> None:
    config = service(nix, "relaxed")
    assert config["MemoryDenyWriteExecute"] is False
    assert config["SystemCallFilter"] == ["@system-service"]
    assert config["ProtectSystem"] == "strict"


def test_the_interpreter_follows_the_packages(nix) -> None:
    ours = nix.evaluate("hermes-agent.python.outPath")
    assert nix.evaluate("systems.listOfPackages.package.python.outPath") == ours
    assert nix.evaluate("systems.otherInterpreter.package.python.outPath") != ours
    done = subprocess.run(
        [nix.build("systems.otherInterpreter.package").path / "bin" / "hermes", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "hermes-agent")


def test_a_required_name_that_a_file_on_the_machine_may_hold_is_a_warning(nix) -> None:
    built = nix.build("systems.needsKey.package")
    assert built.status == 0
    names = json.loads((built.path / "nix-support" / "plugins.json").read_text())
    assert [plugin["key"] for plugin in names["plugins"]] == ["needs-key"]


def test_a_variable_that_sounds_like_a_secret_is_a_warning(nix) -> None:
    (warning,) = nix.evaluate("warned.config.warnings")
    assert warning.startswith("services.hermes-agent.environment: `TELEGRAM_BOT_TOKEN` sounds like a secret;")
