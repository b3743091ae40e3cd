"""Upstream's public names: each is served as upstream has it, or declined with a reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compat.surface.__main__ import problems_of, recorded
from compat.surface.compare import (
    RECORD,
    Surface,
    compare,
    imported_names,
    known_differences,
    page,
    record,
)
from compat.surface.describe import parameters
from hermes_agent.compat import import_hook


@pytest.fixture(scope="module")
def surface() -> Surface:
    return compare()


def test_every_name_is_decided_every_difference_has_a_reason_and_the_page_is_of_today(surface: Surface) -> None:
    assert problems_of(surface) == []


def test_the_record_has_the_modules_that_plugins_import(surface: Surface) -> None:
    served, declined = surface.counts

    assert served + declined == sum(map(len, record().values()))
    assert served > 550
    assert len(record()) > 140
    absent = {module for module, _ in imported_names()} - set(record())
    assert absent == set()


def test_a_name_that_plugins_import_is_served_or_its_reason_names_what_to_use(surface: Surface) -> None:
    served = {f"{module}.{name}" for module, names in surface.served.items() for name in names}
    declined = [f"{module}.{name}" for module, name in imported_names() if name and f"{module}.{name}" not in served]

    for name in declined:
        assert len(import_hook.decision(name) or "") > 20, name
    for name in ("hermes_cli.config.DEFAULT_CONFIG", "cron.jobs.parse_schedule", "plugins.memory.load_memory_provider"):
        assert name in served


def test_what_is_stale_is_found(surface: Surface) -> None:
    [first, *_] = known_differences()
    changed = Surface(
        {**surface.served, "utils": surface.served["utils"][1:]},
        surface.declined,
        ["utils.new"],
        {**{n: d for n, d in surface.differences.items() if n != first}, "utils.env_int": ["no parameter key"]},
    )

    problems = problems_of(changed)

    assert "undecided: utils.new" in problems
    assert f"stale in differences.toml: {first}" in problems
    assert "differs: utils.env_int: no parameter key" in problems
    assert problems[-1].startswith("stale: docs/plugins/surface.md")
    assert page(changed) != page(surface)


def test_parameters_are_written_in_short() -> None:
    def function(a: int, b: int = 1, *, c: int, d: int = 2, **rest: int) -> None: ...
    def starred(*args: int, c: int = 1) -> None: ...

    assert parameters(function) == "a, b=, *, c, d=, **rest"
    assert parameters(starred) == "*args, c="
    assert parameters(int.from_bytes) is not None


@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.environ.get("HERMES_SURFACE"), reason="HERMES_SURFACE=1 installs the published program")
def test_the_record_is_that_of_the_published_program(tmp_path: Path) -> None:
    assert recorded() == RECORD.read_text(encoding="utf-8")
