"""Which plugins run: plugin contract §1.5, §1.6, §13 rows 1 and 2, §15 points 3 and 5."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_agent.plugins.activation import Activation, PluginSettings, decide_activation, unknown_names
from hermes_agent.plugins.discovery import Discovery, RejectedPlugin
from hermes_agent.plugins.manifest import PluginManifest


def settings(**section: Any) -> PluginSettings:
    return PluginSettings.of({"plugins": section})


def nothing_set(name: str) -> bool:
    return False


def plugin(key: str = "weather", name: str = "weather", source: str = "user", **fields: Any) -> PluginManifest:
    return PluginManifest(name=name, key=key, source=source, path=f"/p/{key}", **fields)


NOT_ENABLED = "not enabled in config (run `hermes plugins enable weather` to activate)"


@pytest.mark.parametrize(
    ("manifest", "section", "expected"),
    [
        (plugin(), {}, Activation(False, "not enabled", NOT_ENABLED)),
        (plugin(), {"enabled": None}, Activation(False, "not enabled", NOT_ENABLED)),
        (plugin(), {"enabled": ["weather"]}, Activation(True, "enabled")),
        (plugin("cat/w"), {"enabled": ["cat/w"]}, Activation(True, "enabled")),
        (plugin("cat/w"), {"enabled": ["weather"]}, Activation(True, "enabled")),
        (
            plugin("cat/w"),
            {"enabled": ["w"]},
            Activation(False, "not enabled", "not enabled in config (run `hermes plugins enable cat/w` to activate)"),
        ),
        (
            plugin(),
            {"enabled": ["weather"], "disabled": ["weather"]},
            Activation(False, "disabled", "disabled via config"),
        ),
        (
            plugin("cat/w"),
            {"enabled": ["cat/w"], "disabled": ["weather"]},
            Activation(False, "disabled", "disabled via config"),
        ),
        (
            plugin(kind="exclusive"),
            {"enabled": ["weather"]},
            Activation(False, "not enabled", "exclusive plugin — activate via <category>.provider config"),
        ),
        (plugin(source="bundled", kind="backend"), {}, Activation(True, "enabled")),
        (plugin(source="bundled"), {}, Activation(False, "not enabled", NOT_ENABLED)),
        (plugin(source="declared"), {"auto_enable": True}, Activation(True, "enabled")),
        (plugin(source="entrypoint"), {"auto_enable": True}, Activation(True, "enabled")),
        (plugin(source="user"), {"auto_enable": True}, Activation(False, "not enabled", NOT_ENABLED)),
        (
            plugin(source="declared"),
            {"auto_enable": True, "disabled": ["weather"]},
            Activation(False, "disabled", "disabled via config"),
        ),
        (
            plugin(requires_env=["WEATHER_API_KEY"]),
            {"enabled": ["weather"]},
            Activation(False, "disabled", "Plugin weather disabled (missing: WEATHER_API_KEY)", ("WEATHER_API_KEY",)),
        ),
        (
            plugin(requires_env=["A_KEY", {"name": "B_KEY"}]),
            {"enabled": ["weather"]},
            Activation(False, "disabled", "Plugin weather disabled (missing: A_KEY, B_KEY)", ("A_KEY", "B_KEY")),
        ),
        (plugin(requires_env=["A_KEY"]), {}, Activation(False, "not enabled", NOT_ENABLED)),
        (plugin(requires_env=["A_KEY"], kind="backend"), {"enabled": ["weather"]}, Activation(True, "enabled")),
        (plugin(requires_env=["A_KEY"], kind="platform"), {"enabled": ["weather"]}, Activation(True, "enabled")),
        (
            plugin(requires_env=["A_KEY"]),
            {"enabled": ["weather"], "entries": {"weather": {"ignore_missing_env": True}}},
            Activation(True, "enabled"),
        ),
    ],
)
def test_the_first_rule_that_fits_decides(
    manifest: PluginManifest, section: dict[str, Any], expected: Activation
) -> None:
    assert decide_activation(manifest, settings(**section), nothing_set) == expected


def test_a_required_name_with_a_value_is_not_missing() -> None:
    manifest = plugin(requires_env=["A_KEY", "B_KEY"])

    assert decide_activation(manifest, settings(enabled=["weather"]), {"A_KEY": "x"}.__contains__).missing == ("B_KEY",)


def test_the_operator_alone_lets_a_plugin_take_over_tools() -> None:
    entries = {"a": {"allow_tool_override": True}, "b": {"allow_tool_override": "yes"}}

    allowed = settings(entries=entries)

    assert allowed.may_override(plugin("a", "a"))
    assert not allowed.may_override(plugin("b", "b"))
    assert not allowed.may_override(plugin("c", "c"))
    assert allowed.may_override(plugin("c", "c", source="bundled"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("goood", "unknown plugin `goood` (did you mean `good`?)"),
        ("my-dir", "my-dir is the folder of plugin `other-name`; enable `other-name`"),
        ("broken", "plugin `broken` (/p/broken) cannot be used: plugin.yaml: line 3: no"),
        ("zzz", "unknown plugin `zzz`: `hermes plugins list` shows those that are there"),
    ],
)
def test_a_name_that_nobody_answers_to_is_explained(name: str, text: str) -> None:
    found = Discovery()
    found.add(plugin("good", "good"))
    found.add(PluginManifest(name="other-name", key="other-name", source="user", path="/p/my-dir"))
    found.rejected.append(RejectedPlugin("broken", "user", "/p/broken", "plugin.yaml: line 3: no"))

    assert [u.text for u in unknown_names(settings(enabled=["good", name]), found)] == [text]
