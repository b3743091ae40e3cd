from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
REFERENCE = "every key with its type and default: docs/reference/config.md"


def test_set_get_and_unset_go_round(home: Path, hermes_config: Run) -> None:
    assert hermes_config("set", "agent.max_turns", "50").out == f"agent.max_turns = 50 ({home}/config.yaml)\n"
    assert hermes_config("get", "agent.max_turns").out == "50\n"
    assert hermes_config("get", "agent.max_turns", "--json").out == "50\n"
    assert hermes_config("unset", "agent.max_turns").out == f"agent.max_turns removed ({home}/config.yaml)\n"
    assert hermes_config("get", "agent.max_turns").out == "90\n"


@pytest.mark.parametrize(
    "text",
    [
        "plugins:\n  isolation: host\n  host:\n    launcher: [env]\n    memory_mb: 512\n",
        "plugins:\n  entries:\n    dice:\n      isolation: host\n",
    ],
)
def test_a_process_of_its_own_for_a_plugin_is_accepted(home: Path, hermes_config: Run, text: str) -> None:
    (home / "config.yaml").write_text(text)
    accepted = hermes_config("check")
    assert "no effect" not in accepted.out + accepted.err and "isolation" not in accepted.err


def test_a_wrong_value_is_refused_with_the_words_of_the_check(home: Path, hermes_config: Run) -> None:
    ran = hermes_config("set", "plugins.enabled", "good")
    assert (ran.status, ran.out) == (78, "")
    assert ran.err == (
        'plugins.enabled: expected a list of plugin names, got the text "good"; write  enabled: [good]\n'
        f"1 error; {REFERENCE}\n"
    )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("agent.max_turn", "unknown key `agent.max_turn` (did you mean `agent.max_turns`?)"),
        ("agnt.max_turns", "unknown key `agnt` (did you mean `agent`?)"),
        ("weather.units", "`weather.units` is not set and has no default"),
        ("a..b", "'a..b' is not the path of a key; write it like agent.max_turns"),
    ],
)
def test_get_says_what_is_wrong_with_a_key(home: Path, hermes_config: Run, key: str, words: str) -> None:
    assert hermes_config("get", key) == (1, "", f"{words}\n")


def test_a_variables_name_goes_to_the_env_file_and_is_not_echoed(home: Path, hermes_config: Run) -> None:
    ran = hermes_config("set", "OPENAI_API_KEY", "hunter2")
    assert ran.out == f"OPENAI_API_KEY = [redacted] ({home}/.env)\n"
    assert (home / ".env").read_text() == "OPENAI_API_KEY=hunter2\n"
    assert hermes_config("unset", "OPENAI_API_KEY").status == 0
    assert hermes_config("unset", "OPENAI_API_KEY").status == 1
    assert (home / ".env").read_text() == ""


def test_no_command_prints_a_secret(home: Path, hermes_config: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_URL", "https://user:hunter2@host/")
    (home / ".env").write_text("TOKEN_IN_FILE=hunter2-file\n")
    (home / "config.yaml").write_text(
        "model: {api_key: hunter2-key, base_url: 'https://me:hunter2@host/v1'}\n"
        "server: {key: '31337'}\n"
        "providers: {x: {headers: {Authorization: Bearer hunter2-header}}}\n"
        "mcp_servers: {f: {env: {ANY: hunter2-env, N: 31337}, oauth: {client_secret: hunter2-oauth}}}\n"
        "weather: {api_key: hunter2-weather, url: '${WEATHER_URL}', from: '${TOKEN_IN_FILE}', password: [hunter2]}\n"
        "plain: sk-or-v1-0123456789abcdef0123456789\n"
    )
    for arguments in (
        ("show",),
        ("show", "--json"),
        ("show", "--origin"),
        ("show", "--changed"),
        ("get", "model"),
        ("get", "model.api_key"),
        ("get", "weather", "--json"),
        ("get", "weather.url"),
        ("get", "mcp_servers"),
        ("check",),
        ("check", "--json"),
        ("set", "weather.password", "hunter2-again"),
    ):
        ran = hermes_config(*arguments)
        assert ran.status == 0, ran
        text = ran.out + ran.err
        assert "hunter2" not in text and "31337" not in text and "0123456789abcdef" not in text, arguments
    assert hermes_config("get", "model.api_key").out == "[redacted]\n"
    assert hermes_config("get", "weather.from").out == "${TOKEN_IN_FILE}\n"
    assert hermes_config("get", "model.base_url").out == "https://[redacted]@host/v1\n"


def test_show_prints_what_is_in_effect(home: Path, hermes_config: Run) -> None:
    (home / "config.yaml").write_text("agent: {max_turns: 5}\n")
    shown = json.loads(hermes_config("show", "--json").out)
    assert shown["agent"]["max_turns"] == 5 and shown["server"]["port"] == 8642
    assert hermes_config("show", "--changed").out == "agent:\n  max_turns: 5\n"
    assert "\nserver.port = 8642  # default\n" in hermes_config("show", "--origin").out
    origins = json.loads(hermes_config("show", "--origin", "--json", "--changed").out)
    assert origins == [{"key": "agent.max_turns", "value": 5, "origin": "local"}]


def test_show_prints_nothing_that_was_changed_in_an_empty_home(home: Path, hermes_config: Run) -> None:
    assert hermes_config("show", "--changed").out == ""
    assert hermes_config("show", "--changed", "--origin").out == ""


def test_check_covers_both_layers_and_the_env_file(
    home: Path, hermes_config: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hermes_config("check") == (0, f"the config of {home} is valid (0 keys)\n", "")
    (home / "declared.yaml").write_text("agent: {max_turns: x}\n")
    (home / "config.local.yaml").write_text("modle: x\n")
    (home / ".env").write_text("oops\n")
    monkeypatch.setenv("HERMES_DECLARED_CONFIG", str(home / "declared.yaml"))
    ran = hermes_config("check")
    assert ran.status == 78
    assert [line.split(": ")[0] for line in ran.out.splitlines()[:-1]] == [
        f"{home}/.env:1",
        f"{home}/config.local.yaml:1",
        f"{home}/declared.yaml:1",
    ]
    findings = json.loads(hermes_config("check", "--json").out)
    assert findings["valid"] is False
    assert findings["findings"][2] == {
        "file": f"{home}/declared.yaml",
        "line": 1,
        "column": 9,
        "key_path": "agent.max_turns",
        "message": 'agent.max_turns: expected an integer (turns), got the text "x"',
        "level": "error",
    }


def test_check_uses_the_variables_of_the_home(home: Path, hermes_config: Run) -> None:
    (home / "config.yaml").write_text("logging: {level: '${LEVEL_OF_LOG}'}\n")
    assert hermes_config("check").status == 78
    (home / ".env").write_text("LEVEL_OF_LOG=DEBUG\n")
    assert hermes_config("check") == (0, f"the config of {home} is valid (1 key)\n", "")


def test_a_label_stands_in_place_of_file_and_line(tmp_path: Path, hermes_config: Run) -> None:
    (tmp_path / "x.json").write_text('{"modle": 1}')
    ran = hermes_config("check", str(tmp_path / "x.json"), "--label", "services.hermes-agent.settings")
    assert ran.out.splitlines()[0] == "services.hermes-agent.settings: unknown key `modle` (did you mean `model`?)"


def test_path_names_the_file_that_set_changes(home: Path, hermes_config: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hermes_config("path").out == f"{home}/config.yaml\n"
    monkeypatch.setenv("HERMES_DECLARED_CONFIG", "/declared.yaml")
    assert hermes_config("path").out == f"{home}/config.local.yaml\n"


def test_a_plugins_key_is_set_and_said_not_to_be_ours(home: Path, hermes_config: Run) -> None:
    ran = hermes_config("set", "weather.units", "metric")
    assert (ran.status, ran.err) == (0, "`weather.units` is not ours; it is kept for plugins\n")
    assert hermes_config("get", "weather.units").out == "metric\n"


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["get", "agent.max_turns"], "ruamel jsonschema hypothesis"),
        (["show"], "ruamel jsonschema"),
        (["check"], "ruamel jsonschema"),
        (["set", "weather.units", "x"], "jsonschema"),
    ],
)
def test_a_command_loads_nothing_heavy_that_it_does_not_need(home: Path, arguments: list[str], heavy: str) -> None:
    code = (
        "import argparse, sys; from hermes_agent.app.cli import config\n"
        "assert 'yaml' not in sys.modules\n"
        "parser = argparse.ArgumentParser(); config.add_config(parser.add_subparsers())\n"
        "args = parser.parse_args(['config', *sys.argv[2:]]); assert args.run(args) == 0\n"
        "sys.exit(' '.join(name for name in sys.argv[1].split() if name in sys.modules) or 0)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, heavy, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HERMES_HOME": str(home)},
        check=False,
    )
    assert (ran.returncode, ran.stderr) in [(0, ""), (0, "`weather.units` is not ours; it is kept for plugins\n")]
