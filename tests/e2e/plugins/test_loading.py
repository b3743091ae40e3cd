"""Importing and registering, all or nothing: plugin contract §1.7, §1.9, §13 rows 3, 4, 35; §14.1 rows 1, 2, 3."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.compat import import_hook
from hermes_agent.host import Host, use_host

Write = Callable[..., Path]
Start = Callable[..., Host]

TOOL = 'ctx.register_tool("{0}", "{0}", {{"name": "{0}"}}, lambda args, **kw: "{{}}")'


def test_a_plugin_is_imported_as_a_package_of_its_own(write_plugin: Write, start: Start) -> None:
    place = write_plugin(
        "my-plugin",
        """
        import logging
        from pathlib import Path
        from . import parts
        from .sub.deep import VALUE

        logger = logging.getLogger(__name__)
        DATA = (Path(__file__).parent / "data.txt").read_text()

        def register(ctx):
            ctx.register_tool("t", schema={"name": "t"}, handler=parts.handler)
        """,
    )
    (place / "parts.py").write_text("def handler(args, **kw): return '{}'\n")
    (place / "data.txt").write_text("read at import")
    (place / "sub").mkdir()
    (place / "sub" / "__init__.py").write_text("")
    (place / "sub" / "deep.py").write_text("from .. import parts\nVALUE = 7\n")

    record = start(enable=("my-plugin",)).plugins._plugins["my-plugin"]

    assert (record.enabled, record.error) == (True, None)
    assert record.module.__name__ == record.module.__package__ == "hermes_plugins.my_plugin"
    assert record.module.__path__ == [str(place)]
    assert (record.module.DATA, record.module.VALUE) == ("read at import", 7)
    assert sys.modules["hermes_plugins"].__path__ == []
    assert record.module.logger.name == "hermes_plugins.my_plugin"


def test_a_plugin_in_a_category_has_both_names_in_its_module(write_plugin: Write, start: Start) -> None:
    write_plugin("image_gen/foo-bar")

    record = start(enable=("image_gen/foo-bar",)).plugins._plugins["image_gen/foo-bar"]

    assert record.module.__name__ == "hermes_plugins.image_gen__foo_bar"


def test_two_keys_with_one_slug_do_not_share_a_module(write_plugin: Write, start: Start) -> None:
    write_plugin("a-b", "NAME = 'minus'\ndef register(ctx): pass\n")
    write_plugin("a_b", "NAME = 'under'\ndef register(ctx): pass\n")

    plugins = start(enable=("a-b", "a_b")).plugins._plugins

    assert [plugins[key].module.NAME for key in ("a-b", "a_b")] == ["minus", "under"]
    assert plugins["a-b"].module is sys.modules["hermes_plugins.a_b"]


def test_a_crash_in_register_takes_back_everything_the_plugin_registered(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    place = write_plugin(
        "half-way",
        """
        from . import helper
        def register(ctx):
            ctx.register_tool("lost", "half-way", {"name": "lost"}, lambda args, **kw: "{}")
            ctx.register_hook("post_tool_call", lambda **kw: helper.calls.append(kw))
            ctx.register_command("lost", lambda raw: raw)
            ctx.register_cli_command("lost", "help", lambda parser: None)
            raise ValueError("half-way")
        """,
    )
    (place / "helper.py").write_text("calls = []\n")
    write_plugin("sound", f"def register(ctx): {TOOL.format('kept')}\n")

    host = start(enable=("half-way", "sound"))

    record = host.plugins._plugins["half-way"]
    assert (record.enabled, record.status, record.error) == (False, "failed", "ValueError: half-way")
    assert record.where == f"{place}/__init__.py:8"
    assert record.tools_registered == record.hooks_registered == record.commands_registered == []
    assert host.tools.get("lost") is None
    assert host.tools.get("kept") is not None
    assert json.loads(host.tools.dispatch("lost", {})) == {"error": "Unknown tool: lost"}
    assert not host.hooks.has("post_tool_call")
    assert "lost" not in host.commands
    assert "lost" not in host.cli_commands
    assert not any(name.startswith("hermes_plugins.half_way") for name in sys.modules)
    assert f"Failed to load plugin 'half-way': ValueError: half-way ({place}/__init__.py:8)" in caplog.messages
    traceback = next(r for r in caplog.records if r.getMessage() == "traceback of plugin half-way")
    assert traceback.levelname == "DEBUG"
    assert traceback.exc_info is not None


@pytest.mark.parametrize(
    ("init", "error", "line"),
    [
        ("import sys\nsys.exit(3)\n", "SystemExit(3) raised during import/register()", 2),
        (
            "def register(ctx):\n    import sys; sys.exit('bye')\n",
            "SystemExit('bye') raised during import/register()",
            2,
        ),
        ("def register(ctx):\n    raise GeneratorExit\n", "GeneratorExit", 2),
        ("import not_installed_anywhere\n", "ModuleNotFoundError: No module named 'not_installed_anywhere'", 1),
        ("def register(ctx):\n    {}['x']\n", "KeyError: 'x'", 2),
        ("def register(ctx:\n", "SyntaxError: '(' was never closed", 1),
        ("def register(ctx):\n    ctx.register_platform('x')\n", None, 2),
        ("def register(): pass\n", "TypeError: register() takes 0 positional arguments but 1 was given", None),
        ("def register(ctx):\n    ctx.register_hook('pre_tool_call', 5)\n", None, 2),
    ],
)
def test_whatever_a_plugin_does_it_fails_alone_with_reason_and_line(
    write_plugin: Write, start: Start, init: str, error: str | None, line: int | None
) -> None:
    place = write_plugin("bad", init)
    write_plugin("good")

    plugins = start(enable=("bad", "good")).plugins._plugins

    assert plugins["good"].enabled
    assert plugins["bad"].status == "failed"
    if error is not None:
        assert plugins["bad"].error == error
    if line is not None:
        assert plugins["bad"].where == f"{place}/__init__.py:{line}"


def test_the_person_s_ctrl_c_is_not_a_plugin_s_failure(write_plugin: Write, start: Start) -> None:
    write_plugin("slow", "def register(ctx):\n    raise KeyboardInterrupt\n")

    with pytest.raises(KeyboardInterrupt):
        start(enable=("slow",))


def test_the_texts_of_the_contract_are_word_for_word(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    place = write_plugin("no-init", None)
    write_plugin("no-register", "x = 1\n")
    write_plugin("unwanted")
    write_plugin("store", manifest="name: store\nkind: exclusive")
    write_plugin("waits")
    write_plugin("weather", manifest="name: weather\nrequires_env: [WEATHER_API_KEY]")

    host = start(
        """
        plugins:
          enabled: [no-init, no-register, unwanted, store, weather]
          disabled: [unwanted]
        """
    )

    assert {p["key"]: p["error"] for p in host.plugins.list_plugins()} == {
        "no-init": f"No __init__.py in {place}",
        "no-register": "no register() function",
        "unwanted": "disabled via config",
        "store": "exclusive plugin — activate via <category>.provider config",
        "waits": "not enabled in config (run `hermes plugins enable waits` to activate)",
        "weather": "Plugin weather disabled (missing: WEATHER_API_KEY)",
    }
    for line in (
        f"Failed to load plugin 'no-init': No __init__.py in {place}",
        "Plugin 'no-register' has no register() function",
        "Plugin weather disabled (missing: WEATHER_API_KEY)",
    ):
        assert line in caplog.messages


def test_a_required_variable_in_the_env_file_lets_the_plugin_run(home: Path, write_plugin: Write, start: Start) -> None:
    write_plugin("weather", manifest="name: weather\nrequires_env: [WEATHER_API_KEY]")
    (home / ".env").write_text("WEATHER_API_KEY=12345678\n")

    assert start(enable=("weather",)).plugins._plugins["weather"].enabled


def test_register_is_called_once_and_a_forced_rediscovery_loads_only_what_is_new(
    write_plugin: Write, start: Start
) -> None:
    write_plugin("first", f"CALLS = []\ndef register(ctx):\n    CALLS.append(1)\n    {TOOL.format('one')}\n")
    host = start(enable=("first", "second"))
    write_plugin("second", f"def register(ctx): {TOOL.format('two')}\n")

    host.plugins.discover_and_load()
    assert host.tools.get("two") is None
    host.plugins.discover_and_load(force=True)

    assert host.plugins._plugins["first"].module.CALLS == [1]
    assert host.tools.get("two") is not None


def test_the_sweep_is_told_in_the_log(write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    write_plugin("a", f"def register(ctx): {TOOL.format('t')}\n")
    write_plugin("b")

    start(enable=("a",))

    assert "Plugin discovery complete: 2 found, 1 enabled" in caplog.messages
    assert "a registered: 1 tool(s), 0 hook(s), 0 middleware, 0 slash command(s), 0 CLI command(s)" in caplog.messages
    assert "skip b: not enabled in config (run `hermes plugins enable b` to activate)" in caplog.messages


def test_safe_mode_loads_nothing(write_plugin: Write, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_SAFE_MODE", "true")
    write_plugin("a")

    assert start(enable=("a",)).plugins.list_plugins() == []


# -- entry points ----------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package `fresh_package` with these modules and this entry point."""

    def install(value: str, **modules: str) -> None:
        site = tmp_path / "site"
        (site / "fresh_package").mkdir(parents=True)
        (site / "fresh_package" / "__init__.py").write_text("")
        for name, text in modules.items():
            (site / "fresh_package" / f"{name}.py").write_text(text)
        info = site / "fresh_package-2.5.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(f"[hermes_agent.plugins]\nfresh = {value}\n")
        monkeypatch.syspath_prepend(str(site))

    return install


FORMS = {
    "fresh_package.m": f"def register(ctx): {TOOL.format('t')}\n",
    "fresh_package.m:register": f"def register(ctx): {TOOL.format('t')}\n",
    "fresh_package.m:Plugin": f"class Plugin:\n    def register(self, ctx): {TOOL.format('t')}\n",
    "fresh_package.m:Static": f"class Static:\n    @staticmethod\n    def register(ctx): {TOOL.format('t')}\n",
    "fresh_package.m:plugin": f"class P:\n    def register(self, ctx): {TOOL.format('t')}\nplugin = P()\n",
    "fresh_package.m:box.register": f"class P:\n    def register(self, ctx): {TOOL.format('t')}\nbox = P()\n",
}


@pytest.mark.parametrize("value", FORMS)
def test_an_entry_point_may_be_a_module_an_object_or_a_function(
    package: Callable[..., None], start: Start, value: str
) -> None:
    package(value, m=FORMS[value])

    host = start(enable=("fresh",))

    record = host.plugins._plugins["fresh"]
    assert (record.enabled, record.tools_registered) == (True, ["t"])
    manifest = record.manifest
    assert (manifest.source, manifest.path, manifest.kind, manifest.version) == (
        "entrypoint",
        value,
        "standalone",
        "",
    )


def test_an_entry_point_without_register_is_imported_and_said_so(package: Callable[..., None], start: Start) -> None:
    package("fresh_package.m", m="x = 1\n")

    record = start(enable=("fresh",)).plugins._plugins["fresh"]

    assert record.error == "no register() function"


def test_an_entry_point_without_register_runs_when_its_import_registers(
    package: Callable[..., None], home: Path, start: Start
) -> None:
    tool = "{'name': 'roll', 'description': 'x', 'parameters': {'type': 'object', 'properties': {}}}"
    code = (
        "from tools.registry import registry\n"
        f"registry.register(name='roll', toolset='dice', schema={tool}, handler=lambda args, **kw: '4')\n"
    )
    package("fresh_package.m", m=code)
    (home / "config.yaml").write_text("plugins:\n  enabled: [fresh]\n")
    import_hook.install()
    try:
        with use_host(None):
            host = Host.build(home)
            host.plugins.discover_and_load()
            host.bridge.close()
    finally:
        import_hook.uninstall()

    record = host.plugins._plugins["fresh"]
    assert (record.error, record.tools_registered) == (None, ["roll"])


def test_the_modules_of_a_failed_package_are_forgotten(package: Callable[..., None], start: Start) -> None:
    package("fresh_package.m", m="from . import other\nraise OSError('no')\n", other="import colorsys\n")

    record = start(enable=("fresh",)).plugins._plugins["fresh"]

    assert record.error == "OSError: no"
    assert record.where.endswith("fresh_package/m.py:2")
    assert not any(name.startswith("fresh_package") for name in sys.modules)


def test_an_entry_point_of_a_module_that_is_not_there_fails_alone(package: Callable[..., None], start: Start) -> None:
    package("fresh_package.absent:register")

    record = start(enable=("fresh",)).plugins._plugins["fresh"]

    assert record.error == "ModuleNotFoundError: No module named 'fresh_package.absent'"


def test_settings_that_are_not_what_a_plugin_declares_are_warnings_and_it_runs(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_plugin("weather")
    with (folder / "plugin.yaml").open("a") as manifest:
        manifest.write(
            "config_schema:\n  days: {type: int}\n  place: {type: str, required: true}\n"
            "  key: {type: secret, required: true}\n  units: {type: str, required: true, default: metric}\n"
        )
    write_plugin(
        "jabber",
        manifest="name: jabber-platform\nkind: platform\nconfig_schema: {rooms: {type: list}}\n",
    )
    host = start(
        """
        plugins:
          enabled: [weather, jabber-platform]
          entries: {weather: {settings: {days: true}}}
        platforms: {jabber: {roms: [a]}}
        """
    )

    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    under = "plugins.entries.weather.settings"
    assert said == [
        f"{under}.days should be integer (got bool)",
        f"{host.home}/config.yaml:5: unknown key `platforms.jabber.roms` (did you mean `platforms.jabber.rooms`?)",
        f"{under}.place is required by the plugin's config_schema but is not set",
        f"{under}.key is required by the plugin's config_schema but is not set",
    ]
    assert [r.status for r in host.plugins.records if r.manifest.key == "weather"] == ["enabled"]
    config = host.home / "config.yaml"
    config.write_text(config.read_text().replace("days: true", "days: 3, place: Ulm, key: k").replace("roms", "room"))
    caplog.clear()
    host.plugins.reload()
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        f"{config}:5: unknown key `platforms.jabber.room` (did you mean `platforms.jabber.rooms`?)"
    ]
