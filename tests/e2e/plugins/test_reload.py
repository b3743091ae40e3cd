"""A plugin is loaded anew, started or stopped while others serve; the old version serves until the new one can."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.compat import import_hook
from hermes_agent.core.errors import CommandFailed, UserError
from hermes_agent.host import Host

Write = Callable[..., Path]
Start = Callable[..., Host]

TOOL = """
import threading
VERSION = {version!r}
entered, may_end = threading.Event(), threading.Event()
def said(args, **kwargs):
    if args.get("wait"):
        entered.set()
        assert may_end.wait(60)
    return VERSION
def watch(**kwargs): pass
def register(ctx):
    {first}
    ctx.register_tool("said", "talk", {{"name": "said", "description": "d"}}, said)
    ctx.register_hook("post_tool_call", watch)
    {then}
"""
DEV = "plugins:\n  enabled: [p, other]\n  entries: {p: {trust: dev}}\n"


def code(version: str, first: str = "", then: str = "") -> str:
    return TOOL.format(version=version, first=first, then=then)


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


@pytest.fixture
def host(write_plugin: Write, start: Start) -> Host:
    """A host with `p`, which may change, and `other`."""
    write_plugin("other", "def register(ctx): ctx.register_hook('post_tool_call', lambda **kw: None)\n")
    write_plugin("p", code("one"))
    return start(DEV)


def call(host: Host, **args: object) -> str:
    return host.plugins.contexts["other"].dispatch_tool("said", dict(args))


def change(home: Path, text: str) -> None:
    (home / "plugins" / "p" / "__init__.py").write_text(text)


def test_the_new_code_serves_and_a_call_that_runs_ends_on_the_old(home: Path, host: Host) -> None:
    old = host.plugins._plugins["p"].module
    running, results = in_thread(lambda: call(host, wait=True))
    assert old.entered.wait(30)
    change(home, code("two"))

    (done,) = host.plugins.reload("p")

    assert (done.key, done.outcome, done.reason) == ("p", "reloaded", "")
    assert call(host) == "two"
    assert not results
    old.may_end.set()
    running.join()
    assert results == ["one"]
    new = host.plugins._plugins["p"].module
    assert (old.__name__, new.__name__) == ("hermes_plugins.p", "hermes_plugins.p__2")
    assert [owner for owner, _ in host.hooks.listeners("post_tool_call")] == ["other", "p"]
    change(home, code("three"))
    host.plugins.reload("p")
    assert "hermes_plugins.p" not in sys.modules
    assert "hermes_plugins.p__2" in sys.modules  # a call may still run there


def test_the_old_code_serves_until_the_new_one_has_registered(home: Path, host: Host) -> None:
    gate = "import builtins; builtins.at_the_gate.set(); assert builtins.gate_open.wait(60)"
    change(home, code("two", then=gate))
    import builtins

    builtins.at_the_gate, builtins.gate_open = threading.Event(), threading.Event()  # type: ignore[attr-defined]
    loading, results = in_thread(lambda: host.plugins.reload("p"))
    assert builtins.at_the_gate.wait(30)  # type: ignore[attr-defined]

    assert call(host) == "one"
    assert len(host.hooks.listeners("post_tool_call")) == 2
    builtins.gate_open.set()  # type: ignore[attr-defined]
    loading.join()
    assert call(host) == "two"
    assert [str(one) for one in results[0]] == ["p: reloaded"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (code("two", then="raise RuntimeError('half-way')"), "RuntimeError: half-way"),
        ("def register(ctx:\n", "SyntaxError: '(' was never closed"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        (code("two", first="raise SystemExit(3)"), "SystemExit(3) raised during import/register()"),
    ],
)
def test_when_the_new_code_fails_the_old_one_stays_and_the_reason_is_told(
    home: Path, host: Host, text: str, reason: str
) -> None:
    change(home, text)

    (done,) = host.plugins.reload("p")

    assert done.outcome == "failed"
    assert done.reason.startswith(f"{reason} ({home}/plugins/p/__init__.py:")
    assert done.reason.endswith("the version that was loaded before goes on")
    assert call(host) == "one"
    assert [owner for owner, _ in host.hooks.listeners("post_tool_call")] == ["other", "p"]
    assert f"! a newer version could not be loaded: {reason}" in host.plugins.status_text()
    assert any("a newer version could not be loaded" in line for line in host.plugins.hints())
    change(home, code("three"))
    assert [str(d) for d in host.plugins.reload("p")] == ["p: reloaded"]
    assert call(host) == "three"
    assert "newer version" not in host.plugins.status_text()


def test_new_code_that_takes_too_long_is_left_behind_and_may_not_register_later(home: Path, host: Host) -> None:
    (home / "config.yaml").write_text(DEV + "  load_timeout_s: 0.2\n")
    import builtins

    builtins.may_go_on, builtins.was_late = threading.Event(), threading.Event()  # type: ignore[attr-defined]
    change(
        home,
        code("two", first="import builtins; builtins.may_go_on.wait(60)", then="builtins.was_late.set()"),
    )
    loading, results = in_thread(lambda: host.plugins.reload("p"))
    loading.join()

    (done,) = results[0]  # type: ignore[misc]
    assert done.reason.startswith("load timed out after 0.2s (import + register() never returned)")
    builtins.may_go_on.set()  # type: ignore[attr-defined]
    assert builtins.was_late.wait(30)  # type: ignore[attr-defined]
    assert call(host) == "one"


def test_other_content_that_nobody_granted_does_not_replace_what_runs(
    home: Path, write_plugin: Write, start: Start
) -> None:
    write_plugin("other")
    write_plugin("p", code("one"))
    host = start(enable=("p", "other"))
    change(home, code("two"))

    (done,) = host.plugins.reload("p")

    assert done.outcome == "failed"
    assert "changed since it was granted" in done.reason
    assert "run `hermes plugins grant p`" in done.reason
    assert call(host) == "one"


def test_a_plugin_that_was_disabled_or_removed_is_gone_and_one_that_was_enabled_is_there(
    home: Path, host: Host
) -> None:
    (home / "config.yaml").write_text("plugins:\n  enabled: [other]\n")
    assert [str(d) for d in host.plugins.reload()] == [
        "other: reloaded",
        "p: stopped: not enabled in config (run `hermes plugins enable p` to activate)",
    ]
    why = "plugin `p` does not run: not enabled in config (run `hermes plugins enable p` to activate)"
    assert json.loads(call(host)) == {"error": f"Unknown tool: said ({why})"}
    assert [owner for owner, _ in host.hooks.listeners("post_tool_call")] == ["other"]
    assert "○ p [not enabled]" in host.plugins.status_text()

    (home / "config.yaml").write_text(DEV)
    assert [str(d) for d in host.plugins.reload("p")] == ["p: loaded"]
    assert call(host) == "one"

    shutil.rmtree(home / "plugins" / "p")
    assert [str(d) for d in host.plugins.reload("p")] == [f"p: stopped: {home}/plugins/p is gone"]
    assert json.loads(call(host)) == {"error": "Unknown tool: said"}
    assert [r.manifest.key for r in host.plugins.records] == ["other"]
    with pytest.raises(UserError, match="unknown plugin `othr` \\(did you mean `other`\\?\\)"):
        host.plugins.reload("othr")


def test_a_manifest_that_broke_since_does_not_stop_the_plugin(home: Path, host: Host) -> None:
    (home / "plugins" / "p" / "plugin.yaml").write_text("name: [p\n")

    (done,) = host.plugins.reload("p")

    assert done.outcome == "failed"
    assert "line " in done.reason
    assert call(host) == "one"


def test_a_broken_config_changes_nothing(home: Path, host: Host) -> None:
    (home / "config.yaml").write_text("plugins:\n  enabled: p\n")
    change(home, code("two"))

    with pytest.raises(UserError, match="expected a list"):
        host.plugins.reload()

    assert call(host) == "one"


def test_a_tool_of_the_agent_comes_back_when_the_plugin_that_replaced_it_is_disabled(
    home: Path, write_plugin: Write, start: Start
) -> None:
    body = """
        def register(ctx):
            schema = {"name": "terminal", "description": "mine"}
            ctx.register_tool("terminal", "mine", schema, lambda args, **kw: "mine", override=True)
        """
    write_plugin("p", body)
    write_plugin("other")
    host = start("plugins:\n  enabled: [p, other]\n  entries: {p: {allow_tool_override: true}}\n")
    assert (host.tools.owner("terminal"), host.tools.get_toolset_for_tool("terminal")) == ("p", "mine")

    (home / "config.yaml").write_text("plugins:\n  enabled: [other]\n")
    host.plugins.reload("p")

    assert (host.tools.owner("terminal"), host.tools.get_toolset_for_tool("terminal")) == ("builtin", "terminal")


def test_what_goes_to_the_registry_itself_is_the_plugin_s_and_is_swapped_too(
    home: Path, write_plugin: Write, without_host: None
) -> None:
    body = """
        from tools.registry import registry
        def register(ctx):
            registry.register("direct", "d", {{"name": "direct", "description": "d"}}, lambda args, **kw: {version!r})
        """
    (home / "config.yaml").write_text(DEV)
    write_plugin("other")
    folder = write_plugin("p", body.format(version="one"))
    import_hook.install()
    host = Host.build(home)
    try:
        host.plugins.discover_and_load()
        assert (host.tools.owner("direct"), host.tools.dispatch("direct", {})) == ("p", "one")
        shutil.rmtree(folder)
        write_plugin("p", body.format(version="two"))

        host.plugins.reload("p")

        assert (host.tools.owner("direct"), host.tools.dispatch("direct", {})) == ("p", "two")
        assert host.plugins._plugins["p"].tools_registered == ["direct"]
    finally:
        host.bridge.close()
        import_hook.uninstall()


def test_an_installed_package_needs_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    site = tmp_path / "site"
    (site / "packaged-1.0.dist-info").mkdir(parents=True)
    (site / "packaged-1.0.dist-info" / "entry_points.txt").write_text(
        "[hermes_agent.plugins]\npackaged = fresh_package\n"
    )
    (site / "fresh_package.py").write_text(code("one"))
    monkeypatch.syspath_prepend(str(site))
    host = start(enable=("packaged",))

    assert [str(d) for d in host.plugins.reload("packaged")] == [
        "packaged: restart needed: it is an installed package, which is imported once"
    ]
    assert [str(d) for d in host.plugins.reload()] == ["packaged: unchanged"]
    assert host.tools.dispatch("said", {}) == "one"


def test_the_slash_command_reloads_and_answers_with_the_reason(home: Path, host: Host) -> None:
    change(home, code("two"))
    command = host.commands.find("plugins", "terminal")
    assert command is not None

    assert command.handler("reload p") == "  p: reloaded"
    with pytest.raises(CommandFailed, match="unknown plugin `q`"):
        command.handler("reload q")
    assert call(host) == "two"
