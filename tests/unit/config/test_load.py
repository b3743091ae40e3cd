from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.config import Config, hermes_home, load
from hermes_agent.config.check import keys_without_effect
from hermes_agent.config.schema import RENAMED, leaves, merge
from hermes_agent.core.errors import ConfigError


def _load(home: Path, text: str, **environ: str) -> Config:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load(home, environ=environ)


def _managed(home: Path, declared: str, local: str | None = None) -> Config:
    (home / "declared.yaml").write_text(declared, encoding="utf-8")
    if local is not None:
        (home / "config.local.yaml").write_text(local, encoding="utf-8")
    return load(home, environ={"HERMES_DECLARED_CONFIG": str(home / "declared.yaml")})


def test_a_home_without_a_config_has_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, environ={})
    assert config.get("agent.max_turns") == 90
    assert config.values["server"]["port"] == 8642
    assert config.raw == {}
    assert config.path == tmp_path / "config.yaml"
    assert config.origin("agent.max_turns") == "default"


def test_an_empty_hermes_home_counts_as_unset() -> None:
    assert hermes_home({"HERMES_HOME": ""}) == Path.home() / ".hermes"
    assert hermes_home({"HERMES_HOME": "~/agent"}) == Path.home() / "agent"


def test_values_are_what_was_written_over_the_defaults(tmp_path: Path) -> None:
    config = _load(tmp_path, "agent: {max_turns: 5}\nweather: {units: metric}\n")
    assert config.get("agent.max_turns") == 5
    assert config.get("agent.clarify_timeout") == 3600
    assert config.values["weather"] == {"units": "metric"}
    assert config.raw == {"agent": {"max_turns": 5}, "weather": {"units": "metric"}}
    assert config.origin("agent.max_turns") == "local"


def test_a_named_entry_gets_the_defaults_of_its_kind(tmp_path: Path) -> None:
    config = _load(tmp_path, "plugins: {entries: {weather: {allow_tool_override: true}}}\n")
    assert config.get("plugins.entries.weather.on_guard_error") == "block"
    assert config.get("plugins.entries.absent.on_guard_error") == "block"
    assert config.values["plugins"]["entries"]["weather"]["allow_tool_override"] is True
    assert "allowed_models" not in config.values["plugins"]["entries"]["weather"]["llm"]


@pytest.mark.parametrize("path", ["agent.max_turn", "agnt", "agent.max_turns.x", "plugins.enabeld", "server.tls"])
def test_a_slip_in_our_own_code_is_a_key_error(tmp_path: Path, path: str) -> None:
    with pytest.raises(KeyError, match="unknown key"):
        load(tmp_path, environ={}).get(path)


def test_a_plugins_key_that_is_not_there_gives_the_fallback(tmp_path: Path) -> None:
    config = load(tmp_path, environ={})
    assert config.get("weather.units", "metric") == "metric"
    assert config.get("memory.honcho.workspace") is None
    assert config.get("platforms.irc.token", "none") == "none"
    assert config.get('plugins."a.b".x', 1) == 1


def test_the_default_that_is_returned_is_nobody_elses(tmp_path: Path) -> None:
    load(tmp_path, environ={}).get("plugins.enabled").append("x")
    assert load(tmp_path, environ={}).get("plugins.enabled") == []


def test_shorthands_are_written_out(tmp_path: Path) -> None:
    config = _load(tmp_path, "model: gpt-5\napprovals: {mode: off}\nagent: {max_turns: 7.0}\n")
    assert config.get("model.default") == "gpt-5"
    assert config.get("model.provider") == ""
    assert config.get("approvals.mode") == "off"
    assert repr(config.get("agent.max_turns")) == "7"
    assert config.raw["model"] == "gpt-5"


def test_variables_come_from_the_environment_then_from_the_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    text = "model: {default: '${A}-${B}', provider: '${UNSET_ONE}'}\nweather: {list: ['${A}', $A, '${']}\n"
    config = _load(tmp_path, text, A="surrounding")
    assert config.get("model.default") == "surrounding-file"
    assert config.get("model.provider") == "${UNSET_ONE}"
    assert config.values["weather"] == {"list": ["surrounding", "$A", "${"]}
    assert config.raw["model"]["default"] == "${A}-${B}"


def test_a_value_is_judged_with_its_variables_filled_in_and_never_shown_so(tmp_path: Path) -> None:
    assert _load(tmp_path, "logging: {level: '${LEVEL}'}\n", LEVEL="DEBUG").get("logging.level") == "DEBUG"
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, "logging: {level: '${LEVEL}'}\n", LEVEL="hunter2")
    assert 'got the text "${LEVEL}" (what LEVEL holds does not fit)' in refused.value.message
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigError, match="the variable LEVEL is not set"):
        _load(tmp_path, "logging: {level: '${LEVEL}'}\n")


def test_the_env_file_is_read_only_when_a_variable_needs_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("not an assignment\n")
    assert _load(tmp_path, "model: gpt-5\n").get("model.default") == "gpt-5"
    with pytest.raises(ConfigError, match=r"\.env:1: expected NAME=VALUE"):
        _load(tmp_path, "model: ${A}\n")


def test_every_error_of_every_layer_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        _managed(tmp_path, "agent: 5\nmodle: x\n", "server: {port: x}\n")
    lines = str(refused.value).splitlines()
    assert [line.rsplit("/", 1)[-1].split(": ")[0] for line in lines[:3]] == [
        "config.local.yaml:1",
        "declared.yaml:1",
        "declared.yaml:2",
    ]
    assert lines[3] == "3 errors; every key with its type and default: docs/reference/config.md"
    assert refused.value.exit_status == 78


def test_what_is_declared_wins_and_the_rest_of_the_local_layer_stays(tmp_path: Path) -> None:
    config = _managed(
        tmp_path,
        "agent: {max_turns: 40}\nplugins: {enabled: [a]}\n",
        "agent: {max_turns: 5, disabled_toolsets: [web]}\nplugins: {enabled: [b, c]}\nmodel: gpt-5\n",
    )
    assert config.get("agent.max_turns") == 40
    assert config.get("agent.disabled_toolsets") == ["web"]
    assert config.get("plugins.enabled") == ["a"]
    assert config.get("model.default") == "gpt-5"
    assert [config.origin(key) for key in ("agent.max_turns", "model.default", "server.port")] == [
        "declared",
        "local",
        "default",
    ]
    assert config.raw["plugins"] == {"enabled": ["a"]}


def test_a_model_as_text_in_one_layer_joins_a_mapping_in_the_other(tmp_path: Path) -> None:
    config = _managed(tmp_path, "model: gpt-5\n", "model: {provider: openai, default: small}\n")
    assert (config.get("model.default"), config.get("model.provider")) == ("gpt-5", "openai")


def test_on_a_managed_home_config_yaml_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("agent: {max_turns: 1}\n")
    assert _managed(tmp_path, "{}\n").get("agent.max_turns") == 90


def test_a_declared_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HERMES_DECLARED_CONFIG names it"):
        load(tmp_path, environ={"HERMES_DECLARED_CONFIG": str(tmp_path / "gone.yaml")})


def test_dropping_a_declared_option_drops_it(tmp_path: Path) -> None:
    assert _managed(tmp_path, "agent: {max_turns: 40}\n").get("agent.max_turns") == 40
    assert _managed(tmp_path, "{}\n").get("agent.max_turns") == 90


TREES = st.recursive(
    st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(MAPPINGS, MAPPINGS)
def test_a_merge_holds_everything_of_the_upper_and_what_it_leaves_of_the_lower(
    under: dict[str, object], over: dict[str, object]
) -> None:
    merged = merge(under, over)
    assert set(merged) == set(under) | set(over)
    assert merge(merged, over) == merged
    assert merge({}, over) == over and merge(under, {}) == under
    for key in under.keys() - over.keys():
        assert merged[key] == under[key]
    for key, value in over.items():
        if not (isinstance(value, dict) and isinstance(under.get(key), dict)):
            assert merged[key] == value


@given(MAPPINGS, MAPPINGS, MAPPINGS)
def test_merging_is_associative_where_no_mapping_meets_a_plain_value(
    a: dict[str, object], b: dict[str, object], c: dict[str, object]
) -> None:
    def same_kind(x: object, y: object) -> bool:
        if isinstance(x, dict) and isinstance(y, dict):
            return all(same_kind(x[k], y[k]) for k in x.keys() & y.keys())
        return not isinstance(x, dict) and not isinstance(y, dict)

    if same_kind(a, b) and same_kind(b, c) and same_kind(a, c):
        assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(MAPPINGS, MAPPINGS)
def test_merging_changes_neither_side(under: dict[str, object], over: dict[str, object]) -> None:
    before = repr(under), repr(over)
    merge(under, over)
    assert (repr(under), repr(over)) == before


def test_a_former_key_is_used_under_its_present_name_with_a_warning(tmp_path: Path) -> None:
    config = _load(tmp_path, "model: {local: {idle_unload_s: 7, threads: 2}}\n")
    assert config.get("model.local.idle_s") == 7 and config.get("model.local.threads") == 2
    (finding,) = keys_without_effect(config.layers[0].document)
    assert (finding.level, finding.line) == ("warning", 1)
    assert finding.message == (
        "`model.local.idle_unload_s` is called `model.local.idle_s` now; the value is used: rename it"
    )


def test_the_present_name_wins_in_a_layer_and_the_stronger_layer_over_both(tmp_path: Path) -> None:
    config = _load(tmp_path, "model: {local: {idle_unload_s: 7, idle_s: 8}}\n")
    assert config.get("model.local.idle_s") == 8
    assert "the value there is used: remove it" in keys_without_effect(config.layers[0].document)[0].message
    layered = _managed(tmp_path, "model: {local: {idle_unload_s: 9}}\n", "model: {local: {idle_s: 8}}\n")
    assert layered.get("model.local.idle_s") == 9
    assert layered.origin("model.local.idle_s") == "declared"


def test_a_wrong_value_of_a_former_key_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config.yaml:1: .*model.local.idle_unload_s"):
        _load(tmp_path, "model: {local: {idle_unload_s: soon}}\n")


def test_the_schema_and_the_table_name_the_same_former_keys() -> None:
    marked = {path: node["x-renamed"] for path, node in leaves() if "x-renamed" in node}
    assert marked == RENAMED
    assert {(*path[:-1], present) for path, present in RENAMED.items()} <= {path for path, _ in leaves()}
