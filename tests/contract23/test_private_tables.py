"""Private names that published plugins change are live: what they change takes effect and belongs to the plugin."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.adapters.config import Platform
from hermes_agent.adapters.events import SESSION_VARIABLES, SessionSource, bind_session, get_session_env
from hermes_agent.compat import import_hook
from hermes_agent.testing import PluginHost, plugin_host


@pytest.fixture(autouse=True)
def upstream_names() -> Iterator[None]:
    import_hook.install()
    yield
    import_hook.uninstall()


HEAD = """
from hermes_cli.plugins import get_plugin_manager

seen = []

def note(**kwargs):
    seen.append(kwargs["reason"])
    return None

def first(**kwargs):
    seen.append("first")
    return None

def register(ctx):
    manager = get_plugin_manager()
    global mine
"""

HOOK_WAYS = {
    "setdefault": "manager._hooks.setdefault('on_session_reset', []).append(note)",
    "item": "manager._hooks['on_session_reset'] = [note]",
    "get": "ctx.register_hook('on_session_reset', first); manager._hooks['on_session_reset'].insert(0, note)",
    "extend": "mine = manager._hooks.setdefault('on_session_reset', []); mine += [note]",
}


def made(folder: Path, body: str) -> Path:
    return plugin(folder, HEAD + "".join(f"    {line}\n" for line in body.splitlines()))


def fire(host: PluginHost) -> None:
    host.fire("on_session_reset", reason="new_session")


@pytest.mark.parametrize("way", HOOK_WAYS)
def test_a_callback_put_into_manager_hooks_is_called_and_leaves_with_its_plugin(tmp_path: Path, way: str) -> None:
    with plugin_host(made(tmp_path / "p", HOOK_WAYS[way])) as host:
        fire(host)
        assert "new_session" in host.module.seen
        if way == "get":
            assert host.module.seen == ["new_session", "first"]
        assert host.record.hooks_registered == ["on_session_reset"]
        manager = host.host.plugins
        assert isinstance(manager._hooks, dict)
        assert list(manager._hooks) == ["on_session_reset"]
        manager.unload("p")
        assert manager._hooks == {}
        assert len(manager._hooks.setdefault("on_session_reset", [])) == 0


def test_a_list_of_manager_hooks_that_is_kept_stays_current(tmp_path: Path) -> None:
    body = "mine = manager._hooks.setdefault('on_session_reset', [])\nctx.register_hook('on_session_reset', first)"
    with plugin_host(made(tmp_path / "p", body)) as host:
        module = host.module
        assert list(module.mine) == [module.first]
        assert module.first in module.mine
        module.mine[0] = module.note
        assert list(host.host.plugins._hooks["on_session_reset"]) == [module.note]
        del module.mine[0]
        assert not host.host.plugins.has_hook("on_session_reset")


def test_a_callback_of_another_plugin_can_be_removed_and_the_log_says_so(tmp_path: Path) -> None:
    first = made(tmp_path / "a", "ctx.register_hook('on_session_reset', note)")
    second = made(tmp_path / "b", "del manager._hooks['on_session_reset']")
    with plugin_host(first, second) as host:
        fire(host)
        assert host.host.plugins.find("a").module.seen == []  # type: ignore[union-attr]
        assert "of plugin a was removed by plugin `b`" in host.log_text


def test_a_guard_of_another_plugin_stays_in_force(tmp_path: Path) -> None:
    guard = "ctx.register_hook('pre_tool_call', lambda **kw: {'action': 'block', 'message': 'no'})"
    bodies = {"a": guard, "b": "manager._hooks['pre_tool_call'] = []", "c": "manager._hooks.clear()"}
    with plugin_host(*(made(tmp_path / name, body) for name, body in bodies.items())) as host:
        assert "no" in host.dispatch_tool("skills_list")
        assert "plugin `b` cannot remove guards of others" in host.log_text


def test_what_cannot_be_called_is_refused(tmp_path: Path) -> None:
    with plugin_host(made(tmp_path / "p", "manager._hooks.setdefault('x', []).append(3)"), strict=False) as host:
        assert "expected something that can be called" in str(host.record.failure)
        assert "x" not in host.host.plugins._hooks


def test_a_callback_of_a_plugin_that_fails_later_is_gone(tmp_path: Path) -> None:
    body = "manager._hooks.setdefault('on_session_reset', []).append(note)\nraise ValueError('no')"
    with plugin_host(made(tmp_path / "p", body), strict=False) as host:
        assert host.host.plugins._hooks == {}


def test_middleware_put_into_the_manager_changes_calls(tmp_path: Path) -> None:
    body = (
        "manager._middleware.setdefault('tool_request', []).append(\n"
        "    lambda args, **kwargs: {'args': {**args, 'word': 'coffee'}})\n"
        "parameters = {'type': 'object', 'properties': {'word': {'type': 'string'}}}\n"
        "ctx.register_tool('say', schema={'name': 'say', 'description': 'x', 'parameters': parameters},\n"
        "    handler=lambda args, **kwargs: args['word'])"
    )
    with plugin_host(made(tmp_path / "p", body)) as host:
        assert host.dispatch_tool("say", {"word": "tea"}) == "coffee"
        assert host.record.middleware_registered == ["tool_request"]


SAY = """
word = lambda suffix: lambda args, **kwargs: {'args': {**args, 'word': args['word'] + suffix}}
parameters = {'type': 'object', 'properties': {'word': {'type': 'string'}}}
ctx.register_tool('say', schema={'name': 'say', 'description': 'x', 'parameters': parameters},
    handler=lambda args, **kwargs: args['word'])
"""
MIDDLEWARE_WAYS = {
    "item": ("manager._middleware['tool_request'] = [word('1'), word('2')]", "tea12"),
    "insert": (
        "manager._middleware.setdefault('tool_request', []).append(word('1'))\n"
        "manager._middleware['tool_request'].insert(0, word('2'))",
        "tea21",
    ),
    "register": (
        "ctx.register_middleware('tool_request', word('1'))\nmanager._middleware['tool_request'].insert(0, word('2'))",
        "tea21",
    ),
    "replace": (
        "manager._middleware['tool_request'] = [word('1')]\nmanager._middleware['tool_request'][0] = word('2')",
        "tea2",
    ),
    "delete": (
        "manager._middleware['tool_request'] = [word('1'), word('2')]\ndel manager._middleware['tool_request'][0]",
        "tea2",
    ),
    "pop": ("manager._middleware['tool_request'] = [word('1')]\nmanager._middleware.pop('tool_request')", "tea"),
}


@pytest.mark.parametrize("way", MIDDLEWARE_WAYS)
def test_each_way_to_change_middleware_takes_effect_and_leaves_with_its_plugin(tmp_path: Path, way: str) -> None:
    body, said = MIDDLEWARE_WAYS[way]
    with plugin_host(made(tmp_path / "p", SAY.strip() + "\n" + body)) as host:
        assert host.dispatch_tool("say", {"word": "tea"}) == said
        assert host.record.middleware_registered == ([] if way == "pop" else ["tool_request"])
        host.host.plugins.unload("p")
        assert not host.host.plugins._middleware.get("tool_request")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("manager._plugin_commands.setdefault('tea', {'handler': lambda raw: f'tea {raw}'})", "tea now"),
        ("manager._plugin_commands.update(tea={'handler': lambda raw: f'tea {raw}'})", "tea now"),
        (
            "ctx.register_command('tea', lambda raw: 'old')\n"
            "manager._plugin_commands['tea']['handler'] = lambda raw: f'new {raw}'",
            "new now",
        ),
    ],
)
def test_each_way_to_change_commands_takes_effect_and_leaves_with_its_plugin(
    tmp_path: Path, change: str, said: str
) -> None:
    with plugin_host(made(tmp_path / "p", change)) as host:
        assert host.run_command("/tea now") == said
        assert host.record.commands_registered == ["tea"]
        host.host.plugins.unload("p")
        assert dict(host.host.plugins._plugin_commands) == {}


def test_a_hook_that_a_plugin_takes_out_again_is_not_called_nor_counted(tmp_path: Path) -> None:
    body = (
        "manager._hooks['on_session_reset'] = [note, first]\ndel manager._hooks['on_session_reset'][0]\n"
        "manager._hooks['on_session_end'] = [note]\ndel manager._hooks['on_session_end']"
    )
    with plugin_host(made(tmp_path / "p", body)) as host:
        fire(host)
        assert host.record.module.seen == ["first"]
        assert host.record.hooks_registered == ["on_session_reset"]


def test_a_command_put_into_the_manager_runs_and_a_wrapped_one_returns_with_its_plugin(tmp_path: Path) -> None:
    first = made(tmp_path / "a", "manager._plugin_commands['tea'] = {'handler': lambda raw: f'tea {raw}'}")
    second = made(
        tmp_path / "b",
        "entry = manager._plugin_commands['tea']\nold = entry['handler']\n"
        "entry['handler'] = lambda raw: old(raw).upper()",
    )
    with plugin_host(first, second) as host:
        assert host.run_command("/tea now") == "TEA NOW"
        assert host.host.plugins.find("a").commands_registered == ["tea"]  # type: ignore[union-attr]
        host.host.plugins.unload("b")
        assert host.run_command("/tea now") == "tea now"
        del host.host.plugins._plugin_commands["tea"]
        assert "tea" not in host.commands
        assert dict(host.host.plugins._plugin_commands) == {}


@pytest.mark.parametrize("value", ["{'handler': 3}", "print"])
def test_a_command_without_a_handler_and_one_of_the_agent_are_refused(tmp_path: Path, value: str) -> None:
    bodies = {
        "a": f"manager._plugin_commands['tea'] = {value}",
        "b": "manager._plugin_commands['help'] = {'handler': print}",
    }
    with plugin_host(*(made(tmp_path / name, body) for name, body in bodies.items()), strict=False) as host:
        errors = [str(record.failure) for record in host.records]
        assert "expected a mapping with a callable `handler`" in errors[0]
        assert "belongs to the agent" in errors[1]


REGISTRY = """
from tools.registry import registry

def register(ctx):
    schema = {"name": "roll", "description": "Roll", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("roll", schema=schema, handler=lambda args, **kw: "4")
    registry._tools["roll"].handler = lambda args, **kw: "6"
    again = registry._tools.pop("roll")
    registry._tools.setdefault("roll", again)
"""


def test_the_table_of_tools_is_live_and_its_entries_too(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "dice", REGISTRY)) as host:
        assert host.dispatch_tool("roll") == "6"
        assert host.record.tools_registered == ["roll"]
        host.host.plugins.unload("dice")
        assert "roll" not in host.host.tools._tools


def test_the_variables_of_a_session_are_live_and_a_plugin_may_add_one() -> None:
    from gateway.session_context import _VAR_MAP  # type: ignore[import-not-found]
    from gateway.session_context import get_session_env as theirs

    assert _VAR_MAP is SESSION_VARIABLES
    own: ContextVar[str] = ContextVar("own", default="mine")
    source = SessionSource(Platform("telegram"), "42", user_id="7")
    with bind_session(source, "key"):
        assert (theirs("HERMES_SESSION_CHAT_ID"), _VAR_MAP["HERMES_SESSION_USER_ID"].get()) == ("42", "7")
        token = _VAR_MAP["HERMES_SESSION_CHAT_ID"].set("43")
        assert get_session_env("HERMES_SESSION_CHAT_ID") == "43"
        _VAR_MAP["HERMES_SESSION_CHAT_ID"].reset(token)
        assert get_session_env("HERMES_SESSION_CHAT_ID") == "42"
        _VAR_MAP["HERMES_SESSION_OWN"] = own
        try:
            assert theirs("HERMES_SESSION_OWN") == "mine"
        finally:
            del _VAR_MAP["HERMES_SESSION_OWN"]
    with pytest.raises(LookupError):
        _VAR_MAP["HERMES_SESSION_CHAT_ID"].get()
    assert _VAR_MAP["HERMES_SESSION_CHAT_ID"].get("none") == "none"


def test_a_copy_of_the_tables_is_plain() -> None:
    import copy

    def register(ctx: Any) -> None:
        ctx.register_hook("on_session_reset", print)

    with plugin_host(register) as host:
        hooks = copy.deepcopy(host.host.plugins._hooks)
        hooks["on_session_reset"].append(len)
        assert type(hooks) is dict
        assert len(host.host.plugins._hooks["on_session_reset"]) == 1
        assert repr(host.host.plugins._hooks) == repr({"on_session_reset": [print]})
