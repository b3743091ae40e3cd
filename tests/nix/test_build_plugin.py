"""`buildHermesPlugin`: a directory plugin that is tried while it is built."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent
REFUSED = sorted(path.stem for path in (HERE / "refused-plugin").glob("*.expected"))


def test_a_good_plugin_is_laid_out_without_its_tests_and_brings_what_it_imports(nix) -> None:
    plugin = nix.build("tried.good").path
    assert sorted(path.name for path in plugin.iterdir()) == ["__init__.py", "plugin.yaml"]
    host = nix.build("tried.host.package").path
    report = json.loads((host / "nix-support" / "plugins.json").read_text())
    assert [(p["key"], p["tools"]) for p in report["plugins"]] == [("with-tests", ["hello"])]
    closure = json.loads(nix.build("tried.host.package.closureCheck").path.read_text())
    assert closure["leaf-dep"]["version"] == "1.0.0"


@pytest.mark.parametrize("name", REFUSED)
def test_a_plugin_that_does_not_work_is_refused_with_the_reason(name: str, nix) -> None:
    refused = nix.build(f"tried.refused.{name}")
    assert refused.status != 0
    text = nix.shown(refused).split("error: builder for")[0]
    expected = HERE / "refused-plugin" / f"{name}.expected"
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(text)
    assert text == expected.read_text()


def test_every_refused_plugin_has_its_text() -> None:
    text = (HERE / "tried.nix").read_text()
    assert [name for name in REFUSED if f"{name} = buildHermesPlugin" not in text] == []
    assert text.count("= buildHermesPlugin {") == len(REFUSED) + 1


def test_fifty_plugins_are_checked_together(nix) -> None:
    report = json.loads(nix.build("fifty.package.pluginCheck").path.read_text())
    assert len(report["plugins"]) == 50 and report["errors"] == report["warnings"] == []
