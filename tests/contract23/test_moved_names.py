"""Acceptance list of the plugin contract of 0.23, E7 and E8: each moved or new name is served, or declined.

Run as a program, this module writes the table of declined names into `docs/plugins/contract-0.23.md`.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.compat import import_hook
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.chat import chat_host

pytestmark = pytest.mark.usefixtures("served_names")

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "contract-0.23.md"
BEGIN, END = "<!-- names that are not served: begin -->\n", "<!-- names that are not served: end -->\n"

LATER = """
agent.deadline: run_bounded_sync
agent.delegation_context: is_delegated_child_context is_delegated_child_process_context
agent.delegation_context: is_dispatcher_owned_worker_context
agent.interrupt_compat: request_hard_interrupt
agent.memory_provider: RecallStatus is_trivial_prompt spawn_context_thread
agent.redact: redact_for_egress register_redaction_patterns
agent.relay_runtime: active_turn current_turn
agent.secret_sources.base: get_source_environment
agent.skill_utils: get_skill_search_roots get_project_skills_dirs
agent.terminal_env_provider: TerminalEnvironmentProvider
agent.usage_anchor:
cron.scheduler: create_job_with_scheduler_registration
gateway.platforms.base: AudioFormat StreamingTTSHandle
gateway.platforms.event: MessageEvent MessageType
hermes_cli.approval_transport: ApprovalRequest ApprovalDecision invoke_approval_transport
hermes_cli.auth_oauth_pkce_plugin: OAuthPKCEConfig pkce_auth_handler pkce_refresh_credential
hermes_cli.commands: is_interrupt_then_dispatch
hermes_cli.kanban_db_connect: connect
hermes_cli.plugin_events: broadcast_plugin_event
hermes_cli.plugins: iter_hook_callbacks _resolve_hook_callback_timeout PluginState PluginRegistration
hermes_cli.plugins: _dispatch_pre_tool_call_hooks
hermes_cli.version_info: get_version_info
hermes_cli.web_routers:
hermes_constants: hermes_home_key profile_name_for_home
hermes_yaml: safe_load safe_dump
plugins.plugin_storage: plugin_data_dir plugin_db
plugins.plugin_utils: lazy_singleton SingletonSlot
tools.approval_human_wait: human_wait_window activity_heartbeat
tools.cronjob_job_args: _origin_from_env
tools.environments.base_output: _ThreadedProcessHandle
tools.skill_ledger:
tools.skills_tool_dedup: reset_skill_view_dedup
tools.terminal_scope: terminal_env
tools.tts_streaming: StreamingTTSProvider register resolve_streaming_provider
utils: read_json_or_empty
"""
"""Names that exist since 0.20 and that published plugins import (§5.4, §16)."""


def later_names() -> list[tuple[str, str]]:
    """Return module and name of each; "" for the module itself."""
    rows = [line.partition(":") for line in LATER.split("\n") if line]
    return [(module, name) for module, _, names in rows for name in names.split() or [""]]


MOVED = [(row.older, row.newer, name) for row in import_hook.moved() for name in row.names]


def is_served(module: str, name: str) -> bool:
    section = import_hook.served().get(module)
    return section is not None and (not name or name in section.names)


def test_e7_each_moved_name_is_one_object_under_both_paths_or_declined_under_both() -> None:
    with plugin_host():
        for older, newer, name in MOVED:
            if is_served(older, name):
                assert getattr(importlib.import_module(newer), name) is getattr(importlib.import_module(older), name)
                continue
            for module in (older, newer):
                with pytest.raises(ImportError) as refused:
                    exec(f"from {module} import {name}", {})
                assert import_hook.UNDECIDED not in str(refused.value), f"{module}.{name}"
                assert str(import_hook.decision(f"{module}.{name}")) in str(refused.value)


@pytest.mark.parametrize(("module", "name"), later_names())
def test_e8_each_later_name_that_plugins_import_is_served_or_declined(module: str, name: str) -> None:
    with plugin_host():
        if is_served(module, name):
            found = importlib.import_module(module)
            assert not name or getattr(found, name) is not None
        else:
            assert import_hook.decision(f"{module}.{name}".rstrip(".")) is not None


def test_most_moved_names_of_published_plugins_are_served() -> None:
    assert sum(is_served(older, name) for older, _, name in MOVED) >= 36
    assert sum(is_served(module, name) for module, name in later_names()) >= 45


# -- the page ------------------------------------------------------------------------------------------------------


def table() -> str:
    """Return the table of the names that are not served, with the reasons."""
    rows: dict[tuple[str, str], list[str]] = {}
    pairs = [(older, newer, name) for older, newer, name in MOVED if not is_served(older, name)]
    pairs += [(module, module, name) for module, name in later_names() if not is_served(module, name)]
    for older, newer, name in pairs:
        reason = import_hook.decision(f"{newer}.{name}".rstrip(".")) or import_hook.UNDECIDED
        names = rows.setdefault((older, reason), [])
        if name and name not in names:
            names.append(name)
    lines = [
        f"| `{module}` | {' '.join(f'`{name}`' for name in names) or 'the module'} | {reason} |"
        for (module, reason), names in rows.items()
    ]
    return "\n".join(["| module | names | not served because |", "| --- | --- | --- |", *lines, ""])


def with_table(text: str) -> str:
    """Return the text of the page with the table of today."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def test_the_page_has_each_name_that_is_not_served_with_its_reason() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_table(text), f"run {Path(__file__).name} as a program: make docs"


# -- what the names do ---------------------------------------------------------------------------------------------

NAMES = """
from agent.deadline import run_bounded_sync
from agent.interrupt_compat import request_hard_interrupt
from cron.scheduler import create_job_with_scheduler_registration
from tools.approval import _get_approval_config
from tools.skills_tool_dedup import reset_skill_view_dedup
from tools.terminal_scope import terminal_env
def register(ctx):
    pass
"""


@pytest.fixture
def names(tmp_path: Path) -> Iterator[Any]:
    """The module of a plugin that imports them."""
    config = {
        "plugins": {"enabled": ["names"]},
        "approvals": {"timeout": 77},
        "terminal": {"backend": "ssh", "timeout": 33, "ssh_host": "pot"},
    }
    env = {"TERMINAL_FONT": "serif"}
    with plugin_host(plugin(tmp_path / "names", NAMES), config=config, env=env) as host:
        yield host.module


def test_e8_a_call_with_a_deadline_returns_raises_or_is_abandoned(names: Any) -> None:
    released = threading.Event()
    done = names.run_bounded_sync(lambda: 3, 20, label="a call")
    assert (done.value, done.timed_out) == (3, False)
    with pytest.raises(KeyError):
        names.run_bounded_sync(lambda: {}["none"], 20)
    started = time.monotonic()
    late = names.run_bounded_sync(lambda: released.wait(60), 0.05, label="a slow call")
    assert (late.value, late.timed_out) == (None, True)
    assert time.monotonic() - started < 20
    released.set()


def test_e8_the_settings_of_commands_are_found_under_the_names_of_variables(names: Any) -> None:
    assert (names.terminal_env("TERMINAL_ENV", "local"), names.terminal_env("TERMINAL_TIMEOUT")) == ("ssh", "33")
    assert (names.terminal_env("TERMINAL_FONT", "mono"), names.terminal_env("TERMINAL_SIZE", "9")) == ("serif", "9")
    assert names.terminal_env("PATH") == os.environ["PATH"]


def test_e8_the_block_approvals_a_job_and_a_skill_that_is_shown_again(names: Any) -> None:
    assert names._get_approval_config()["timeout"] == 77
    assert names.reset_skill_view_dedup("task") is None
    job = names.create_job_with_scheduler_registration(
        prompt="water the plants", schedule="every 2h", name="plants", repeat=1
    )
    assert job["name"] == "plants"


REMINDER = """
import json
from cron.scheduler import create_job_with_scheduler_registration
from tools.cronjob_job_args import _origin_from_env
SCHEMA = {"name": "remind", "description": "x", "parameters": {"type": "object", "properties": {}}}
def remind(args):
    job = create_job_with_scheduler_registration(
        prompt="Say: tea", schedule="every 2h", name="tea", repeat=1, origin=_origin_from_env(), attach_to_session=True)
    return json.dumps({"origin": _origin_from_env(), "deliver": job["deliver"]})
def register(ctx): ctx.register_tool("remind", None, SCHEMA, remind)
"""


def test_e8_a_job_that_a_plugin_makes_in_a_chat_answers_there(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "reminder", REMINDER)
    with chat_host(folder, model=[call("remind"), "noted"]) as chat:
        chat.write("remind me")
        chat.wait(lambda: any("/approve" in text for text in chat.texts))
        chat.write("/approve")
        chat.wait(lambda: "noted" in chat.texts)
        result = next(m["content"] for m in chat.host.model.messages if m["role"] == "tool")
    made = json.loads(result)
    assert "error" not in made, result
    assert (made["origin"]["platform"], made["origin"]["chat_id"]) == ("memorychat", "room")
    assert made["deliver"] == "memorychat:room"


def test_e8_a_running_turn_is_interrupted(names: Any) -> None:
    messages: list[str | None] = []

    class Agent:
        def interrupt(self, message: str | None = None) -> None:
            messages.append(message)

    assert names.request_hard_interrupt(Agent(), "the chat has ended", tool_reason="uninstalled")
    assert messages == ["the chat has ended"]
    assert not names.request_hard_interrupt(object(), "the chat has ended")


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
