"""What the bundled platforms have in common: they cost nothing until wanted, have typed settings, ask at setup."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pexpect
import pytest

from hermes_agent.adapters.config import PlatformConfig
from hermes_agent.adapters.options import Option, Options
from hermes_agent.adapters.registry import gateway_config, platform_states
from hermes_agent.config import load
from hermes_agent.config.schema import lookup
from hermes_agent.plugins.manifest import PluginManifest, read_manifest
from platforms.conftest import Make

BUNDLED = sorted(p.parent.name for p in (Path(__file__).parents[2] / "plugins" / "platforms").glob("*/plugin.yaml"))


def test_they_are_there_and_not_loaded_before_somebody_asks(make: Make) -> None:
    host: Any = make.host  # type: ignore[attr-defined]

    assert host.platforms.loaded_entries() == []
    assert all(host.platforms.is_registered(name) for name in BUNDLED)
    states = {state.name: state for state in platform_states(host.config.values, host.platforms)}
    assert sorted(states) == BUNDLED
    assert not any(state.enabled for state in states.values()), "none is configured"
    assert all(host.platforms.get(name).setup_fn for name in BUNDLED)
    assert all(host.platforms.get(name).attempt_fn for name in BUNDLED)


@pytest.mark.parametrize("name", BUNDLED)
def test_asking_which_are_enabled_imports_no_sdk_and_no_adapter(name: str) -> None:
    code = (
        f"import sys, importlib.util as u; s = u.spec_from_file_location('p', {str(_init(name))!r},"
        f" submodule_search_locations=[{str(_init(name).parent)!r}]); m = u.module_from_spec(s); sys.modules['p'] = m;"
        "s.loader.exec_module(m); print([n for n in sys.modules if n in"
        "('httpx', 'aiohttp', 'slack_sdk', 'discord', 'slixmpp', 'asyncio', 'smtplib') or n.startswith('p.')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def _init(name: str) -> Path:
    return Path(__file__).parents[2] / "plugins" / "platforms" / name / "__init__.py"


def test_a_daemon_loads_the_platforms_alone_that_something_names(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = make.host  # type: ignore[attr-defined]
    gateway_config(host.config.values, host.platforms)
    assert host.platforms.loaded_entries() == []

    monkeypatch.setenv("IRC_SERVER", "irc.test")
    values = {**host.config.values, "platforms": {"xmpp": {"port": 1}}, "discord": {"reactions": True}}
    gateway_config(values, host.platforms)
    assert {entry.name for entry in host.platforms.loaded_entries()} == {"irc", "xmpp", "discord"}


@pytest.mark.parametrize("name", BUNDLED)
def test_the_variables_of_a_bundled_platform_begin_with_its_name_and_one_setting_is_required(name: str) -> None:
    manifest = _manifest(name)
    entries = [*manifest.requires_env, *manifest.optional_env]
    variables = [entry["name"] if isinstance(entry, dict) else entry for entry in entries]
    variables += [spec["env"] for spec in manifest.config_schema.values() if spec.get("env")]
    assert variables and all(variable.startswith(f"{name.upper()}_") for variable in variables)
    assert any(spec.get("required") for spec in manifest.config_schema.values())


def test_a_variable_alone_configures_a_platform_and_wins(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = make.host  # type: ignore[attr-defined]
    monkeypatch.setenv("IRC_SERVER", "irc.test")
    monkeypatch.setenv("IRC_PORT", "6668")
    monkeypatch.setenv("IRC_HOME_CHANNEL", "#ops")

    config = gateway_config({"platforms": {"irc": {"port": 1, "nickname": "bot"}}}, host.platforms)

    ((platform, block),) = [(p, c) for p, c in config.platforms.items() if c.enabled]
    settings = host.platforms.create_adapter("irc", block).settings
    assert (platform.value, settings.server, settings.port, settings.nickname) == ("irc", "irc.test", 6668, "bot")
    assert block.home_channel is not None
    assert block.home_channel.chat_id == "#ops"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, r"platforms\.x\.host is not set, or the variable X_HOST"),
        ({"host": "h", "port": "many"}, r"platforms\.x\.port is 'many': expected a whole number"),
        ({"host": "h", "tls": "perhaps"}, r"platforms\.x\.tls is 'perhaps': expected true or false"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(given: dict[str, Any], complaint: str) -> None:
    options = Options(
        "x", Option("host", "X_HOST", required=True), Option("port", default=1), Option("tls", default=True)
    )

    with pytest.raises(ValueError, match=complaint):
        options.read(PlatformConfig(extra=given))
    assert not options.is_valid(PlatformConfig(extra=given))


def test_setup_asks_and_keeps_the_answers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".env").write_text("X_HOST=of-an-earlier-setup\nX_OTHER=1\n")
    code = (
        "from hermes_agent.adapters.options import Option, Options\n"
        "Options('x', Option('host', 'X_HOST', ask='Host'), Option('p', 'X_P', ask='Password', secret=True),"
        " Option('nick', 'X_NICK', 'bot', ask='Nick'), Option('port', 'X_PORT', 1, ask='Port'),"
        " Option('tls', 'X_TLS', True, ask='TLS'), Option('quiet', 'X_QUIET')).ask()"
    )
    environ = {**os.environ, "HERMES_HOME": str(home)}
    child = pexpect.spawn(sys.executable, ["-c", code], env=environ, timeout=30, encoding="utf-8")
    child.expect_exact("Host (empty: none): ")
    child.sendline("irc.test")
    child.expect_exact("Password (empty: none): ")
    child.sendline("se cret")
    child.expect_exact("Nick (empty: bot): ")
    child.sendline("")
    child.expect_exact("Port (empty: 1): ")
    child.sendline("many")
    child.expect_exact("platforms.x.port is 'many': expected a whole number.")
    child.sendline("7")
    child.expect_exact("TLS (empty: yes): ")
    child.sendline("no")
    child.expect(pexpect.EOF)

    assert "se cret" not in child.before
    assert (home / ".env").read_text() == "X_OTHER=1\nX_P='se cret'\n"
    assert load(home).raw["platforms"]["x"] == {"host": "irc.test", "port": 7, "tls": False}
    assert (home / ".env").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", BUNDLED)
def test_the_manifest_declares_every_setting_of_the_adapter_and_no_other(name: str) -> None:
    declared = _manifest(name).config_schema
    spec = importlib.util.spec_from_file_location(f"of_{name}", _init(name), submodule_search_locations=[])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds = {bool: "boolean", int: "integer", float: "number", list: "array", str: "string"}

    assert list(declared) == [option.key for option in module.SETTINGS.options]
    for option in module.SETTINGS.options:
        said = declared[option.key]
        assert said["type"] == kinds[type(option.default)], option
        assert said.get("env", "") == option.env, option
        assert said.get("default", type(option.default)()) == option.default, option
        assert (said.get("secret", False), said.get("required", False)) == (option.secret, option.required), option
        assert said["description"], option


@pytest.mark.parametrize("name", BUNDLED)
def test_the_page_of_a_platform_has_each_option_of_its_manifest_with_its_variable(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operator" / "platforms" / f"{name}.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    listed: dict[str, str] = {}
    for keys, variables, _ in rows:
        names = re.findall(r"`([^`]+)`", keys)
        listed |= dict(zip_longest(names, re.findall(r"`([^`]+)`", variables), fillvalue=""))
    of_all = set((lookup(("platforms", name)) or {})["properties"])

    declared = {key: spec.get("env", "") for key, spec in _manifest(name).config_schema.items()}
    assert {key: env for key, env in listed.items() if key in declared} == declared
    assert set(listed) - set(declared) <= of_all


def _manifest(name: str) -> PluginManifest:
    return read_manifest(str(_init(name).with_name("plugin.yaml")), source="bundled")
