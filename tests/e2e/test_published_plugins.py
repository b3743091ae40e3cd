"""Published plugins do here what they do with upstream: a subset of `make compat` with each layout and kind."""

from __future__ import annotations

import pytest

from compat.corpus.install import CannotInstall, installed
from compat.corpus.lists import DATA, Plugin, plugins
from compat.corpus.table import rows_of, show

SUBSET = (DATA / "subset.txt").read_text(encoding="utf-8").split()

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]


@pytest.mark.parametrize("plugin", [p for p in plugins() if p.name in SUBSET], ids=lambda p: p.name)
def test_a_published_plugin_registers_what_it_registers_with_upstream(plugin: Plugin) -> None:
    try:
        installed(plugin)
    except CannotInstall as exc:
        pytest.skip(f"pip cannot install it: {exc}")

    found = rows_of(plugin)

    assert found != []
    assert [show(row) for row in found if not row.green] == []
