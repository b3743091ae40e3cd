from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.config import load
from hermes_agent.config.edit import parse_value, set_value, unset_value
from hermes_agent.config.yaml_reader import read_text
from hermes_agent.core.errors import ConfigError, UserError

WRITTEN = """# the model
model:
  provider: openai   # by key
  default: "gpt-5"

# plugins, in order
plugins:
  enabled:
    - calculator  # sums
    - weather
  entries:
    weather: {allow_tool_override: true}

# how long
agent:
  max_turns: 50
  # sets that are off
  disabled_toolsets: [web]
last: 'yes'
"""


def _home(tmp_path: Path, text: str) -> Path:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def _set(home: Path, path: tuple[str, ...], value: Any, **environ: str) -> str:
    return set_value(home, path, value, environ=environ).read_text(encoding="utf-8")


def test_setting_a_key_changes_its_line_and_nothing_else(tmp_path: Path) -> None:
    after = _set(_home(tmp_path, WRITTEN), ("agent", "max_turns"), 60)
    assert after == WRITTEN.replace("max_turns: 50", "max_turns: 60")


def test_the_quotes_of_a_replaced_text_stay(tmp_path: Path) -> None:
    after = _set(_home(tmp_path, WRITTEN), ("model", "default"), "gpt-6")
    assert after == WRITTEN.replace('"gpt-5"', '"gpt-6"')


def test_a_list_is_replaced_in_the_style_it_has(tmp_path: Path) -> None:
    after = _set(_home(tmp_path, WRITTEN), ("agent", "disabled_toolsets"), ["web", "browser"])
    assert after == WRITTEN.replace("[web]", "[web, browser]")


def test_a_new_block_goes_to_the_end(tmp_path: Path) -> None:
    assert _set(_home(tmp_path, WRITTEN), ("server", "port"), 80) == WRITTEN + "server:\n  port: 80\n"
    assert _set(_home(tmp_path, "# only this"), ("server", "port"), 80) == "# only this\nserver:\n  port: 80\n"


def test_a_file_is_made_with_the_mode_of_the_umask_and_never_for_everybody(tmp_path: Path) -> None:
    before = os.umask(0o007)
    try:
        path = set_value(tmp_path / "new", ("model",), "gpt-5", environ={})
    finally:
        os.umask(before)
    assert path.read_text() == "model: gpt-5\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_the_mode_and_the_target_of_a_link_stay(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("model: a\n")
    (tmp_path / "real.yaml").chmod(0o640)
    (tmp_path / "config.yaml").symlink_to("real.yaml")
    _set(tmp_path, ("model",), "b")
    assert (tmp_path / "config.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text() == "model: b\n"
    assert stat.S_IMODE((tmp_path / "real.yaml").stat().st_mode) == 0o640


def test_windows_line_ends_stay(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"agent:\r\n  max_turns: 5\r\n")
    set_value(tmp_path, ("agent", "max_turns"), 6, environ={})
    assert (tmp_path / "config.yaml").read_bytes() == b"agent:\r\n  max_turns: 6\r\n"


def test_a_model_as_text_becomes_a_mapping_when_a_key_of_it_is_set(tmp_path: Path) -> None:
    after = _set(_home(tmp_path, "model: gpt-5 # mine\n"), ("model", "provider"), "openai")
    assert read_text(after, "x").value == {"model": {"default": "gpt-5", "provider": "openai"}}


def test_a_wrong_value_is_refused_with_the_words_of_the_check_and_the_file_stays(tmp_path: Path) -> None:
    home = _home(tmp_path, WRITTEN)
    with pytest.raises(ConfigError) as refused:
        _set(home, ("agent", "max_turns"), "ninety")
    assert str(refused.value).splitlines()[0] == ('agent.max_turns: expected an integer (turns), got the text "ninety"')
    assert (home / "config.yaml").read_text() == WRITTEN


@pytest.mark.parametrize("path", [("agent", "max_turn"), ("modle",), ("plugins", "enable"), ("server", "tls", "on")])
def test_an_unknown_key_is_refused(tmp_path: Path, path: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        _set(tmp_path, path, 1)
    assert not (tmp_path / "config.yaml").exists()


def test_a_file_that_has_another_error_is_not_written(tmp_path: Path) -> None:
    home = _home(tmp_path, "server: {port: x}\nagent: {max_turns: y}\n")
    with pytest.raises(ConfigError, match=r"config.yaml:1: server\.port"):
        _set(home, ("agent", "max_turns"), 5)
    (home / "config.yaml").write_text("agent: {max_turns: y}\n")
    assert _set(home, ("agent", "max_turns"), 5) == "agent: {max_turns: 5}\n"


def test_a_file_that_does_not_parse_is_not_touched(tmp_path: Path) -> None:
    home = _home(tmp_path, "agent: [\n")
    with pytest.raises(ConfigError, match=r"config\.yaml:2: a value was expected here"):
        _set(home, ("agent", "max_turns"), 5)
    assert (home / "config.yaml").read_text() == "agent: [\n"


def test_a_key_that_an_alias_shares_is_not_changed_behind_ones_back(tmp_path: Path) -> None:
    text = "mcp_servers:\n  a: &a\n    timeout: 5\n  b: *a\n"
    with pytest.raises(UserError, match="without changing something else"):
        _set(_home(tmp_path, text), ("mcp_servers", "b", "timeout"), 6)
    assert (tmp_path / "config.yaml").read_text() == text


def test_a_value_where_a_mapping_would_have_to_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds a value"):
        _set(_home(tmp_path, "weather: metric\n"), ("weather", "units"), "metric")


def test_an_item_of_a_list_is_not_set_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set the whole list"):
        set_value(tmp_path, ("plugins", "enabled", 0), "x", environ={})


def test_unsetting_takes_the_key_and_the_mappings_that_are_empty_then(tmp_path: Path) -> None:
    home = _home(tmp_path, WRITTEN)
    after = unset_value(home, ("plugins", "entries", "weather", "allow_tool_override"), environ={}).read_text()
    assert after == WRITTEN.replace("  entries:\n    weather: {allow_tool_override: true}\n", "")
    after = unset_value(home, ("model", "provider"), environ={}).read_text()
    assert "# the model\nmodel:\n  default:" in after
    assert load(home, environ={}).get("model.provider") == ""
    with pytest.raises(UserError, match="is not set in"):
        unset_value(home, ("model", "provider"), environ={})


def test_unsetting_in_flow_style_works_too(tmp_path: Path) -> None:
    after = unset_value(_home(tmp_path, "server: {port: 1, host: a} # here\n"), ("server", "port"), environ={})
    assert read_text(after.read_text(), "x").value == {"server": {"host": "a"}}
    assert "# here" in after.read_text()


@pytest.mark.parametrize("path", [("agent", "max_turns"), ("agent",), ("agent", "max_turns", "x")])
def test_a_declared_key_cannot_be_set_and_the_option_is_named(tmp_path: Path, path: tuple[str, ...]) -> None:
    (tmp_path / "declared.yaml").write_text("agent: {max_turns: 5}\n")
    environ = {"HERMES_DECLARED_CONFIG": str(tmp_path / "declared.yaml")}
    for change in (
        lambda: set_value(tmp_path, path, {}, environ=environ),
        lambda: unset_value(tmp_path, path, environ=environ),
    ):
        with pytest.raises(UserError) as refused:
            change()
        assert refused.value.hint == "change services.hermes-agent.settings.agent.max_turns and rebuild"


def test_on_a_managed_home_the_local_layer_is_changed(tmp_path: Path) -> None:
    (tmp_path / "declared.yaml").write_text("agent: {max_turns: 5}\n")
    environ = {"HERMES_DECLARED_CONFIG": str(tmp_path / "declared.yaml")}
    path = set_value(tmp_path, ("agent", "disabled_toolsets"), ["web"], environ=environ)
    assert path == tmp_path / "config.local.yaml"
    assert load(tmp_path, environ=environ).get("agent.disabled_toolsets") == ["web"]


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        (("agent", "max_turns"), "5", 5),
        (("model", "default"), "4.5", "4.5"),
        (("terminal", "cwd"), "~", "~"),
        (("terminal", "cwd"), "a: b", "a: b"),
        (("plugins", "enabled"), "[a, b]", ["a", "b"]),
        (("plugins", "entries"), "{a: {}}", {"a": {}}),
        (("plugins", "auto_enable"), "yes", True),
        (("approvals", "mode"), "off", "off"),
        (("weather", "units"), "metric", "metric"),
        (("weather", "days"), "- 1\n- 2", [1, 2]),
    ],
)
def test_a_typed_value_means_what_the_key_takes(path: tuple[str, ...], text: str, value: Any) -> None:
    assert parse_value(path, text) == value


@pytest.mark.parametrize("text", ["[a", "@x", "a: b: c", "'x", "!x y", ".nan", "a\nb: c"])
def test_a_typed_value_that_is_not_yaml_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not YAML"):
        parse_value(("weather", "units"), text)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(
        [
            "yes",
            "on",
            "1:30",
            "012",
            "1e3",
            "~",
            "",
            " x ",
            "a: b",
            "a #b",
            "#",
            "- a",
            "é",
            "two\nlines",
            "'",
            '"',
            "{",
            "x" * 90,
        ]
    )
    | st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=12)
)
KEYS = st.sampled_from(["k1", "k2", "yes", "a b"])
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k1", "k2", "yes", "a b"]), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(["weather", "notes", "zoo", "other"])


def _block(key: str, item: Any, flow: bool) -> str:
    in_flow = f"{key}: {json.dumps(item, ensure_ascii=False)}\n"
    return f"# about {key}\n" + (in_flow if flow else yaml.safe_dump({key: item}, allow_unicode=True))


@settings(max_examples=150)
@given(st.dictionaries(NAMES, TREES, max_size=4), NAMES, st.sampled_from(["", "k1", "k2"]), TREES, st.booleans())
def test_setting_one_key_keeps_every_other_key_and_every_comment(
    tmp_path_factory: pytest.TempPathFactory,
    present: dict[str, Any],
    name: str,
    inner: str,
    value: Any,
    flow: bool,
) -> None:
    home = tmp_path_factory.mktemp("home")
    blocks = [_block(key, item, flow) for key, item in present.items()]
    (home / "config.yaml").write_text("# head\n" + "".join(blocks) + "# tail\n", encoding="utf-8")
    path = (name, inner) if inner and isinstance(present.get(name, {}), dict) else (name,)
    after = _set(home, path, value)
    wanted = {**present, name: {**present.get(name, {}), inner: value} if len(path) == 2 else value}
    document = read_text(after, "x")
    assert document.findings == []
    assert document.value == wanted
    assert list(document.value) == [*present, *([name] if name not in present else [])]
    comments = ["# head", *(f"# about {key}" for key in present), "# tail"]
    assert [line for line in after.splitlines() if line in comments] == comments


@settings(max_examples=100)
@given(st.dictionaries(NAMES, TREES, min_size=1, max_size=4), st.booleans())
def test_unsetting_one_key_keeps_every_other_key_and_comment(
    tmp_path_factory: pytest.TempPathFactory, present: dict[str, Any], flow: bool
) -> None:
    home = tmp_path_factory.mktemp("home")
    blocks = [_block(key, item, flow) for key, item in present.items()]
    (home / "config.yaml").write_text("".join(blocks) + "# tail\n", encoding="utf-8")
    gone = next(iter(present))
    after = unset_value(home, (gone,), environ={}).read_text(encoding="utf-8")
    assert read_text(after, "x").value == {key: item for key, item in present.items() if key != gone}
    comments = [*(f"# about {key}" for key in present), "# tail"]
    assert [line for line in after.splitlines() if line in comments] == comments


def test_processes_that_set_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from hermes_agent.config.edit import set_value\n"
        "[set_value(Path(sys.argv[1]), ('weather', f'{sys.argv[2]}{n}'), n, environ={}) for n in range(5)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in "abcd"]
    assert [process.wait(timeout=90) for process in running] == [0, 0, 0, 0]
    weather = load(tmp_path, environ={}).values["weather"]
    assert weather == {f"{name}{n}": n for name in "abcd" for n in range(5)}
