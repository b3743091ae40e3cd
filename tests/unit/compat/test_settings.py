"""`hermes_constants` and `hermes_cli.config`: plugin contract §11.2, §11.3."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.errors import ConfigError, UserError

SIGNATURES = {
    "load_config": "() -> 'dict[str, Any]'",
    "get_env_value": "(key: 'str') -> 'str | None'",
    "save_env_value": "(key: 'str', value: 'str') -> 'None'",
    "cfg_get": "(cfg: 'dict[str, Any] | None', *keys: 'str', default: 'Any' = None) -> 'Any'",
    "read_raw_config": "() -> 'dict[str, Any]'",
    "load_config_readonly": "() -> 'dict[str, Any]'",
}


@pytest.fixture
def config(served: None, home: Path) -> Any:
    """The served module."""
    import hermes_cli.config

    return hermes_cli.config


def test_the_signatures_are_upstream_s(config: Any) -> None:
    assert {name: str(inspect.signature(getattr(config, name))) for name in SIGNATURES} == SIGNATURES
    saving = inspect.signature(config.save_config).parameters
    assert list(saving) == ["config", "strip_defaults", "preserve_keys", "merge_existing"]
    assert [(p.kind.name, p.default) for p in saving.values()][1:] == [
        ("KEYWORD_ONLY", True),
        ("KEYWORD_ONLY", None),
        ("KEYWORD_ONLY", False),
    ]


# -- hermes_constants --------------------------------------------------------------------------------------------


def test_the_home_is_read_at_each_call(served: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hermes_constants

    assert hermes_constants.get_hermes_home() == home
    monkeypatch.setenv("HERMES_HOME", "/other")
    assert hermes_constants.get_hermes_home() == Path("/other")
    monkeypatch.setenv("HERMES_HOME", "")
    assert hermes_constants.get_hermes_home() == Path.home() / ".hermes"
    assert hermes_constants.display_hermes_home() == "~/.hermes"
    monkeypatch.setenv("HERMES_HOME", "/other/profiles/work")
    assert hermes_constants.get_default_hermes_root() == Path("/other")
    assert hermes_constants.display_hermes_home() == "/other/profiles/work"


def test_an_old_folder_is_used_while_something_lies_in_it(served: None, home: Path) -> None:
    from hermes_constants import get_hermes_dir

    assert get_hermes_dir("cache/images", "image_cache") == home / "cache/images"
    (home / "image_cache").mkdir()
    assert get_hermes_dir("cache/images", "image_cache") == home / "cache/images"
    (home / "image_cache" / "x.png").touch()
    assert get_hermes_dir("cache/images", "image_cache") == home / "image_cache"


def test_node_is_looked_for_in_the_home_first(served: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_constants import find_node_executable, with_hermes_node_path

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert with_hermes_node_path({"PATH": "/x", "A": "1"}) == {"PATH": "/x", "A": "1"}
    own = home / "node" / "bin"
    own.mkdir(parents=True)
    (own / "npm").write_text("#!/bin/sh\n")
    (own / "npm").chmod(0o755)

    assert find_node_executable("npm") == str(own / "npm")
    assert with_hermes_node_path()["PATH"] == f"{own}:/usr/bin:/bin"
    assert find_node_executable("sh") in ("/usr/bin/sh", "/bin/sh")
    assert find_node_executable("surely-not-there") is None


# -- reading -----------------------------------------------------------------------------------------------------


def test_the_config_is_defaults_and_file_with_variables_expanded(
    config: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_MODEL", "some-model")
    (home / "config.yaml").write_text("model:\n  default: ${MY_MODEL}\nmy_plugin:\n  depth: 3\n")

    loaded = config.load_config()

    assert config.cfg_get(loaded, "model", "default") == "some-model"
    assert config.cfg_get(loaded, "my_plugin", "depth") == 3
    assert config.cfg_get(loaded, "agent", "max_turns") == 90
    assert config.read_raw_config() == {"model": {"default": "${MY_MODEL}"}, "my_plugin": {"depth": 3}}


def test_a_loaded_config_is_a_copy_and_the_read_only_one_is_shared(config: Any, home: Path) -> None:
    config.load_config()["agent"]["max_turns"] = 1

    assert config.load_config()["agent"]["max_turns"] == 90
    assert config.load_config_readonly() is config.load_config_readonly()


def test_a_change_of_the_file_is_seen(config: Any, home: Path) -> None:
    assert config.cfg_get(config.load_config(), "mine") is None
    (home / "config.yaml").write_text("mine: 1\n")
    assert config.cfg_get(config.load_config(), "mine") == 1


def test_while_the_file_is_broken_plugins_get_the_last_that_was_not(
    config: Any, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / "config.yaml").write_text("mine: 1\n")
    config.load_config()
    (home / "config.yaml").write_text("agent: yes\n")

    assert config.load_config()["mine"] == 1
    assert any("is broken" in m for m in caplog.messages)


@pytest.mark.parametrize(
    ("cfg", "keys", "expected"),
    [
        (None, ("a",), "d"),
        ({"a": None}, ("a",), "d"),
        ({"a": {"b": 0}}, ("a", "b"), 0),
        ({"a": 5}, ("a", "b"), "d"),
        ({"a": 1}, (), {"a": 1}),
    ],
)
def test_cfg_get_never_stumbles(config: Any, cfg: Any, keys: tuple[str, ...], expected: Any) -> None:
    assert config.cfg_get(cfg, *keys, default="d") == expected


# -- writing -----------------------------------------------------------------------------------------------------


def test_saving_writes_what_changed_and_keeps_the_rest_of_the_file(
    config: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_MODEL", "some-model")
    file = home / "config.yaml"
    file.write_text("# mine\nmodel:\n  default: ${MY_MODEL}  # from the environment\nagent:\n  max_turns: 5\n")
    loaded = config.load_config()
    loaded["my_plugin"] = {"depth": 3}
    loaded["agent"]["max_turns"] = 90

    config.save_config(loaded)

    text = file.read_text()
    assert "# mine" in text
    assert "default: ${MY_MODEL}  # from the environment" in text
    assert "max_turns" not in text  # the default again
    assert config.read_raw_config() == {"model": {"default": "${MY_MODEL}"}, "my_plugin": {"depth": 3}}


def test_a_default_is_written_when_that_is_asked_for(config: Any, home: Path) -> None:
    loaded = config.load_config()
    (home / "config.yaml").write_text("agent: {max_turns: 5}\n")

    config.save_config(loaded, preserve_keys={("agent", "max_turns")})

    assert config.read_raw_config() == {"agent": {"max_turns": 90}}


def test_what_is_left_out_goes_unless_it_is_to_be_merged(config: Any, home: Path) -> None:
    (home / "config.yaml").write_text("mine: {a: 1, b: 2}\nother: 1\n")

    config.save_config({"mine": {"a": 5}}, merge_existing=True)
    assert config.read_raw_config() == {"mine": {"a": 5, "b": 2}, "other": 1}
    config.save_config({"mine": {"a": 5}})
    assert config.read_raw_config() == {"mine": {"a": 5}}


def test_a_value_that_the_config_refuses_is_not_saved(config: Any, home: Path) -> None:
    loaded = config.load_config()
    loaded["agent"]["max_turns"] = "ninety"

    with pytest.raises(ConfigError):
        config.save_config(loaded)

    assert not (home / "config.yaml").exists()


def test_a_config_file_of_one_s_own_is_replaced_as_a_whole(config: Any, home: Path) -> None:
    config.atomic_config_write(home / "mine.yaml", {"b": [1], "a": "x"})

    assert config.fast_safe_load((home / "mine.yaml").read_text()) == {"b": [1], "a": "x"}
    assert config.get_config_path() == home / "config.yaml"


# -- variables ---------------------------------------------------------------------------------------------------


def test_a_variable_comes_from_the_environment_even_when_empty_then_from_the_file(
    config: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".env").write_text("A_SETTING=file\nB_SETTING=file\nC_SETTING=file\n")
    monkeypatch.setenv("A_SETTING", "environment")
    monkeypatch.setenv("B_SETTING", "")
    monkeypatch.delenv("C_SETTING", raising=False)

    assert [config.get_env_value(f"{n}_SETTING") for n in "ABCD"] == ["environment", "", "file", None]
    assert config.get_env_value("../etc") is None


def test_a_systemd_credential_is_a_variable_too(
    config: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "creds").mkdir()
    (tmp_path / "creds" / "SOME_API_KEY").write_text("from-systemd")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "creds"))

    assert config.get_env_value("SOME_API_KEY") == "from-systemd"


def test_a_saved_variable_is_in_the_file_and_in_the_process(
    config: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "old-value")
    (home / ".env").write_text("# keys\nSOME_API_KEY=old-value\n")

    config.save_env_value("SOME_API_KEY", "a value 'quoted'")

    assert os.environ["SOME_API_KEY"] == config.get_env_value("SOME_API_KEY") == "a value 'quoted'"
    assert (home / ".env").read_text().startswith("# keys\n")
    assert (home / ".env").stat().st_mode & 0o777 == 0o600


def test_in_a_managed_home_no_variable_is_saved(
    config: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declared.json").write_text("{}")
    monkeypatch.setenv("HERMES_DECLARED_CONFIG", str(tmp_path / "declared.json"))

    with pytest.raises(UserError, match="SOME_API_KEY cannot be stored"):
        config.save_env_value("SOME_API_KEY", "x")

    assert "SOME_API_KEY" not in os.environ
    assert not (home / ".env").exists()


def test_names_that_upstream_does_not_have_are_absent(config: Any) -> None:
    assert not hasattr(config, "get_env_var")
    assert not hasattr(config, "set_env_var")
