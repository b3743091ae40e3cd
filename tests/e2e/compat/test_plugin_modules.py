"""Plugins that import their own modules by upstream's names of bundled plugins: `plugins.<category>.<name>`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hermes_agent.host import Host

SEARCH = """
from agent.web_search_provider import WebSearchProvider
class Search(WebSearchProvider):
    name = "{name}"
    def is_available(self): return True
    def search(self, query, limit=5): return {{"success": True, "data": {{"web": []}}}}
"""
INIT = """
from plugins.{category}.{name}.provider import Search
import plugins.{category}.{name} as whole
from . import provider
assert provider.Search is Search, "one class, by both names"
{more}
def register(ctx):
    ctx.register_web_search_provider(Search())
"""


def write(home: Path, place: str, *, category: str, more: str = "") -> None:
    folder = home / "plugins" / place
    folder.mkdir(parents=True)
    name = folder.name
    (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 1.0.0\n")
    (folder / "provider.py").write_text(SEARCH.format(name=name))
    (folder / "__init__.py").write_text(INIT.format(category=category, name=name.replace("-", "_"), more=more))


def loaded(home: Path, *enabled: str) -> Host:
    (home / "config.yaml").write_text(f"plugins:\n  enabled: [{', '.join(enabled)}]\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()
    return host


@pytest.mark.parametrize("place", ["web/findit", "findit", "web/find-it"])
def test_a_plugin_finds_its_own_modules_wherever_its_folder_lies(home: Path, served: None, place: str) -> None:
    write(home, place, category="web")

    host = loaded(home, place)

    [record] = [r for r in host.plugins.records if r.manifest.key == place]
    assert (record.error, record.enabled) == (None, True)
    assert host.providers["web_search"].get(place.rpartition("/")[2]) is not None


def test_plugins_of_two_categories_and_a_helper_of_a_category(home: Path, served: None) -> None:
    write(home, "web/first", category="web", more="from plugins.memory.config_schema import ProviderField")
    write(home, "browser/second", category="browser")

    host = loaded(home, "web/first", "browser/second")

    assert [(r.manifest.key, r.error) for r in host.plugins.records if "/" in r.manifest.key] == [
        ("browser/second", None),
        ("web/first", None),
    ]


@pytest.mark.parametrize("which", ["off", "beside"])
def test_code_that_was_not_granted_cannot_be_imported_by_a_plugin(home: Path, served: None, which: str) -> None:
    write(home, "web/off", category="web")
    (home / "plugins" / "web" / "beside.py").write_text("")
    other = "off.provider" if which == "off" else "beside"
    write(home, "web/on", category="web", more=f"import plugins.web.{other}")

    host = loaded(home, "web/on")

    [record] = [r for r in host.plugins.records if r.manifest.key == "web/on"]
    assert f"No module named 'plugins.web.{which}'" in (record.error or "")


def test_a_plugin_that_is_loaded_again_gets_its_own_modules(home: Path, served: None) -> None:
    write(home, "web/findit", category="web")
    host = loaded(home, "web/findit")
    before = sys.modules["plugins.web.findit.provider"].Search

    host = loaded(home, "web/findit")

    [record] = [r for r in host.plugins.records if r.manifest.key == "web/findit"]
    assert record.enabled, record.error
    assert sys.modules["plugins.web.findit.provider"].Search is not before
