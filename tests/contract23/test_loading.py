"""Acceptance list of the plugin contract of 0.23, part A: loading. One test a sentence, with its number."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.host import Host
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.testing import plugin_host

EMPTY = "def register(ctx): pass\n"
HOOK = "ctx.register_hook('post_tool_call', lambda **kw: None)"
SCHEMA = "{'name': 'mine', 'description': 'x', 'parameters': {'type': 'object', 'properties': {}}}"
TOOL = f"ctx.register_tool('mine', None, {SCHEMA}, lambda args, **kw: 'done')"


@pytest.fixture(autouse=True)
def debug_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "hermes_agent")
    yield


def warnings(host: Any, part: str) -> list[str]:
    return [line.text for line in host.log if line.level == "WARNING" and part in line.text]


def load_in_thread(manager: PluginManager, force: bool = True) -> float:
    """Load, and return the seconds that it took."""
    thread = threading.Thread(target=manager.discover_and_load, kwargs={"force": force})
    started = time.monotonic()
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return time.monotonic() - started


def enable(host: Any, *names: str, more: str = "") -> None:
    """Write a config with these plugins enabled, and sweep again."""
    text = "plugins:\n  enabled: [" + ", ".join(names) + "]\n" + more
    (host.home / "config.yaml").write_text(text, encoding="utf-8")


def test_a1_folders_of_other_programs_and_dunder_folders_are_no_plugins_and_no_warning(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "good", EMPTY)) as host:
        root = host.home / "plugins"
        for name in (".claude-plugin", "__pycache__", ".kimi-plugin", "__x__"):
            plugin(root / name, EMPTY, f"name: from{name.strip('_.')}\n")
        host.host.plugins.discover_and_load(force=True)
        user = [r.manifest.key for r in host.host.plugins.records if r.manifest.source == "user"]
        assert user == ["good"]
        assert warnings(host, ".claude-plugin") == warnings(host, "__pycache__") == []


def test_a2_a_manifest_that_is_a_list_gives_one_warning_and_the_others_load(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "good", EMPTY)) as host:
        plugin(host.home / "plugins" / "bad", EMPTY, "- a\n- b\n")
        host.host.plugins.discover_and_load(force=True)
        assert len(warnings(host, "top level must be a mapping, got list")) == 1
        assert host.host.plugins.find("good").enabled


def test_a3_a_manifest_with_a_byte_order_mark_loads(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "good", EMPTY, "\ufeffname: marked\n")
    with plugin_host(folder) as host:
        assert host.record.enabled
        assert host.record.manifest.name == "marked"


def test_a4_a_directory_beats_the_entry_point_of_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packaged_twin.py").write_text("def register(ctx): ctx.register_command('by-entry-point', str)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = plugin(tmp_path / "packaged-twin", "def register(ctx): ctx.register_command('by-folder', str)\n")
    with plugin_host(folder, "packaged_twin") as host:
        assert host.host.plugins.find("packaged-twin").manifest.source == "user"
        assert "by-folder" in host.commands
        assert "by-entry-point" not in host.commands
        assert "packaged_twin" not in sys.modules


def test_a5_a_function_entry_point_loads_and_a_module_without_register_is_listed_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "function_way.py").write_text("def register(ctx): ctx.register_command('by-function', str)\n")
    (tmp_path / "no_way.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with plugin_host("function_way:register", "no_way", strict=False) as host:
        errors = {r.manifest.path: r.error for r in host.host.plugins.records if r.manifest.source == "entrypoint"}
        assert "by-function" in host.commands
        assert errors == {"function_way:register": None, "no_way": "no register() function"}
    for name in ("function_way", "no_way"):
        sys.modules.pop(name, None)


def test_a6_a_plugin_that_registers_and_then_raises_leaves_nothing_and_shows_the_error(tmp_path: Path) -> None:
    init = f"def register(ctx):\n    {TOOL}\n    {HOOK}\n    raise RuntimeError('no luck')\n"
    with plugin_host(plugin(tmp_path / "p", init), strict=False) as host:
        assert host.host.tools.get("mine") is None
        assert host.host.hooks.listeners("post_tool_call") == []
        assert [p["error"] for p in host.host.plugins.list_plugins() if p["key"] == "p"] == ["RuntimeError: no luck"]


def test_a7_a_plugin_that_exits_does_not_end_the_host(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "p", "import sys\ndef register(ctx): sys.exit(3)\n")
    with plugin_host(folder, plugin(tmp_path / "good", EMPTY), strict=False) as host:
        assert host.host.plugins.find("p").error == "SystemExit(3) raised during import/register()"
        assert host.host.plugins.find("good").enabled


SLEEPER = f"""
import threading
released, done = threading.Event(), threading.Event()
def register(ctx):
    released.wait(60)
    {TOOL}
    done.set()
"""


def test_a8_a_load_past_its_limit_ends_and_later_registrations_are_ignored(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "good", EMPTY)) as host:
        plugin(host.home / "plugins" / "p", SLEEPER)
        enable(host, "good", more="  load_timeout_seconds: 1\n")
        without_s = load_in_thread(host.host.plugins)
        enable(host, "good", "p", more="  load_timeout_seconds: 1\n")
        assert 1 <= load_in_thread(host.host.plugins) < without_s + 3
        assert host.host.plugins.find("p").error.startswith("load timed out after 1s")
        module = sys.modules.get("hermes_plugins.p") or _module_of_thread("p")
        module.released.set()
        assert module.done.wait(30)
        assert host.host.tools.get("mine") is None
        assert warnings(host, "Plugin 'p' called register_tool() after its load timed out; ignored")


def _module_of_thread(name: str) -> Any:
    """The module of an abandoned load is in no table; its thread still holds it."""
    for frame in sys._current_frames().values():
        current: Any = frame
        while current is not None:
            if current.f_globals.get("__name__", "").startswith(f"hermes_plugins.{name}"):
                return _Globals(current.f_globals)
            current = current.f_back
    raise AssertionError("no thread loads it")


class _Globals:
    def __init__(self, values: dict[str, Any]) -> None:
        self.released, self.done = values["released"], values["done"]


def test_a9_a_limit_of_zero_loads_in_the_thread_of_the_caller(tmp_path: Path) -> None:
    init = "import threading\ndef register(ctx):\n    global where\n    where = threading.current_thread().name\n"
    with plugin_host(plugin(tmp_path / "good", EMPTY)) as host:
        plugin(host.home / "plugins" / "p", init)
        enable(host, "good", "p", more="  load_timeout_seconds: 0\n")
        thread = threading.Thread(target=host.host.plugins.discover_and_load, args=(True,), name="the caller")
        thread.start()
        thread.join(30)
        assert host.host.plugins.find("p").module.where == "the caller"


def test_a10_two_forced_sweeps_double_no_hook_and_take_the_tool_of_a_disabled_plugin_away(tmp_path: Path) -> None:
    first = plugin(tmp_path / "first", f"def register(ctx): {HOOK}\n")
    second = plugin(tmp_path / "second", f"def register(ctx): {TOOL}\n")
    with plugin_host(first, second) as host:
        assert host.host.tools.get("mine") is not None
        enable(host, "first")
        for _ in range(2):
            host.host.plugins.discover_and_load(force=True)
        assert [plugin for plugin, _ in host.host.hooks.listeners("post_tool_call")] == ["first"]
        assert host.host.tools.get("mine") is None


def test_a11_a_handle_disposes_of_its_hook_once() -> None:
    handles: list[Any] = []

    def register(ctx: Any) -> None:
        handles.append(ctx.register_hook("post_tool_call", lambda **kw: None))
        ctx.register_hook("post_tool_call", print)

    with plugin_host(register) as host:
        handle = handles[0]
        assert (handle.kind, handle.key, handle.plugin_key) == ("hook", "post_tool_call", host.keys[0])
        assert (handle.active, handle.persistent) == (True, False)
        handle.dispose()
        handle.dispose()
        assert not handle.active
        assert [callback for _, callback in host.host.hooks.listeners("post_tool_call")] == [print]


def test_a12_required_plugins_register_first_and_neither_a_missing_one_nor_a_cycle_stops_a_load(
    tmp_path: Path,
) -> None:
    def write(name: str, requires: str) -> Path:
        init = f"import sys\ndef register(ctx): sys.modules.setdefault('order_of_a12', []).append({name!r})\n"
        return plugin(tmp_path / name, init, f"name: {name}\nrequires_plugins: {requires}\n")

    folders = [write("a", "[{id: z, version_range: '>=1'}]"), write("b", "[absent]"), write("z", "[]")]
    folders += [write("c", "[d]"), write("d", "[c]")]
    with plugin_host(*folders) as host:
        order: Any = sys.modules.pop("order_of_a12")
        assert order.index("z") < order.index("a")
        assert sorted(order) == ["a", "b", "c", "d", "z"]
        assert warnings(host, "Plugin b requires plugin 'absent' which is not enabled/installed; loading anyway")
        assert len(warnings(host, "cycle")) == 1


@pytest.mark.parametrize(
    ("spec", "loads"),
    [
        (">=99", False),
        (">=0.19,<1", True),
        ("banana", True),
        ("==0.19.0", True),
        (">=0.21.5", True),
        ("<0.19", False),
        ("v0.23", True),
        (">0.23.3", False),
        (">=0.22.0rc1, !=0.22.1", True),
    ],
)
def test_a13_requires_hermes_is_met_when_a_served_version_satisfies_it(tmp_path: Path, spec: str, loads: bool) -> None:
    folder = plugin(
        tmp_path / "p",
        "import sys\nsys.modules['imported_a13'] = sys\n" + EMPTY,
        f"name: p\nrequires_hermes: '{spec}'\n",
    )
    with plugin_host(folder, strict=False) as host:
        assert host.record.enabled is loads
        assert (sys.modules.pop("imported_a13", None) is not None) is loads
        if not loads:
            assert host.record.error.startswith(f"requires hermes {spec}, running 0.")
            assert "0.19.0 to 0.23.3" in host.record.error


def test_a14_a_newer_manifest_loads_with_a_warning_and_unknown_fields_are_named_from_version_2(
    tmp_path: Path,
) -> None:
    manifests = {"newer": "manifest_version: 7\n", "two": "manifest_version: 2\nfoo: 1\n", "old": "foo: 1\n"}
    folders = [plugin(tmp_path / n, EMPTY, f"name: {n}\n{more}") for n, more in manifests.items()]
    with plugin_host(*folders) as host:
        host.log.clear()
        host.host.plugins.discover_and_load(force=True)
        assert warnings(host, "Plugin newer: manifest_version 7")
        assert warnings(host, "unknown manifest field(s)") == [
            "Plugin two: unknown manifest field(s) ignored: foo (newer manifest schema or typo; plugin still loads)"
        ]


def test_a15_a_missing_python_dependency_gives_a_warning_and_the_plugin_loads(tmp_path: Path) -> None:
    manifest = "name: p\npython_dependencies: [no-such-package-x, 'PyYAML>=5', 'PyYAML>=99']\n"
    with plugin_host(plugin(tmp_path / "p", EMPTY, manifest)) as host:
        found = warnings(host, "Plugin p declares Python dependencies that are not installed: ")
        assert len(found) == 1
        assert "no-such-package-x, PyYAML>=99." in found[0]


def test_a16_a_setting_of_the_wrong_type_gives_one_warning_that_names_the_key(tmp_path: Path) -> None:
    manifest = "name: p\nconfig_schema:\n  limit: {type: int}\n  other: {type: int}\n"
    config = {"plugins": {"enabled": ["p"], "entries": {"p": {"settings": {"limit": "many", "other": True}}}}}
    with plugin_host(plugin(tmp_path / "p", EMPTY, manifest), config=config) as host:
        assert len(warnings(host, "plugins.entries.p.settings.limit should be ")) == 1
        assert len(warnings(host, "plugins.entries.p.settings.other should be ")) == 1


def test_a17_an_entry_point_memory_provider_is_exclusive_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packaged_memory.py").write_text("raise RuntimeError('imported')\n")
    metadata = tmp_path / "packaged_memory-1.2.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[hermes_agent.memory_providers]\npackaged = packaged_memory\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with plugin_host() as host:
        record = host.host.plugins.find("packaged")
        assert record.manifest.kind == "exclusive"
        assert not record.enabled
        assert "packaged_memory" not in sys.modules


def test_a18_the_manifest_name_of_a_bundled_platform_and_its_key_mean_the_same_plugin() -> None:
    config = {"plugins": {"enabled": ["irc-platform"]}}
    with plugin_host(config=config) as host:
        manager = host.host.plugins
        assert manager.find("irc-platform") is manager.find("platforms/irc")
        assert manager.find("platforms/irc").enabled
        assert manager.unknown == []
    with plugin_host(config={"plugins": {"disabled": ["platforms/irc"]}}) as host:
        assert not host.host.plugins.find("irc-platform").enabled


def test_unload_undoes_everything_in_reverse_order_and_a_later_sweep_loads_again(tmp_path: Path) -> None:
    init = f"def register(ctx):\n    {TOOL}\n    {HOOK}\n"
    with plugin_host(plugin(tmp_path / "p", init)) as host:
        host.host.plugins.unload()
        assert host.host.tools.get("mine") is None
        assert not host.host.hooks.has("post_tool_call")
        host.host.plugins.discover_and_load()
        assert host.host.tools.get("mine") is not None


def test_a_replaced_tool_comes_back_when_its_replacement_is_disposed_of() -> None:
    handles: list[Any] = []

    def register(ctx: Any) -> None:
        schema = {"name": "read_file", "description": "x", "parameters": {"type": "object", "properties": {}}}
        handles.append(ctx.register_tool("read_file", None, schema, lambda args, **kw: "mine", override=True))

    config = {"plugins": {"allow_tool_override": ["read_file"]}}
    with plugin_host(register, config=config) as host:
        assert host.host.tools.owner("read_file") == host.keys[0]
        handles[0].dispose()
        assert host.host.tools.owner("read_file") == "builtin"


def test_a_sweep_tells_its_callbacks_which_plugins_it_loaded(tmp_path: Path) -> None:
    seen: list[list[dict[str, Any]]] = []
    with plugin_host(plugin(tmp_path / "p", EMPTY)) as host:
        manager = host.host.plugins
        stop = manager.on_plugin_loaded(seen.append)
        plugin(host.home / "plugins" / "q", f"def register(ctx):\n    {TOOL}\n    {HOOK}\n")
        enable(host, "p", "q")
        manager.discover_and_load(force=True)
        assert seen == [
            [{"name": "q", "key": "q", "activated_now": {"hooks": ["post_tool_call"]}, "deferred": {"tools": ["mine"]}}]
        ]
        stop()
        manager.unload()
        manager.discover_and_load()
        assert len(seen) == 1


def test_the_end_of_the_process_runs_unload_callbacks(tmp_path: Path) -> None:
    ran: list[str] = []
    with plugin_host(lambda ctx: ctx.on_unload(lambda: ran.append("unloaded"))) as host:
        assert isinstance(host.host, Host)
    assert ran == ["unloaded"]


def test_a_plugin_finds_the_folders_that_a_home_of_upstream_has(tmp_path: Path) -> None:
    code = """
import os
from pathlib import Path

home = Path(os.environ["HERMES_HOME"])
(home / "logs" / "mine.log").write_text("written without mkdir")
found = sorted(name for name in ("audio_cache", "cron", "sessions", "skills") if (home / name).is_dir())

def register(ctx):
    pass
"""
    with plugin_host(plugin(tmp_path / "p", code)) as host:
        assert host.module.found == ["audio_cache", "cron", "sessions", "skills"]
        assert (host.home / "logs" / "mine.log").read_text() == "written without mkdir"
        assert (host.home / "sessions").stat().st_mode & 0o777 == 0o700


def test_a_folder_of_the_home_that_cannot_be_made_does_not_stop_a_load(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "a", EMPTY)) as host:
        (host.home / "audio_cache").rmdir()
        (host.home / "audio_cache").write_text("a file in its place", encoding="utf-8")
        plugin(host.home / "plugins" / "b", EMPTY)
        enable(host, "a", "b")
        host.host.plugins.discover_and_load(force=True)
        assert host.host.plugins.find("b").status == "enabled"


def test_a_place_on_sys_path_that_cannot_be_read_does_not_end_later_imports(tmp_path: Path) -> None:
    """As of a plugin that replaces its own folder by a link to itself."""
    code = """
import os
import sys

loop, absent = (os.path.join(os.environ["HERMES_HOME"], name) for name in ("loop", "absent"))
sys.path[:0] = [loop, absent]
os.symlink(loop, loop)

def register(ctx):
    pass
"""
    with plugin_host(plugin(tmp_path / "p", code)) as host:
        sys.modules.pop("colorsys", None)
        assert importlib.import_module("colorsys").rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
        assert host.module.loop not in sys.path
        assert host.module.absent in sys.path
        [line] = warnings(host, "put ")
        assert host.module.loop in line
