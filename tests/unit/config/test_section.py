"""Settings are read as typed values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from hermes_agent.config import section
from hermes_agent.config.load import load


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


VALUES: dict[str, Any] = {
    "a.name": "x", "a.share": 1, "a.most": 7, "a.globs": ["b", "c"], "a.names": ["d"],
    "b.days": None, "b.on": True,
}  # fmt: skip


def test_each_field_has_the_value_of_its_key_in_the_type_of_its_default() -> None:
    ratios = section(Ratios, VALUES.__getitem__, "a")

    assert ratios == Ratios("x", 1.0, 7, ("b", "c"), frozenset({"d"}))
    assert [type(value) for value in ratios] == [str, float, int, tuple, frozenset]


def test_a_key_without_a_value_leaves_the_default_and_a_field_may_have_another_key() -> None:
    assert section(Retention, VALUES.__getitem__, "b", {"enabled": "b.on"}) == Retention(1.0, enabled=True)


def test_a_field_with_an_empty_key_or_a_given_value_is_not_read() -> None:
    ratios = section(Ratios, {"most": 9}.__getitem__, "", {"share": "", "globs": ""}, name="y", names=frozenset("z"))

    assert ratios == Ratios("y", 0.5, 9, ("*",), frozenset("z"))


def test_a_field_that_no_key_declares_is_an_error_of_the_code(tmp_path: Any) -> None:
    with pytest.raises(KeyError):
        section(Retention, load(tmp_path, environ={}).get, "agent")
