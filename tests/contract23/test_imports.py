"""Acceptance list of the plugin contract of 0.23, part E: import paths. One test a sentence, with its number."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.compat.generation import import_generation
from hermes_agent.testing import call, plugin_host

pytestmark = pytest.mark.usefixtures("served_names")


def test_e7_a_module_that_is_not_served_says_why_under_its_new_path_too() -> None:
    with pytest.raises(ModuleNotFoundError, match="there is no board"):
        importlib.import_module("hermes_cli.kanban_db_connect")


NEW_NAMES = """
from agent.delegation_context import is_delegated_child_context, is_dispatcher_owned_worker_context
from agent.memory_provider import RecallStatus, is_trivial_prompt, spawn_context_thread
from agent.redact import redact_for_egress, register_redaction_patterns
from agent.relay_runtime import active_turn, current_turn
from agent.secret_sources.base import get_source_environment
from agent.skill_utils import get_project_skills_dirs, get_skill_search_roots
from agent.terminal_env_provider import TerminalEnvironmentProvider
from gateway.platforms.event import MessageEvent, MessageType
from hermes_cli.plugin_events import broadcast_plugin_event
from hermes_cli.plugins import (
    PluginRegistration, PluginState, _dispatch_pre_tool_call_hooks, _resolve_hook_callback_timeout, ainvoke_hook,
    iter_hook_callbacks,
)
from hermes_cli.version_info import get_version_info
from hermes_constants import hermes_home_key, profile_name_for_home
from plugins.plugin_storage import plugin_data_dir, plugin_db
from plugins.plugin_utils import SingletonSlot, lazy_singleton
from utils import read_json_or_empty
import hermes_yaml
def register(ctx):
    ctx.register_hook("pre_tool_call", guard)
    ctx.register_hook("pre_tool_call", change)
    ctx.register_hook("on_session_end", lambda **kw: "seen")
def guard(tool_name, **kw):
    return {"action": "block", "message": "not that"} if tool_name == "bad" else None
def change(**kw):
    return {"action": "modify", "args": {"added": 1}}
"""


async def test_e8_the_names_of_the_new_generation_import_and_behave(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "p", NEW_NAMES)) as host:
        m: Any = host.module
        assert m.hermes_home_key() == str(host.home.resolve())
        assert m.hermes_home_key(str(host.home) + "/../" + host.home.name) == str(host.home.resolve())
        assert m.profile_name_for_home(host.home) in ("default", "custom")
        assert not m.is_delegated_child_context()
        assert not m.is_dispatcher_owned_worker_context()
        assert m.active_turn() is None
        assert m.iter_hook_callbacks("pre_tool_call") == (m.guard, m.change)
        assert m._resolve_hook_callback_timeout() == 10.0
        assert m._dispatch_pre_tool_call_hooks("bad", {"a": 1})[0] == "not that"
        assert m._dispatch_pre_tool_call_hooks("good", {"a": 1}) == (None, {"a": 1, "added": 1})
        assert await m.ainvoke_hook("on_session_end", session_id="x") in (["seen"], [])
        assert m.get_version_info().base_version[0].isdigit()
        m.broadcast_plugin_event("my-plugin", "a.b", {"x": 1})
        for wrong in (("My", "a"), ("p", "a b"), ("p", "")):
            with pytest.raises(ValueError):
                m.broadcast_plugin_event(*wrong)
        with pytest.raises(TypeError):
            m.broadcast_plugin_event("p", "a", [1])
        made: list[int] = []
        one = m.lazy_singleton(lambda: made.append(1) or object())
        assert one() is one()
        one.reset()
        assert one() is not None
        assert made == [1, 1]
        assert m.read_json_or_empty(host.home / "absent") == {}
        assert m.hermes_yaml.safe_load("a: [1]") == {"a": [1]}
        assert m.get_source_environment() is not None
        assert m.get_skill_search_roots()[0] == (1, host.home / "skills")
        assert m.redact_for_egress("token sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD") != ""


def test_e8_current_turn_names_the_turn_that_a_tool_runs_in(tmp_path: Path) -> None:
    code = """
from agent.relay_runtime import current_turn
seen = []
def register(ctx):
    parameters = {"type": "object", "properties": {}}
    schema = {"name": "look", "description": "x", "parameters": parameters}
    ctx.register_tool("look", None, schema, lambda args: seen.append(current_turn()) or "done")
"""
    with plugin_host(plugin(tmp_path / "p", code), model=[call("look"), "ok"]) as host:
        host.ask("hello")
        turn = host.module.seen[0]
        assert turn.session_id == host.conversation.session_id
        assert turn.turn_id


def test_e9_a_global_that_is_set_under_the_old_path_is_seen_under_the_new_one() -> None:
    with plugin_host():
        old = importlib.import_module("tools.approval")
        new = importlib.import_module("tools.approval_detection")
        replacement = threading.Lock
        old.detect_dangerous_command = replacement  # type: ignore[attr-defined]
        assert new.detect_dangerous_command is replacement
        new.detect_dangerous_command = print  # type: ignore[attr-defined]
        assert old.detect_dangerous_command is print  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from gateway.platforms.event import MessageEvent\n", "0.20 to 0.23"),
        ("from tools.approval import detect_dangerous_command\n", "0.19"),
        (
            "try:\n    from tools.approval_detection import DANGEROUS_PATTERNS\n"
            "except ImportError:\n    from tools.approval import DANGEROUS_PATTERNS\n",
            "0.19 and 0.20 to 0.23",
        ),
        ("from agent.memory_provider import is_trivial_prompt\n", "0.20 to 0.23"),
        ("from hermes_constants import get_hermes_home\nimport json\n", ""),
    ],
)
def test_the_generation_of_a_plugin_is_read_from_its_imports(tmp_path: Path, code: str, expected: str) -> None:
    folder = plugin(tmp_path / "p", code + "raise RuntimeError('imported')\n")
    assert import_generation(str(folder), "user") == expected


ADAPTER = """
class AcmeAdapter:
    greeting = "hello"


def register(ctx):
    pass
"""
DERIVED = """
from plugins.platforms.acme import adapter
from plugins.platforms.acme.adapter import AcmeAdapter

class Louder(AcmeAdapter):
    def greet(self):
        return self.greeting.upper()

def register(ctx):
    adapter.register(ctx)
    ctx.register_command("louder", lambda args: Louder().greet())
"""


def test_e7_a_plugin_derives_from_the_adapter_of_another_that_it_requires(tmp_path: Path) -> None:
    """As one does that changes upstream's adapter of a service, which is installed as a plugin."""
    derived = plugin(tmp_path / "a-louder", DERIVED, "name: a-louder\nrequires_plugins: [acme-platform]\n")
    acme = plugin(tmp_path / "acme", "from .adapter import register\n", "name: acme-platform\nkind: platform\n")
    (acme / "adapter.py").write_text(ADAPTER, encoding="utf-8")

    with plugin_host(derived, strict=False) as host:
        assert "installed and enabled as a plugin" in str(host.record.error)
    with plugin_host(derived, acme) as host:
        assert host.run_command("/louder") == "HELLO"


def test_e7_a_plugin_derives_from_an_adapter_of_upstream_without_a_requirement(tmp_path: Path) -> None:
    """There the adapter is bundled and loads first; here it lies below the name of its manifest, as installed."""
    source = DERIVED.replace("acme", "dingtalk")
    derived = plugin(tmp_path / "a-louder", source, "name: a-louder\n")
    manifest = "name: dingtalk-platform\nkind: platform\n"
    adapter = plugin(tmp_path / "dingtalk-platform", "from .adapter import register\n", manifest)
    (adapter / "adapter.py").write_text(ADAPTER, encoding="utf-8")

    with plugin_host(derived, adapter) as host:
        assert host.run_command("/louder") == "HELLO"
        own = [record.manifest.key for record in host.host.plugins.records if record.manifest.source == "user"]
        assert own == ["dingtalk-platform", "a-louder"]
