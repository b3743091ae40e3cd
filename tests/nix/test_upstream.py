"""Configurations written for upstream's module evaluate as they are; those that need no network build."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent
NAMES = re.findall(r"^  ([A-Za-z]+) =\s", (HERE / "upstream.nix").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_for_upstreams_module_evaluates_as_it_is(name: str, nix) -> None:
    assert nix.derivation(f"upstream.{name}.toplevel").endswith("-nixos-system.drv")


@pytest.mark.parametrize("name", ["minimal", "merged", "ownInterpreter", "fileBesideIt"])
def test_it_builds(name: str, nix) -> None:
    assert (nix.build(f"upstream.{name}.toplevel").path / "hermes-agent.service").is_file()


def test_every_option_reaches_the_unit_and_the_settings(nix) -> None:
    built = nix.build("upstream.everything.toplevel")
    unit = (built.path / "hermes-agent.service").read_text().splitlines()
    for line in (
        "User=assistant",
        "Group=assistant",
        "WorkingDirectory=/srv/assistant/work",
        "ReadWritePaths=/srv/assistant",
        'Environment="TZ=Europe/Berlin"',
        "LoadCredential=env-0:/run/secrets/hermes-env",
        "LoadCredential=env-1:/var/lib/hermes/env",
        "LoadCredential=auth.json:/run/secrets/hermes/auth.json",
        "Restart=always",
        "RestartSec=10",
    ):
        assert line in unit
    (start,) = [line for line in unit if line.startswith("ExecStart=")]
    assert start.endswith('/bin/hermes" "gateway" "run" "--verbose"')
    assert len([line for line in unit if line.startswith("ExecStartPre=")]) == 3
    users = nix.evaluate("upstream.everything.config.users.users")
    assert users == {"assistant": {"isSystemUser": True, "group": "assistant", "home": "/srv/assistant"}}
    declared = json.loads(nix.build("upstream.everything.derived.declaredConfig").path.read_text())
    assert declared["terminal"]["cwd"] == "."
    servers = declared["mcp_servers"]
    assert servers["signed-in"] == {"url": "https://mcp.example.com/mcp", "auth": "oauth", "enabled": True}
    assert servers["github"]["env"] == {"GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_TOKEN}"}
    assert servers["analysis"]["tools"] == {"include": ["ask"]}
    assert servers["analysis"]["sampling"]["allowed_models"] == ["google/gemini-3-flash"]


def test_a_config_file_of_the_machine_is_used_where_it_lies(nix) -> None:
    unit = nix.evaluate("upstream.ownConfigFile.config.systemd.services.hermes-agent.environment")
    assert unit["HERMES_DECLARED_CONFIG"] == "/etc/hermes/config.yaml"
