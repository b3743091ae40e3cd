"""Plugins in the manner of those that strangers publish (tests/e2e/plugins/data)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.app.plugins.check import check
from hermes_agent.compat import import_hook
from hermes_agent.host import Host

DATA = Path(__file__).parent / "data"
NAMES = ("guarded-imports", "patching", "probing", "threaded")


@pytest.fixture
def host(home: Path, without_host: None) -> Iterator[Host]:
    """The process's host, with all of them enabled."""
    for name in NAMES:
        shutil.copytree(DATA / name, home / "plugins" / name)
    (home / "config.yaml").write_text(f"plugins:\n  enabled: [{', '.join(NAMES)}]\n")
    import_hook.install()
    built = Host.build(home)
    yield built
    built.bridge.close()
    import_hook.uninstall()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_they_load_and_work(home: Path, host: Host) -> None:
    host.plugins.discover_and_load()

    records = host.plugins._plugins
    assert {key: r.error for key, r in records.items()} == dict.fromkeys(NAMES)
    assert [r.manifest.version for r in records.values()] == ["2.0.0-rc1", "1.2.0", "0.3.1", "1"]
    assert {key: r.tools_registered for key, r in records.items()} == {
        "guarded-imports": ["where_am_i"],
        "patching": ["patched_echo"],
        "probing": [],
        "threaded": ["from_a_thread"],
    }
    assert len(records["probing"].module.went_without) == 2
    assert host.plugins._plugin_commands["probe"]["handler"]("it") == "probed it"
    assert host.tools.owner("from_a_thread") == "threaded"

    manager_ctx = host.plugins.contexts["probing"]
    where = json.loads(manager_ctx.dispatch_tool("where_am_i"))
    assert where == {"home": str(home), "table": ["one", "two"], "gateway": True}
    manager_ctx.dispatch_tool("patched_echo")
    assert [name for name, _ in records["patching"].module.watched] == ["where_am_i", "patched_echo"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_build_s_check_accepts_them(home: Path) -> None:
    def open_host(place: Path) -> Host:
        import_hook.install()
        return Host.build(place)

    report = check([DATA], open_host)

    assert report.errors(strict=False) == []
    assert [(p["key"], p["tools"]) for p in report.plugins] == [
        ("guarded-imports", ["where_am_i"]),
        ("patching", ["patched_echo"]),
        ("probing", []),
        ("threaded", ["from_a_thread"]),
    ]
