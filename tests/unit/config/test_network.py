"""`terminal.network`: a text, or the boolean that it was; an entry that names nothing stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent import config
from hermes_agent.config.edit import parse_value
from hermes_agent.core.errors import ConfigError
from hermes_agent.host import settings


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("false", "off"),
        ("true", "on"),
        ("off", "off"),
        ("on", "on"),
        ("'on'", "on"),
        ("ask", "ask"),
        ("hosts", "hosts"),
    ],
)
def test_a_boolean_is_off_or_on(tmp_path: Path, written: str, mode: str) -> None:
    (tmp_path / "config.yaml").write_text(f"terminal: {{network: {written}}}\n")
    assert config.load(tmp_path).get("terminal.network") == mode
    assert parse_value(("terminal", "network"), written) == mode


def test_it_is_off_where_the_config_says_nothing(tmp_path: Path) -> None:
    found = config.load(tmp_path)
    assert (found.get("terminal.network"), found.get("network.tools"), found.get("network.hosts")) == ("off", "on", [])


def test_another_value_is_an_error_that_names_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("terminal: {network: host}\n")
    with pytest.raises(ConfigError, match="one of `off`, `ask`, `hosts`, `on`, got the text"):
        config.load(tmp_path)


def test_an_entry_that_names_nothing_is_an_error_at_the_start_and_at_a_reload(tmp_path: Path) -> None:
    before = config.load(tmp_path)
    (tmp_path / "config.yaml").write_text("network: {hosts: ['https://example.org']}\n")
    found = config.load(tmp_path)
    with pytest.raises(ConfigError, match=r"network.hosts: 'https://example.org'"):
        settings.network_table(lambda: found.settings, tmp_path)
    with pytest.raises(ConfigError, match=r"network.hosts: 'https://example.org'"):
        settings.reload_config(before, tmp_path)
