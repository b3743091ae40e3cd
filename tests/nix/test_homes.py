"""The module for Home Manager: a service of the user from the same options, and the same refusals."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.nix


def test_a_home_has_the_daemon_as_a_service_of_the_user(nix) -> None:
    text = (nix.build("homes.full.unit").path / "hermes-agent.service").read_text()
    for line in (
        "Type=notify",
        'Environment="HERMES_HOME=/home/someone/.hermes"',
        'Environment="PERCENT=100%%"',
        "LoadCredential=OPENROUTER_API_KEY:/home/someone/.secrets/openrouter",
        "WorkingDirectory=/home/someone",
        "WatchdogSec=60",
        "NoNewPrivileges=true",
        "WantedBy=default.target",
    ):
        assert line in text.splitlines()
    package = nix.evaluate("homes.full.config.services.hermes-agent.finalPackage")
    assert f"ExecStart={package}/bin/hermes gateway run" in text
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


def test_the_option_reference_is_that_of_the_module(nix) -> None:
    made = nix.build("optionReference").path.read_text()
    there = (nix.tree / "docs" / "reference" / "nixos-options.md").read_text()
    assert made == there, "cp $(nix-build tests/nix -A optionReference) docs/reference/nixos-options.md"
