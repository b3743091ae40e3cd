"""Settings are read as typed values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_agent.config import Settings, load, plain, section
from hermes_agent.config.schema import leaves
from hermes_agent.config.settings import Section


class Ratios(NamedTuple):
    name: str
    share: float = 0.5
    most: int = 3
    globs: tuple[str, ...] = ("*",)
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Retention:
    days: float = 1.0
    enabled: bool = False


def test_each_field_has_the_value_of_its_key_in_the_type_of_its_default() -> None:
    ratios = section(Ratios, {"name": "x", "share": 1, "most": 7, "globs": ["b", "c"], "names": ["d"]})

    assert ratios == Ratios("x", 1.0, 7, ("b", "c"), frozenset({"d"}))
    assert [type(value) for value in ratios] == [str, float, int, tuple, frozenset]


def test_a_key_without_a_value_leaves_the_default_and_a_value_may_come_from_another_key() -> None:
    assert section(Retention, {"days": None}, enabled=True) == Retention(1.0, enabled=True)
    assert section(Retention, {"days": 3}, enabled=None) == Retention(3.0, enabled=False)


def test_a_field_that_is_left_or_given_is_not_read() -> None:
    ratios = section(Ratios, {"most": 9}, ("share", "globs"), name="y", names=["z"])

    assert ratios == Ratios("y", 0.5, 9, ("*",), frozenset("z"))


def test_a_field_that_no_key_declares_is_an_error_of_the_code(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"the config has no key agent\.days"):
        section(Retention, load(tmp_path, environ={}).settings.agent)


def test_settings_have_the_values_of_the_config_with_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: gpt-5\nagent: {max_turns: 5}\nterminal: {network: on}\n")
    settings = load(tmp_path, environ={}).settings

    assert (settings.model.default, settings.agent.max_turns, settings.agent.clarify_timeout) == ("gpt-5", 5, 3600)
    assert settings.terminal.network == "on"
    assert settings.agent is settings.agent and plain(settings.agent) == load(tmp_path, environ={}).values["agent"]


def test_values_without_defaults_give_those_of_the_schema() -> None:
    settings = Settings(
        {"auxiliary": None, "agent": {"max_turns": None}, "limits": {"day_usd": None}, "hooks": ["a list"]}
    )

    assert settings.auxiliary.title_generation.provider == "auto" and settings.agent.max_turns == 90
    assert settings.limits.day_usd is None and settings.limits.unknown_price == "refuse"
    assert settings.hooks.output_spill.enabled is True and plain(settings.hooks) == ["a list"]


@pytest.mark.parametrize("name", ["nonsense", "_value_", "__deepcopy__"])
def test_a_key_that_the_schema_lacks_is_an_error_of_the_code(name: str) -> None:
    with pytest.raises(AttributeError, match=f"the config has no key memory.{name}"):
        getattr(Settings({"memory": {name: 1}}).memory, name)


def test_every_key_of_the_schema_is_an_attribute() -> None:
    plain_keys = [path for path, _ in leaves() if path[0] != "_config_version" and "<name>" not in path]
    for path in plain_keys:
        found: Any = Settings({})
        for name in path:
            found = getattr(found, str(name))
        assert not isinstance(found, Section), path
