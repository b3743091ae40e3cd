"""The lists of chapters 3.3, 8 and 9 of the plugin contract of 0.23: each is served, or named as a difference."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.compat import import_hook
from hermes_agent.testing import plugin_host

ROOT = Path(__file__).resolve().parents[2]
LISTS: dict[str, Any] = tomllib.loads((ROOT / "tests/data/contract23/members.toml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/plugins/contract-0.23.md").read_text(encoding="utf-8")
UNUSED: list[str] = LISTS["differences"]["names"]


@pytest.fixture(scope="module", autouse=True)
def served() -> Iterator[None]:
    import_hook.install()
    with plugin_host(lambda ctx: None):
        yield
    import_hook.uninstall()


def found(path: str) -> Any:
    module, _, names = path.partition(":")
    value: Any = importlib.import_module(module)
    for name in names.split(".") if names else ():
        value = getattr(value, name)
    return value


def rows(kind: str) -> list[Any]:
    return [pytest.param(row["of"], row["has"], id=row["of"]) for row in LISTS[kind]]


@pytest.mark.parametrize(("of", "has"), rows("members"))
def test_a_class_has_the_members_of_the_contract(of: str, has: list[str]) -> None:
    cls = found(of)
    fields = getattr(cls, "__dataclass_fields__", {})
    assert [name for name in has if not hasattr(cls, name) and name not in fields] == []


@pytest.mark.parametrize(("of", "has"), rows("keywords"))
def test_a_function_takes_the_keywords_of_the_contract(of: str, has: list[str]) -> None:
    taken = inspect.signature(found(of)).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    assert [name for name in has if name not in taken and not takes_all] == []


@pytest.mark.parametrize(("of", "has"), rows("names"))
def test_a_module_gives_the_names_of_the_contract(of: str, has: list[str]) -> None:
    module = importlib.import_module(of)
    assert [name for name in has if name not in UNUSED and not hasattr(module, name)] == []
    for name in (each for each in has if each in UNUSED and not hasattr(module, each)):
        with pytest.raises(ImportError, match="does not serve it"):
            exec(f"from {of} import {name}")  # as a plugin writes it


def test_the_page_names_each_difference_with_its_reason() -> None:
    table = PAGE.partition("\n## Differences\n")[2].partition("\n## ")[0]
    named = {
        word for line in table.splitlines() if line.count("|") >= 3 for word in re.findall(r"`(?:\w+\.)*(\w+)`", line)
    }
    assert [name for name in UNUSED if name not in named] == []


def test_each_difference_is_a_name_of_the_lists() -> None:
    listed = {name for kind in ("members", "keywords", "names") for row in LISTS[kind] for name in row["has"]}
    listed |= {row["of"].rpartition(":")[2] for row in LISTS["members"]}
    assert [name for name in UNUSED if name not in listed] == []
