"""`buildHermesPlugin`: a directory plugin that is tried while it is built."""

from __future__ import annotations

import json
import os
import resource
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


def test_the_schema_of_a_plugin_is_options_of_its_settings(nix) -> None:
    (typed,) = nix.evaluate("optionsOfPlugins").values()
    left = "null, which leaves it to the plugin"
    assert typed["days"] == {
        "description": "How many days",
        "type": "null or signed integer",
        "default": f"{left}: `1`",
    }
    assert typed["city"] == {"description": "Where (Required.)", "type": "null or string", "default": left}
    assert set(typed) == {"city", "days", "unit"}, "a secret is none"


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost_of_checks(nix, host: str) -> float:
    """Return the processor's seconds that the checks of a host's plugins take, all built anew."""
    total = 0.0
    for check in (
        "package.closureCheck",
        "package.pluginDir",
        "package.pluginCheck",
        "package.pluginIndex",
        "startCheck",
    ):
        built = nix.build(f"{host}.{check}").path
        before = processor_s()
        assert nix.build(f"{host}.{check}", "--check").path == built
        total += processor_s() - before
    return total


@pytest.mark.skipif(not os.environ.get("HERMES_NIX_FULL"), reason="run by `make test-nix` (HERMES_NIX_FULL=1)")
def test_the_checks_of_fifty_plugins_take_at_most_five_seconds_more_than_those_of_none(nix) -> None:
    """Of the processor's time: a machine that has other things to do is no slower for it."""
    assert cost_of_checks(nix, "fifty") - cost_of_checks(nix, "systems.minimal") < 5


def test_fifty_plugins_are_checked_together(nix) -> None:
    report = json.loads(nix.build("fifty.package.pluginCheck").path.read_text())
    assert len(report["plugins"]) == 50 and report["errors"] == report["warnings"] == []
