"""Every function that plugins import from upstream, called once: plugin contract §11.2, §11.3."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.host import Host
from hermes_agent.policy import Approvals, NoApprover, QueuedApprover
from hermes_agent.tools import CallScope, current_scope

pytestmark = pytest.mark.usefixtures("served")

SIGNATURES = {
    "utils.atomic_json_write": "path, data, indent=2, mode=None, dump_kwargs",
    "utils.env_int": "key, default=0",
    "utils.env_float": "key, default=0.0",
    "utils.env_bool": "key, default=False",
    "utils.env_var_enabled": "name, default=''",
    "utils.atomic_replace": "tmp_path, target",
    "agent.redact.redact_sensitive_text": (
        "text, force=False, code_file=False, file_read=False, redact_url_credentials=False"
    ),
    "agent.secret_scope.get_secret": "name, default=None",
    "agent.file_safety.raise_if_read_blocked": "path",
    "agent.file_safety.get_read_block_error": "path",
    "agent.message_content.flatten_message_text": "content, sep='\\n'",
    "agent.memory_manager.sanitize_context": "text",
    "agent.async_utils.consume_detached_task_result": "task",
    "tools.approval.resolve_gateway_approval": "session_key, choice, resolve_all=False, reason=None, request_id=None",
    "tools.approval.has_blocking_approval": "session_key",
    "tools.approval.request_tool_approval": "tool_name, reason, rule_key='', approval_callback=None",
    "tools.url_safety.is_safe_url": "url",
    "tools.url_safety.redirect_target_from_response": "response",
    "tools.website_policy.check_website_access": "url, config_path=None",
    "tools.interrupt.is_interrupted": "",
    "tools.lazy_deps.ensure": "feature, prompt=True",
    "tools.lazy_deps.ensure_and_bind": "feature, importer, target_globals, prompt=False",
    "tools.lazy_deps.feature_missing": "feature",
    "tools.clarify_gateway.resolve_gateway_clarify": "clarify_id, response",
    "tools.clarify_gateway.mark_awaiting_text": "clarify_id",
    "tools.env_passthrough.register_env_passthrough": "var_names",
    "tools.transcription_tools.transcribe_audio": "file_path, model=None",
    "tools.tts_tool.text_to_speech_tool": "text, output_path=None",
    "tools.vision_tools.vision_analyze_tool": "image_url, user_prompt, model=None, task_id=None",
    "tools.send_message_tool._error": "message",
    "hermes_cli.cli_output.prompt": "question, default=None, password=False",
    "hermes_cli.cli_output.prompt_yes_no": "question, default=True",
    "hermes_cli.secret_prompt.masked_secret_prompt": "prompt, mask='*'",
    "hermes_cli.curses_ui.curses_radiolist": (
        "title, items, selected=0, cancel_returns=None, description=None, searchable=False"
    ),
    "hermes_cli.colors.color": "text, codes",
    "hermes_cli.env_loader.load_hermes_dotenv": "hermes_home=None, project_env=None",
    "hermes_cli.tools_config._pip_install": "args, timeout=300, capture_output=True",
    "hermes_state.apply_wal_with_fallback": "conn, db_label='state.db'",
    "model_tools.get_tool_definitions": (
        "enabled_toolsets=None, disabled_toolsets=None, quiet_mode=False, skip_tool_search_assembly=False"
    ),
    "toolsets.resolve_toolset": "name, visited=None, include_registry=True",
}
"""Parameters and defaults as upstream has them; annotations are ours."""


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Answer the next questions with these lines; then the input ends."""
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def scope(tmp_path: Path, approvals: Approvals | None = None) -> CallScope:
    nobody = Approvals(NoApprover("in a test"), timeout_s=1)
    return CallScope("session-1", "task-1", "turn-1", tmp_path, approvals or nobody)


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_takes_what_upstream_s_takes(name: str) -> None:
    module, _, function = name.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters.values()

    assert (
        ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
        == (SIGNATURES[name])
    )


def test_json_files_are_replaced_as_a_whole(tmp_path: Path) -> None:
    from utils import atomic_json_write, atomic_replace

    place = tmp_path / "below" / "x.json"
    atomic_json_write(place, {"a": "ä"}, mode=0o600)
    with pytest.raises(TypeError):
        atomic_json_write(place, {"a": object()})
    (tmp_path / "new").write_text("[1]")
    (tmp_path / "link").symlink_to(place)

    assert json.loads(place.read_text()) == {"a": "ä"}
    assert place.stat().st_mode & 0o777 == 0o600
    assert atomic_replace(tmp_path / "new", tmp_path / "link") == str(place)
    assert (tmp_path / "link").is_symlink()
    assert place.read_text() == "[1]"


def test_variables_are_read_as_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from utils import env_bool, env_float, env_int, env_var_enabled

    for name, value in {"N": "7", "F": "0.5", "YES": "On", "NO": "0", "BAD": "x"}.items():
        monkeypatch.setenv(name, value)

    assert (env_int("N"), env_int("BAD", 3), env_int("ABSENT", 4)) == (7, 3, 4)
    assert (env_float("F"), env_float("BAD", 1.5)) == (0.5, 1.5)
    assert (env_bool("YES"), env_bool("NO", True), env_bool("ABSENT", True)) == (True, False, True)
    assert (env_var_enabled("YES"), env_var_enabled("ABSENT"), env_var_enabled("ABSENT", "1")) == (True, False, True)


def test_the_home_s_env_file_wins_and_a_project_s_fills_gaps(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_cli.env_loader import load_hermes_dotenv

    (home / ".env").write_text("ONE=home\n")
    (tmp_path / "p.env").write_text("ONE=project\nTWO=project\n")
    monkeypatch.setenv("ONE", "outside")
    monkeypatch.delenv("TWO", raising=False)

    assert load_hermes_dotenv(project_env=tmp_path / "p.env") == [home / ".env", tmp_path / "p.env"]
    assert (os.environ["ONE"], os.environ["TWO"]) == ("home", "project")
    monkeypatch.delenv("TWO")


def test_a_secret_is_found_by_name_and_masked_in_texts(home: Path) -> None:
    from agent.redact import redact_sensitive_text
    from agent.secret_scope import UnscopedSecretError, get_secret

    (home / ".env").write_text("WEATHER_KEY=made-up-and-long\n")
    key = "sk-" + "a" * 24

    assert (get_secret("WEATHER_KEY"), get_secret("ABSENT", "none")) == ("made-up-and-long", "none")
    assert issubclass(UnscopedSecretError, RuntimeError)
    assert redact_sensitive_text(f"key {key}.") == "key [redacted]."
    assert redact_sensitive_text("http://me:pass@x/?token=abc&a=1", redact_url_credentials=True) == (
        "http://[redacted]@x/?token=[redacted]&a=1"
    )
    (home / "config.yaml").write_text("security: {redact_secrets: false}\n")
    assert redact_sensitive_text(key) == key
    assert redact_sensitive_text(key, force=True) == "[redacted]"


def test_fetched_secrets_are_kept_for_their_owner_alone_and_for_a_while(home: Path) -> None:
    from agent.secret_sources._cache import CachedFetch, DiskCache

    cache = DiskCache("store_cache.json", key_serializer="|".join)
    fresh = CachedFetch(secrets={"A": "1"}, fetched_at=time.time())
    cache.write(("a", "b"), fresh, 60, home)
    cache.write(("not", "kept"), fresh, 0, home)
    file = home / "cache" / "store_cache.json"

    assert cache.read(("a", "b"), 60, home) == fresh
    assert cache.read(("a", "c"), 60, home) is cache.read(("not", "kept"), 60, home) is None
    assert cache.read(("a", "b"), -1, home) is None
    assert not CachedFetch({}, 0.0).is_fresh(60)
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("broken")
    assert cache.read(("a", "b"), 60, home) is None
    with pytest.raises(ValueError, match="no file name"):
        DiskCache("../x.json")


def test_files_with_credentials_are_not_for_tools(home: Path, tmp_path: Path) -> None:
    from agent.file_safety import get_read_block_error, get_write_denied_error, raise_if_read_blocked
    from agent.runtime_cwd import resolve_agent_cwd

    (home / ".env").write_text("A=1\n")
    (tmp_path / "notes").write_text("x")

    assert get_read_block_error(str(home / ".env")) == f"{home}/.env must not be read: it holds credentials"
    assert "must not be written" in str(get_write_denied_error(str(home / "auth.json")))
    assert get_read_block_error(str(tmp_path / "notes")) is get_write_denied_error(str(tmp_path / "notes")) is None
    with pytest.raises(PermissionError, match="holds credentials"):
        raise_if_read_blocked(str(home / ".env"))
    raise_if_read_blocked(str(tmp_path / "notes"))
    token = current_scope.set(scope(tmp_path))
    assert resolve_agent_cwd() == tmp_path
    current_scope.reset(token)


def test_only_public_addresses_are_safe(home: Path) -> None:
    from tools.url_safety import is_safe_url, redirect_target_from_response

    private = ["http://127.0.0.1/", "http://10.0.0.1:80/", "http://[::1]/", "http://[::ffff:127.0.0.1]/"]
    never = [
        "http://169.254.169.254/",
        "http://metadata.google.internal/",
        "ftp://1.1.1.1/",
        "http:///x",
        "x",
        "http://[/",
    ]

    assert is_safe_url("http://1.1.1.1/")
    assert [u for u in [*private, *never] if is_safe_url(u)] == []
    (home / "config.yaml").write_text("security: {allow_private_urls: true}\n")
    assert [u for u in private if not is_safe_url(u)] == []
    assert [u for u in never if is_safe_url(u)] == []
    moved = SimpleNamespace(status_code=302, headers={"location": "/b"}, url="http://x/a")
    assert redirect_target_from_response(moved) == "http://x/b"
    assert redirect_target_from_response(SimpleNamespace(status_code=200, headers={}, url="http://x/a")) is None


def test_a_site_that_the_operator_forbids_is_named_with_its_rule(home: Path) -> None:
    from tools.website_policy import check_website_access

    (home / "config.yaml").write_text("security: {website_blocklist: {enabled: true, domains: [bad.example]}}\n")

    assert check_website_access("https://good.example/") is None
    found = check_website_access("https://www.bad.example/page")
    assert found is not None
    assert (found["host"], found["rule"]) == ("www.bad.example", "bad.example")


def test_a_tool_call_sees_that_it_was_told_to_stop(tmp_path: Path) -> None:
    from tools.interrupt import is_interrupted

    assert is_interrupted() is False
    here = scope(tmp_path)
    token = current_scope.set(here)
    try:
        assert is_interrupted() is False
        here.cancelled.set()
        assert is_interrupted() is True
    finally:
        current_scope.reset(token)


def test_a_missing_feature_says_how_to_add_it_and_nothing_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    from hermes_cli.tools_config import _pip_install
    from tools.lazy_deps import FeatureUnavailable, ensure, ensure_and_bind, feature_missing

    with pytest.raises(FeatureUnavailable) as caught:
        ensure("memory.honcho")
    bound: dict[str, Any] = {}
    done = _pip_install(["--quiet", "aiohttp"])

    assert (caught.value.feature, caught.value.missing) == ("memory.honcho", ("honcho-ai",))
    assert "pip install honcho-ai" in caught.value.reason
    assert feature_missing("memory.honcho") == ("honcho-ai",)
    assert ensure_and_bind("memory.honcho", lambda: {"x": 1}, bound) is False
    assert bound == {}
    with pytest.raises(FeatureUnavailable, match="unknown"):
        ensure("platform.nobody")
    assert done.returncode == 1
    assert "pip install aiohttp" in done.stderr


def test_a_feature_that_is_there_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.lazy_deps import ensure, ensure_and_bind

    from hermes_agent.compat import environment

    monkeypatch.setitem(environment.FEATURES, "tool.json", {"json": "json"})
    bound: dict[str, Any] = {}

    ensure("tool.json")
    assert ensure_and_bind("tool.json", lambda: {"dumps": json.dumps}, bound) is True
    assert bound == {"dumps": json.dumps}


def test_pure_functions_over_messages_and_bytes() -> None:
    from agent.image_routing import _sniff_mime_from_bytes
    from agent.memory_manager import sanitize_context
    from agent.message_content import flatten_message_text

    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}]

    assert flatten_message_text(parts) == "a\nb"
    assert (flatten_message_text(None), flatten_message_text("x"), flatten_message_text(parts, sep=" ")) == (
        "",
        "x",
        "a b",
    )
    assert sanitize_context("before <memory-context>\nold\n</memory-context>\nafter") == "before after"
    assert _sniff_mime_from_bytes(b"\x89PNG\r\n\x1a\n...") == "image/png"
    assert _sniff_mime_from_bytes(b"RIFF0000WEBPVP8 ") == "image/webp"
    assert _sniff_mime_from_bytes(b"text") is None


async def test_a_coroutine_for_a_dead_loop_is_closed() -> None:
    from agent.async_utils import consume_detached_task_result, safe_schedule_threadsafe

    async def work() -> int:
        return 5

    loop = asyncio.new_event_loop()
    loop.close()
    forgotten = work()
    assert safe_schedule_threadsafe(forgotten, loop) is None
    assert inspect.getcoroutinestate(forgotten) == inspect.CORO_CLOSED

    async def alive() -> int:
        future = safe_schedule_threadsafe(work(), asyncio.get_running_loop())
        assert future is not None
        failed = asyncio.ensure_future(_fail())
        await asyncio.wait([failed])
        consume_detached_task_result(failed)
        return await asyncio.wrap_future(future)

    assert await alive() == 5


async def _fail() -> None:
    raise ValueError("nobody waits for this")


def test_a_slot_makes_its_value_once() -> None:
    from plugins.plugin_utils import SingletonSlot

    slot: SingletonSlot[list[int]] = SingletonSlot(list)
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(slot.get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(value is slot.peek() for value in found)
    assert slot.reset() is found[0]
    assert slot.get(lambda: [1]) == [1]
    with pytest.raises(TypeError, match="needs a factory"):
        SingletonSlot().get()


def test_questions_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from hermes_cli.cli_output import (
        print_error,
        print_header,
        print_info,
        print_success,
        print_warning,
        prompt,
        prompt_yes_no,
    )
    from hermes_cli.curses_ui import curses_radiolist
    from hermes_cli.secret_prompt import masked_secret_prompt
    from hermes_cli.setup import prompt_choice

    typed(monkeypatch, "Ada", "", "what", "n", "", "2", "gre", "9", "q", "secret")
    assert prompt("Name") == "Ada"
    assert prompt("Name", "Bob") == "Bob"
    assert prompt_yes_no("Sure?") is False
    assert prompt_yes_no("Sure?", False) is False
    assert prompt_choice("Colour", ["red", "green"]) == 1
    assert curses_radiolist("Colour", ["red", "green"], searchable=True) == 1
    assert curses_radiolist("Colour", ["red", "green"], cancel_returns=-1) == -1
    assert masked_secret_prompt("Key: ") == "secret"
    assert curses_radiolist("Colour", ["red", "green"], selected=1) == 1  # the input has ended
    assert prompt("Name", "nobody") == "nobody"
    capsys.readouterr()
    for say in (print_header, print_info, print_success, print_warning, print_error):
        say("text")
    assert capsys.readouterr().out.split() == ["◆", "text", "text", "✓", "text", "⚠", "text", "✗", "text"]


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_cli.colors import Colors, color

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert color("x", Colors.RED) == "x"
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    assert color("x", Colors.RED, Colors.BOLD) == "\033[31m\033[1mx\033[0m"


def test_the_wizards_share_their_questions() -> None:
    import hermes_cli.cli_output as out
    import hermes_cli.gateway as gateway
    import hermes_cli.setup as setup

    assert gateway.prompt is setup.prompt is out.prompt
    assert callable(gateway.save_env_value)


def test_a_memory_provider_is_set_up_by_its_schema(
    host: Host, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from agent.memory_provider import MemoryProvider
    from hermes_cli.memory_setup import (
        _CANCELLED,
        _curses_select,
        _print_cancelled_setup,
        _write_env_vars,
        cmd_setup_provider,
    )

    saved: list[dict[str, Any]] = []

    class Notes(MemoryProvider):
        name = "notes"

        def is_available(self) -> bool:
            return True

        def initialize(self, session_id: str, **kwargs: Any) -> None: ...

        def get_config_schema(self) -> list[dict[str, Any]]:
            return [
                {"key": "place", "description": "Where"},
                {"key": "token", "description": "Token", "secret": True, "env_var": "NOTES_TOKEN"},
            ]

        def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
            saved.append(values)

    host.providers.add("memory", Notes(), owner="p")
    typed(monkeypatch, "here", "a-long-secret", "q")
    cmd_setup_provider("notes")

    assert saved == [{"place": "here"}]
    assert os.environ["NOTES_TOKEN"] == "a-long-secret"
    assert "provider: notes" in (home / "config.yaml").read_text()
    assert _curses_select("Which", [("a", "first"), "b"]) == _CANCELLED
    _write_env_vars(home / ".env", {"NOTES_TOKEN": "another-secret"})
    assert os.environ.pop("NOTES_TOKEN") == "another-secret"
    _print_cancelled_setup()
    assert "nothing was changed" in capsys.readouterr().out


def test_profiles_are_the_homes_beside_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_cli.profiles import (
        _get_default_hermes_home,
        get_active_profile_name,
        list_profiles,
        resolve_profile_env,
    )

    root = tmp_path / ".hermes"
    (root / "profiles" / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HERMES_HOME", str(root / "profiles" / "work"))

    assert get_active_profile_name() == "work"
    assert [(p.name, p.is_active) for p in list_profiles()] == [("default", False), ("work", True)]
    assert _get_default_hermes_home() == root
    assert resolve_profile_env("work") == str(root / "profiles" / "work")
    with pytest.raises(FileNotFoundError, match="no profile 'play'"):
        resolve_profile_env("play")


def test_processes_are_started_as_this_system_needs() -> None:
    from hermes_cli._subprocess_compat import windows_detach_popen_kwargs, windows_hide_flags

    assert windows_hide_flags() == 0
    assert windows_detach_popen_kwargs() == {"start_new_session": True}


def test_the_limits_of_results_are_those_of_the_config(home: Path) -> None:
    from tools.tool_output_limits import get_max_bytes, get_max_line_length, get_max_lines

    (home / "config.yaml").write_text("tool_output: {max_bytes: 4000}\n")

    assert (get_max_bytes(), get_max_lines(), get_max_line_length()) == (4000, 2000, 2000)


def test_memories_lie_in_the_home(home: Path) -> None:
    from tools.memory_tool import get_memory_dir

    assert get_memory_dir() == home / "memories"


def test_a_message_that_was_not_sent_says_why() -> None:
    from tools.send_message_tool import _error

    assert _error("no") == {"success": False, "error": "no"}


def test_no_plugin_hands_a_variable_to_commands_by_itself(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    from tools.env_passthrough import register_env_passthrough

    register_env_passthrough(["MY_KEY"])

    assert caplog.messages[-1].startswith("a plugin asks that commands see MY_KEY: add it to terminal.env_passthrough")


def test_commands_are_judged_by_the_operator_s_rules(host: Host, home: Path) -> None:
    from tools.approval import (
        _get_approval_mode,
        check_dangerous_command,
        detect_dangerous_command,
        detect_hardline_command,
        get_current_session_key,
    )

    assert detect_dangerous_command("ls") == (False, None, None)
    assert detect_dangerous_command("rm -r build") == (True, "recursive delete", "recursive delete")
    assert detect_hardline_command("rm -rf /")[0] is True
    assert check_dangerous_command("ls")["approved"] is True
    assert check_dangerous_command("rm -rf /", env_type="ssh")["message"].startswith("BLOCKED (hardline)")
    asked = check_dangerous_command("rm -r build")
    assert (asked["approved"], asked["status"], asked["pattern_key"]) == (
        False,
        "approval_required",
        "recursive delete",
    )
    assert check_dangerous_command("rm -r build", approval_callback=lambda *a: "once")["approved"] is True
    assert check_dangerous_command("rm -r build", approval_callback=lambda *a: "deny")["approved"] is False
    assert (_get_approval_mode(), get_current_session_key("none")) == ("smart", "none")
    (home / "config.yaml").write_text("approvals: {mode: off}\n")
    assert (_get_approval_mode(), check_dangerous_command("rm -r build")["approved"]) == ("off", True)


def test_who_is_asked_in_a_chat_answers_by_session(host: Host, tmp_path: Path) -> None:
    from tools.approval import (
        check_dangerous_command,
        get_current_session_key,
        has_blocking_approval,
        request_tool_approval,
        resolve_gateway_approval,
    )

    shown: list[str] = []

    def answering(choice: str, **more: Any) -> Callable[..., Any]:
        async def announce(question: Any, request: ApprovalRequest) -> None:
            shown.append(request.detail)
            assert has_blocking_approval("session-1")
            assert resolve_gateway_approval("session-1", choice, **more) == 1

        return announce

    def ask(announce: Callable[..., Any], question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        approver = QueuedApprover(host.asked, "session-1", announce)
        token = current_scope.set(scope(tmp_path, Approvals(approver, timeout_s=30)))
        try:
            assert get_current_session_key() == "session-1"
            return question()
        finally:
            current_scope.reset(token)

    allowed = ask(answering("once"), lambda: check_dangerous_command("rm -r build"))
    denied = ask(answering("deny", reason="not now"), lambda: request_tool_approval("mail", "too many", rule_key="r"))

    assert (allowed["approved"], denied["approved"]) == (True, False)
    assert "not now" in denied["message"]
    assert denied["pattern_key"] == "plugin_rule:r"
    assert shown == ["rm -r build", "too many"]
    assert not has_blocking_approval("session-1")
    assert resolve_gateway_approval("session-1", "once") == 0
    assert request_tool_approval("mail", "too many")["approved"] is False


def test_questions_to_a_chat_are_answered_by_id(host: Host) -> None:
    from tools.clarify_gateway import _entries, mark_awaiting_text, resolve_gateway_clarify

    question = host.questions.put("session-1", "Which?", choices=["a", "b"], question_id="q1")

    assert list(_entries) == ["q1"]
    assert _entries["q1"].awaiting_text is False
    assert (mark_awaiting_text("q1"), mark_awaiting_text("q2")) == (True, False)
    assert question.awaiting_text is True
    assert (resolve_gateway_clarify("q1", "b"), resolve_gateway_clarify("q1", "a")) == (True, False)
    assert question.wait(0) == "b"
    assert "q1" not in _entries


async def test_a_slash_command_waits_for_a_word(host: Host) -> None:
    from tools import slash_confirm

    async def forget(choice: str) -> str:
        return f"forgot {choice}"

    slash_confirm.register("s", "c1", "forget", forget)
    assert slash_confirm.get_pending("s") == {"confirm_id": "c1", "command": "forget"}
    assert await slash_confirm.resolve("s", "other", "once") is None
    assert await slash_confirm.resolve("s", "c1", "once") == "forgot once"
    assert await slash_confirm.resolve("s", "c1", "once") is None
    slash_confirm.register("s", "c2", "forget", lambda choice: 1 / 0)
    assert await slash_confirm.resolve("s", "c2", "once") == "/forget failed: division by zero"
    slash_confirm.register("s", "c3", "forget", forget)
    slash_confirm.clear("s")
    assert slash_confirm.get_pending("s") is None


def test_sessions_are_those_of_the_home(home: Path) -> None:
    import hermes_state
    from hermes_state import SessionDB, apply_wal_with_fallback

    db = SessionDB()
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    db.create_session("s-one", "cli", model="m", title="First")
    db.ensure_session("s-one")
    db.ensure_session("s-two", "telegram")
    db.append_message("s-one", "user", "what is in the box")
    db.append_message("s-one", "assistant", "", tool_calls=[call])
    db.append_message("s-one", "tool", "a cat", tool_call_id="c1", tool_name="look")
    db.append_message("s-two", "user", "a box")

    assert home / "state.db" == hermes_state.DEFAULT_DB_PATH
    assert (db.session_count(), db.session_count("cli"), db.message_count(), db.message_count("s-one")) == (2, 1, 4, 3)
    assert db.get_session("s-one")["source"] == "cli"  # type: ignore[index]
    assert db.get_session("absent") is None
    assert (db.resolve_session_id("s-o"), db.resolve_session_id("s-"), db.resolve_session_id("")) == (
        "s-one",
        None,
        None,
    )
    assert db.set_session_title("s-one", "Boxes") is True
    assert db.get_session_title("s-one") == "Boxes"
    assert db.get_messages_as_conversation("s-one") == [
        {"role": "user", "content": "what is in the box"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "a cat", "tool_call_id": "c1"},
    ]
    assert [m["role"] for m in db.get_messages("s-one", limit=1, offset=1)] == ["assistant"]
    assert [m["session_id"] for m in db.search_messages("BOX")] == ["s-two", "s-one"]
    assert [m["source"] for m in db.search_messages("box", source_filter=["cli"])] == ["cli"]
    assert db.search_messages("") == []
    assert [s["id"] for s in db.list_sessions_rich()] == ["s-two", "s-one"]
    assert db.search_sessions("cli")[0]["preview"] == "what is in the box"
    db.end_session("s-one", "cli_close")
    assert db.get_session("s-one")["end_reason"] == "cli_close"  # type: ignore[index]
    db.reopen_session("s-one")
    assert db.get_session("s-one")["end_reason"] is None  # type: ignore[index]
    assert len(db.export_session("s-one")["messages"]) == 3  # type: ignore[index]
    with pytest.raises(ValueError, match="role is 'robot'"):
        db.append_message("s-one", "robot", "x")
    with pytest.raises(PermissionError, match="read_only"):
        SessionDB(read_only=True).delete_session("s-one")
    assert (db.delete_session("s-one"), db.delete_session("s-one")) == (True, False)
    db.close()
    plain = sqlite3.connect(home / "plain.db")
    assert apply_wal_with_fallback(plain) == "wal"
    plain.close()


def test_sessions_are_asked_for_by_their_indexes(home: Path) -> None:
    from hermes_state import SessionDB

    db, asked = SessionDB(), []
    db.create_session("s-one", "cli")
    number = db.append_message("s-one", "user", "what is in the box")
    connection = db._db._connection
    connection.set_trace_callback(lambda sql: asked.append(sql) if sql.startswith("SELECT") else None)
    assert db.search_messages("box", ["cli"], ["cron"], ["user"])[0]["snippet"] == "what is in the >>>box<<<"
    assert db.resolve_session_id("s-o") == "s-one"
    assert db.append_message("s-one", "user", "and here") == number + 1
    assert [m["content"] for m in db.get_messages("s-one", limit=1, offset=1)] == ["and here"]
    assert (len(db.get_messages_as_conversation("s-one")), db.message_count("s-one")) == (2, 2)
    assert db.list_sessions_rich(limit=1)[0]["preview"] == "what is in the box"
    connection.set_trace_callback(None)
    assert len(asked) >= 6
    plans = [row["detail"] for sql in asked for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    walked = [s for s in plans if s.startswith(("SCAN m", "SCAN s", "USE TEMP B-TREE")) and "VIRTUAL" not in s]
    assert set(walked) <= {
        "SCAN s USING INDEX sessions_recent",
        "USE TEMP B-TREE FOR ORDER BY",
    }  # hits are put in order
    db.close()


def test_tools_are_listed_by_toolset(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    import toolsets
    from model_tools import get_tool_definitions, handle_function_call

    host.tools.register("roll", "dice", {"name": "roll", "parameters": {}}, lambda args, **kw: '{"n": 4}')
    toolsets.create_custom_toolset("games", "Games", tools=["chess"], includes=["dice", "games"])

    assert toolsets.resolve_toolset("dice") == ["roll"]
    assert toolsets.resolve_toolset("games") == ["chess", "roll"]
    assert "read_file" in toolsets.resolve_toolset("hermes-cli")
    assert "roll" not in toolsets.resolve_toolset("hermes-cli")
    assert set(toolsets.resolve_toolset("debugging")) >= {"terminal", "read_file"}
    assert toolsets.resolve_toolset("file_tools") == toolsets.resolve_toolset("file")
    assert toolsets.resolve_multiple_toolsets(["dice", "absent"]) == ["roll"]
    assert (toolsets.validate_toolset("dice"), toolsets.validate_toolset("absent")) == (True, False)
    assert toolsets.get_toolset("dice") == {"description": "Plugin toolset: dice", "tools": ["roll"], "includes": []}
    assert toolsets.get_toolset_info("games")["tool_count"] == 2  # type: ignore[index]
    assert {"dice", "games", "debugging"} <= set(toolsets.get_toolset_names()) & set(toolsets.TOOLSETS)
    names = [d["function"]["name"] for d in get_tool_definitions(["dice"])]
    assert names == ["roll"]
    assert "roll" not in [d["function"]["name"] for d in get_tool_definitions(disabled_toolsets=["dice"])]
    get_tool_definitions(["absent"])
    assert "there is no toolset 'absent'" in caplog.messages
    assert json.loads(handle_function_call("roll", {})) == {"n": 4}


def test_a_patched_dispatch_is_what_upstream_s_call_goes_through(host: Host) -> None:
    from model_tools import handle_function_call
    from tools.registry import registry

    registry.register("t", "x", {"name": "t"}, lambda args, **kw: '"real"')
    real = registry.dispatch
    registry.dispatch = lambda name, args, **kw: real(name, args, **kw).replace("real", "patched")

    assert handle_function_call("t", {}) == '"patched"'


def test_hooks_of_a_call_outside_a_conversation_are_told_the_ids_that_its_caller_gave(host: Host) -> None:
    from model_tools import handle_function_call

    told: list[dict[str, Any]] = []
    host.tools.register("roll", "dice", {"name": "roll", "parameters": {}}, lambda args, **kw: json.dumps(kw))
    for hook in ("pre_tool_call", "post_tool_call"):
        host.hooks.add(hook, lambda **kw: told.append(kw), "p")
    given = json.loads(handle_function_call("roll", {}, "task-1", "call-1", "s-1", "turn-1", "request-1", "do it"))

    ids = ("task_id", "tool_call_id", "session_id", "turn_id", "api_request_id")
    wanted = ["task-1", "call-1", "s-1", "turn-1", "request-1"]
    assert [[seen[name] for name in ids] for seen in told] == [wanted, wanted]
    assert (given["task_id"], given["session_id"], given["user_task"]) == ("task-1", "s-1", "do it")


async def test_what_hears_speaks_and_looks_says_when_there_is_nobody(host: Host, home: Path, tmp_path: Path) -> None:
    from tools.transcription_tools import transcribe_audio
    from tools.tts_tool import text_to_speech_tool
    from tools.vision_tools import vision_analyze_tool

    (tmp_path / "a.txt").write_text("text")

    assert transcribe_audio("a.ogg")["error"].startswith("nothing transcribes speech: ")
    assert json.loads(text_to_speech_tool("hello"))["error"].startswith("nothing speaks: ")
    seen = json.loads(await vision_analyze_tool(str(tmp_path / "a.txt"), "What?"))
    assert seen == {"error": f"ValueError: {tmp_path}/a.txt is no picture", "success": False}


def test_chosen_providers_hear_and_speak(host: Host, home: Path) -> None:
    from agent.transcription_provider import TranscriptionProvider
    from agent.tts_provider import TTSProvider
    from tools.transcription_tools import transcribe_audio
    from tools.tts_tool import text_to_speech_tool

    class Ear(TranscriptionProvider):
        name = "ear"

        def transcribe(self, file_path: str, **options: Any) -> dict[str, Any]:
            return {"success": True, "transcript": f"heard {file_path}", "provider": "ear"}

    class Mouth(TTSProvider):
        name = "mouth"

        def synthesize(self, text: str, output_path: str, **options: Any) -> str:
            Path(output_path).write_text(text)
            return output_path

    host.providers.add("transcription", Ear(), owner="p")
    host.providers.add("tts", Mouth(), owner="p")
    host.config.values["stt"]["provider"] = "ear"
    host.config.values["tts"]["provider"] = "mouth"

    assert transcribe_audio("a.ogg") == {"success": True, "transcript": "heard a.ogg", "provider": "ear"}
    spoken = json.loads(text_to_speech_tool("hello"))
    assert (spoken["success"], spoken["provider"], Path(spoken["file_path"]).read_text()) == (True, "mouth", "hello")


def test_models_are_listed_and_a_plugin_may_put_its_own_list_in_place(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_cli import models
    from providers import ProviderProfile

    class Near(ProviderProfile):
        def fetch_models(self, **options: Any) -> list[str]:
            return ["asked"]

    host.model_providers.register(Near(name="near", fallback_models=("one", "two"), env_vars=("NEAR_KEY",)), "p")
    monkeypatch.delenv("NEAR_KEY", raising=False)

    assert models._PROVIDER_MODELS["near"] == ["one", "two"]
    assert models.cached_provider_model_ids("near") == models.provider_model_ids("near") == ["one", "two"]
    assert models.get_default_model_for_provider("near") == "one"
    models._PROVIDER_MODELS["far"] = ["three"]
    assert models.provider_model_ids("far") == ["three"]
    monkeypatch.setenv("NEAR_KEY", "made-up-value")
    assert (
        models.provider_model_ids("near", force_refresh=True) == models.cached_provider_model_ids("near") == ["asked"]
    )
    models.clear_provider_models_cache()
    assert models.cached_provider_model_ids("near") == ["one", "two"]


def test_an_endpoint_in_the_code_of_a_plugin_is_refused() -> None:
    from run_agent import AIAgent

    with pytest.raises(
        ValueError, match=r"AIAgent\(base_url, api_key=…\) is not taken: put the endpoint into `providers`"
    ):
        AIAgent(base_url="https://x.invalid", api_key="k")


def test_an_agent_of_a_plugin_s_answers(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from run_agent import AIAgent

    from hermes_agent.core.messages import TurnFinished, Usage

    logging.getLogger(__name__).debug("the model is scripted below")
    opened: list[dict[str, Any]] = []

    class Talk:
        session_id, history = "s1", ()

        async def turn(self, said: str) -> Any:
            yield TurnFinished(f"you said {said}", "stop", Usage(3, 4), "m")

        def interrupt(self) -> None: ...

        async def close(self, reason: str) -> None: ...

    async def open_(session_id: str | None, **options: Any) -> Talk:
        opened.append({"session_id": session_id, **options})
        return Talk()

    monkeypatch.setattr(host.agent, "open", open_)
    agent = AIAgent(model="m", provider="p", platform="cron", skip_memory=True, quiet_mode=True)

    assert agent.chat("hi") == "you said hi"
    result = agent.run_conversation("again", "Be brief.", [{"role": "user", "content": "before"}])
    assert (result["final_response"], result["completed"], result["output_tokens"]) == ("you said again", True, 4)
    assert [o["session_id"] for o in opened] == [None, "s1"]
    assert (opened[0]["model"], opened[0]["platform"], opened[1]["instructions"]) == ("p/m", "cron", "Be brief.")
