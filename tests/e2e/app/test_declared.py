"""`hermes doctor --declared`: the start of a daemon in an empty home, as the gate of a build runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = {"provider": "custom", "default": "scripted", "base_url": "http://127.0.0.1:8643/v1"}


def doctor(tmp_path: Path, config: object, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "declared.yaml"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    home = tmp_path / "home"
    return subprocess.run(
        [sys.executable, "-m", "hermes_agent", "doctor", "--declared", str(file), *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HERMES_HOME": str(home), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def findings(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    return found


def test_a_good_config_passes_and_the_home_of_the_caller_stays_as_it_is(tmp_path: Path) -> None:
    done = doctor(tmp_path, {"model": MODEL})
    assert (done.returncode, done.stderr) == (0, "")
    assert "the daemon starts with" in done.stdout
    assert not (tmp_path / "home").exists()


def test_what_a_start_would_stumble_over_is_named_with_the_key(tmp_path: Path) -> None:
    config = {
        "model": {"provider": "openrouter", "default": "anthropic/claude-opus-4.6"},
        "mcp_servers": {"wiki": {"command": "no-such-program"}, "notes": {"command": "sh", "env": {"A": "${NOTES}"}}},
        "server": {"port": 80},
        "people": {"ann": ["telegarm:1"]},
    }
    done = doctor(tmp_path, config, "--json")
    assert done.returncode == 78
    by_key = {finding["key"]: finding["text"] for finding in findings(done) if finding["level"] == "error"}
    assert by_key == {
        "mcp_servers.notes.env.A": "mcp_servers.notes.env.A needs ${NOTES}, which nothing gives",
        "mcp_servers.wiki.command": "mcp_servers.wiki.command: there is no program `no-such-program` on the PATH of the"
        " service",
        "model": "model: OpenRouter (openrouter.ai) needs OPENROUTER_API_KEY, which nothing gives",
        "people.ann[0]": "people.ann[0]: there is no platform `telegarm:1` (did you mean `telegram`?)",
        "server.port": "server.port: the service may not listen on port 80: those below 1024 are of the system",
    }


def test_names_that_the_service_gives_are_enough(tmp_path: Path) -> None:
    config = {"model": {"provider": "openrouter", "default": "m/x"}, "server": {"key": "${MY_KEY}"}}
    done = doctor(tmp_path, config, "--given", "MY_KEY,OPENROUTER_API_KEY")
    assert done.returncode == 0, done.stdout


def test_skills_of_the_home_may_have_a_name_that_the_build_does_not_know(tmp_path: Path) -> None:
    commands = {"a": {"type": "alias", "target": "bake-bread"}, "b": {"type": "alias", "target": "/bundels"}}
    config = {"model": MODEL, "skills": {"disabled": ["bake-bread", "dsn"]}, "quick_commands": commands}
    done = doctor(tmp_path, config, "--json")
    assert done.returncode == 78
    assert {finding["key"]: (finding["level"], finding["text"].partition(": ")[2]) for finding in findings(done)} == {
        "quick_commands.a.target": ("warning", "there is no command `bake-bread`"),
        "quick_commands.b.target": ("error", "there is no command `bundels` (did you mean `bundles`?)"),
        "skills.disabled[1]": ("warning", "there is no skill `dsn` (did you mean `dns`?)"),
    }


def test_a_value_that_only_the_machine_knows_is_not_judged(tmp_path: Path) -> None:
    config = {"model": {**MODEL, "base_url": "${MODEL_URL}"}}
    assert doctor(tmp_path, config, "--given", "MODEL_URL").returncode == 0


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (
            {"mcp_servers": {"w": {"command": "sh", "args": ["--token=ghp_0123456789abcdefghij0123456789abcdef"]}}},
            "args",
        ),
        (
            {"mcp_servers": {"w": {"url": "https://w.example.org", "headers": {"X-Key": "a8f5f167f44f4964e6c998de"}}}},
            "X-Key",
        ),
        ({"my_plugin": {"token": "xoxb-123456789012-123456789012-abcdefghijklmnopqrstuvwx"}}, "my_plugin.token"),
    ],
)
def test_a_secret_in_the_config_is_refused_without_being_shown(tmp_path: Path, config: dict, key: str) -> None:
    done = doctor(tmp_path, {"model": MODEL, **config}, "--json")
    (error,) = [finding for finding in findings(done) if finding["level"] == "error"]
    assert key in error["key"] and "is a secret" in error["text"]
    for secret in ("ghp_", "a8f5f1", "xoxb"):
        assert secret not in done.stdout + done.stderr


def test_a_file_of_the_service_decides_what_is_given(tmp_path: Path) -> None:
    service = tmp_path / "service.json"
    service.write_text(json.dumps({"may_have_more": True, "ports": {"8642": "the model"}, "low_ports": True}))
    config = {"model": MODEL, "mcp_servers": {"w": {"command": "sh", "env": {"A": "${B}"}}}}
    done = doctor(tmp_path, config, "--service", str(service), "--json")
    levels = {finding["text"]: finding["level"] for finding in findings(done)}
    assert levels == {
        "mcp_servers.w.env.A needs ${B}, which nothing gives": "warning",
        "server.port: port 8642 is taken by the model": "error",
    }


def test_a_warning_is_an_error_with_strict_alone(tmp_path: Path) -> None:
    config = {"model": MODEL, "my_plugin": {"level": 3}}
    assert doctor(tmp_path, config).returncode == 0
    strict = doctor(tmp_path, config, "--strict")
    assert strict.returncode == 78
    assert "kept for plugins: `my_plugin`" in strict.stdout


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    done = doctor(tmp_path, "model: [")
    assert done.returncode == 78
    assert "declared.yaml:2" in done.stdout
    missing = doctor(tmp_path, {}, "--service", str(tmp_path / "nowhere.json"))
    assert missing.returncode == 1 and "nowhere.json" in missing.stderr


def test_a_plugin_that_ends_the_process_is_named(tmp_path: Path) -> None:
    plugin = tmp_path / "bundled" / "ends"
    plugin.mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: ends\nversion: 1.0.0\n")
    (plugin / "__init__.py").write_text("import os, sys\nprint('last words', file=sys.stderr)\nos._exit(3)\n")
    config = {"model": MODEL, "plugins": {"auto_enable": True}}
    done = doctor(tmp_path, config, HERMES_BUNDLED_PLUGINS=f":{plugin.parent}")
    assert done.returncode == 78
    assert "the start ended while loading the plugins: exit status 3" in done.stdout
    assert "last words" in done.stdout


def test_isolation_of_plugins_is_accepted_and_what_it_forbids_is_named(tmp_path: Path) -> None:
    for name, register in (("dice", "pass"), ("chat", "ctx.register_platform('x', 'X', lambda c: None, lambda: True)")):
        plugin = tmp_path / "declared" / name
        plugin.mkdir(parents=True)
        (plugin / "plugin.yaml").write_text(f"name: {name}\nversion: 1.0.0\ndescription: d\nkind: standalone\n")
        (plugin / "__init__.py").write_text(f"def register(ctx):\n    {register}\n")
    config = {"model": MODEL, "plugins": {"enabled": ["dice"], "isolation": "host"}}
    declared = {"HERMES_BUNDLED_PLUGINS": f":{tmp_path / 'declared'}"}
    accepted = doctor(tmp_path, config, **declared)
    assert (accepted.returncode, accepted.stderr) == (0, "")
    config["plugins"]["enabled"] = ["dice", "chat"]
    refused = doctor(tmp_path, config, "--json", **declared)
    assert "plugin `chat`: the chat platform `x` cannot run in a process of its own" in refused.stdout
    assert "hermes config set plugins.entries.chat.isolation in_process" in refused.stdout
    assert 'settings.plugins.entries.\\"chat\\".isolation = \\"in_process\\"' in refused.stdout
    service = tmp_path / "service.json"
    service.write_text(json.dumps({"namespaces": False}))
    config["plugins"]["enabled"] = ["dice"]
    without = doctor(tmp_path, config, "--service", str(service), **declared)
    assert without.returncode == 78 and "`isolation: host` needs a unit of its own" in without.stdout
    assert "Run `packaging/systemd/plugin dice` as root" in without.stdout and "Mend" not in without.stdout
    service.write_text(json.dumps({"namespaces": False, "units": ["dice"]}))
    assert doctor(tmp_path, config, "--service", str(service), **declared).returncode == 0
    service.write_text(json.dumps({"namespaces": False}))
    config["plugins"]["host"] = {"launcher": ["env"]}
    assert doctor(tmp_path, config, "--service", str(service), **declared).returncode == 0
