"""Consent to capabilities: plugin contract of 0.23 §4.5, and `hermes plugins capabilities`."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pexpect
import pytest
import yaml

from hermes_agent.app.main import main
from hermes_agent.plugins.discovery import discover

Write = Callable[..., Path]
Capture = pytest.CaptureFixture[str]
ASKS = "name: asks\nversion: '1'\ncapabilities: ['network:api.example.org', tools.override, what.ever]\n"


@pytest.fixture
def asks(write_plugin: Write, tmp_path: Path) -> Path:
    return write_plugin("asks", manifest=ASKS, root=tmp_path / "src")


def entry(home: Path, key: str = "asks") -> dict[str, Any]:
    """Return `plugins.entries.<key>` of the config file."""
    file = home / "config.yaml"
    values = yaml.safe_load(file.read_text()) if file.exists() else {}
    found: dict[str, Any] = ((values or {}).get("plugins") or {}).get("entries", {}).get(key, {})
    return found


def test_without_a_terminal_nothing_is_granted_and_the_install_succeeds(
    home: Path, asks: Path, capsys: Capture
) -> None:
    assert main(["plugins", "install", str(asks), "--enable", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "network:api.example.org: reach api.example.org over the network" in out
    assert "declares the unknown capability 'what.ever'; it is dropped" in out
    assert "None is granted, since no user can be asked: `hermes plugins capabilities asks --grant ID`" in out
    assert entry(home) == {}


def test_a_user_is_asked_for_each_and_the_consent_is_recorded(home: Path, asks: Path) -> None:
    child = pexpect.spawn(
        sys.executable, ["-m", "hermes_agent", "plugins", "install", str(asks), "--enable"],
        env={**os.environ, "HERMES_HOME": str(home), "TERM": "dumb"}, encoding="utf-8", timeout=60,
    )  # fmt: skip
    child.expect_exact("Grant network:api.example.org? [y/N] ")
    child.sendline("n")
    child.expect_exact("Grant tools.override? [y/N] ")
    child.sendline("y")
    child.expect_exact("It goes without the others")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    written = entry(home)
    declared = ["network:api.example.org", "tools.override", "what.ever"]
    assert written["granted_capabilities"] == ["tools.override"]
    assert written["allow_tool_override"] is True
    assert written["capabilities_consent"]["hash"] == hashlib.sha256("\n".join(declared).encode()).hexdigest()
    assert datetime.fromisoformat(written["capabilities_consent"]["granted_at"]).utcoffset() is not None


def test_an_update_shows_what_is_asked_for_anew_and_no_longer(home: Path, asks: Path, capsys: Capture) -> None:
    assert main(["plugins", "install", str(asks), "--enable", "--yes"]) == 0
    assert main(["plugins", "capabilities", "asks", "--grant", "network:api.example.org"]) == 0
    (asks / "plugin.yaml").write_text("name: asks\nversion: '2'\ncapabilities: [tools.override, 'secret:A_KEY']\n")
    capsys.readouterr()
    assert main(["plugins", "update", "asks", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "  + asks for secret:A_KEY: know the secret A_KEY" in out
    assert "  - no longer asks for network:api.example.org; it stays granted until you withdraw it" in out
    assert entry(home)["granted_capabilities"] == ["network:api.example.org"]
    main(["plugins", "capabilities", "asks"])
    shown = capsys.readouterr().out
    assert "granted (granted_capabilities), not declared" in shown and "since then the plugin asks for others" in shown


def test_capabilities_are_granted_listed_and_withdrawn(home: Path, asks: Path, capsys: Capture) -> None:
    assert main(["plugins", "install", str(asks), "--no-enable", "--yes"]) == 0
    assert main(["plugins", "capabilities", "asks", "--grant", "tools.override", "--grant", "tool:todo"]) == 0
    assert entry(home)["granted_capabilities"] == ["tool:todo", "tools.override"]
    capsys.readouterr()
    assert main(["plugins", "capabilities", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["asks"]
    assert listed["tool:todo"] == {"declared": False, "granted": True, "by": "granted_capabilities"}
    assert listed["network:api.example.org"] == {"declared": True, "granted": False, "by": ""}
    assert "what.ever" not in listed
    main(["plugins", "info", "asks", "--json"])
    assert set(json.loads(capsys.readouterr().out)["capabilities"]) == {"network:api.example.org", "tools.override"}
    assert main(["plugins", "capabilities", "asks", "--revoke", "tools.override"]) == 0
    assert entry(home)["granted_capabilities"] == ["tool:todo"] and entry(home)["allow_tool_override"] is False
    assert main(["plugins", "capabilities", "asks", "--grant", "moon"]) == 1
    assert "there is no capability 'moon'" in capsys.readouterr().err


def test_a_package_declares_its_capabilities_as_entry_points(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site" / "some_plugin-1.0.dist-info"
    site.mkdir(parents=True)
    (site / "entry_points.txt").write_text(
        "[hermes_agent.plugins]\nsome = some_plugin:register\nother = some_plugin.other\n"
        "[hermes_agent.plugin_capabilities]\nsome.tools.override = some_plugin:register\n"
        "some.network:api.example.org = some_plugin:register\nsome.llm.model_override = else.where\n"
    )
    monkeypatch.syspath_prepend(str(site.parent))
    found = discover(home, os.environ, tmp_path).plugins
    assert list(found["some"].capabilities) == ["tools.override", "network:api.example.org"]
    assert list(found["other"].capabilities) == []
    assert "some_plugin" not in sys.modules
