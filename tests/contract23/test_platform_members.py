"""Chapters 8.1, 8.4 and 9.3 of the plugin contract of 0.23: keywords of platforms, fields of messages, the registry."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_agent.adapters.config import Platform, PlatformConfig, PlatformEntry
from hermes_agent.adapters.events import MessageEvent, SessionSource, build_session_key
from hermes_agent.adapters.media_references import validate_media_delivery_path
from hermes_agent.adapters.registry import GatewayConfig, PlatformRegistry
from hermes_agent.adapters.sender import ToolPreview
from hermes_agent.compat import import_hook
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.caches import CheckCache, no_cache_check_fn
from hermes_agent.core.errors import UserError
from hermes_agent.delivery import ReplyTarget, SendOutcome
from hermes_agent.gateway.access import AccessControl, PairingStore
from hermes_agent.gateway.chat_messages import (
    PlatformDelivery,
    from_payload,
    message_limit,
    parse_target,
    split_text,
    to_payload,
)
from hermes_agent.gateway.chat_turn import tier_progress
from hermes_agent.testing import plugin_host
from hermes_agent.testing.chat import MemoryAdapter, chat_host, memory_platform


@pytest.fixture
def upstream_names() -> Iterator[None]:
    import_hook.install()
    yield
    import_hook.uninstall()


def source(**fields: Any) -> SessionSource:
    return SessionSource(Platform.TELEGRAM, "c1", **fields)


# -- keywords of register_platform -----------------------------------------------------------------------------


@pytest.mark.parametrize("helps", [True, False])
def test_an_adapter_is_made_after_ensure_deps_fn_where_the_passive_check_says_no(helps: bool) -> None:
    calls: list[str] = []
    registry = PlatformRegistry()

    def ensure() -> bool:
        calls.append("ensure")
        return helps

    entry = PlatformEntry("acme", "Acme", lambda config: "adapter", lambda: False, ensure_deps_fn=ensure)
    registry.register(entry)
    assert registry.availability("acme").ok is False
    assert calls == []  # a look at the platform installs nothing
    made = registry.create_adapter("acme", PlatformConfig())
    assert (made, calls) == ("adapter" if helps else None, ["ensure"])


def test_a_platform_reads_and_checks_the_target_of_a_delivery() -> None:
    def parse(text: str) -> tuple[str, str | None] | None:
        return (text.removeprefix("@"), "t1") if text.startswith("@") else None

    def check(chat: str) -> bool | str:
        return "no such handle" if chat == "bob" else chat != "eve"

    entry = PlatformEntry(
        "acme", "Acme", lambda c: None, lambda: True, parse_target_ref_fn=parse, validate_target_ref_fn=check
    )
    read = lambda text: parse_target(text, GatewayConfig(), {"acme": entry}, {})  # noqa: E731
    assert read("acme:@ann") == ReplyTarget("acme", "ann", "t1")
    assert read("acme:room:7") == ReplyTarget("acme", "room", "7")
    with pytest.raises(UserError, match="no such handle"):
        read("acme:@bob")
    with pytest.raises(UserError, match="is no target of platform acme"):
        read("acme:eve")


def test_trusted_inbound_admits_users_but_no_bots_and_is_refused_for_a_core_platform() -> None:
    entry = PlatformEntry("acme", "Acme", lambda c: None, lambda: True, trusted_inbound=True)
    access = AccessControl(lambda name: entry, PairingStore(), {})
    assert access.admit(source(user_id="u"), PlatformConfig()).by == "platform"
    assert not access.admit(source(user_id="u", is_bot=True), PlatformConfig()).is_allowed
    found: list[Any] = []

    def register(ctx: Any) -> None:
        try:
            ctx.register_platform("slack", "Slack", lambda c: None, lambda: True, trusted_inbound=True)
        except ValueError as exc:
            found.append(str(exc))
        found.append(
            ctx.register_platform(
                "acme",
                "Acme",
                lambda c: None,
                lambda: True,
                send_message_handler=print,
                shared_env_prefixes=("ACME_",),
                display_tier="low",
            )
        )

    with plugin_host(register) as host:
        text, handle = found
        assert "trusted_inbound is for the platforms of plugins" in text
        assert handle.active
        notes = host.notes
    assert [note.split(" has no effect")[0] for note in notes if "no effect" in note] == [
        "platform `acme`: send_message_handler",
        "platform `acme`: shared_env_prefixes",
    ]


def test_a_display_tier_shows_never_more_than_configured() -> None:
    shown = {tier: tier_progress(tier, "all") for tier in ("", "high", "medium", "low", "minimal")}
    assert shown == {"": "all", "high": "all", "medium": "new", "low": "off", "minimal": "off"}
    assert tier_progress("medium", "off") == "off"


# -- messages --------------------------------------------------------------------------------------------------


def test_a_message_without_gateway_control_is_no_command_before_and_after_its_storage() -> None:
    event = MessageEvent("/new", source=source(), allow_gateway_control=False, reply_anchor_override="m7")
    again = from_payload(to_payload(event))
    for one in (event, again):
        assert (one.is_command(), one.get_command(), one.get_command_args()) == (False, None, "/new")
        assert one.anchor == "m7"
    assert MessageEvent("/new", source=source(), message_id="m1").get_command() == "new"


def test_a_message_without_gateway_control_reaches_the_model_as_text() -> None:
    config = {"platforms": {"memorychat": {"allow_all_users": True, "enabled": True}}}
    with chat_host(memory_platform(), config=config, model=["as text"]) as chat:
        adapter = chat.adapter
        source = SessionSource(Platform("memorychat"), "room", user_id="ann")
        event = MessageEvent("/new", source=source, message_id="m1", allow_gateway_control=False)
        chat.host.host.bridge.wait_plugin(adapter.handle_message(event))
        with adapter.changed:
            assert adapter.changed.wait_for(lambda: any("as text" in sent.text for sent in adapter.sent), 60)


def test_a_channel_message_and_its_future_thread_have_one_session() -> None:
    opening = source(chat_type="group", user_id="u", prospective_thread_id="m9")
    later = source(chat_type="group", user_id="u", thread_id="m9")
    assert build_session_key(opening) == build_session_key(later)
    rejected = source(profile_route_rejected=True)
    assert "profile_route_rejected" not in rejected.to_dict()
    assert SessionSource.from_dict(rejected.to_dict()).profile_route_rejected is False


# -- members of an adapter -------------------------------------------------------------------------------------


class Relay(MemoryAdapter):
    """An adapter with a limit for each chat."""

    def max_message_length_for_chat(self, chat_id: str) -> int:
        return {"narrow": 64}.get(chat_id, 1000)

    def message_len_fn_for_chat(self, chat_id: str) -> Any:
        return lambda text: 2 * len(text)

    def format_tool_preview(self, preview: ToolPreview) -> str:
        return f"<{preview.text}>"


def test_the_members_of_the_base_class_have_working_defaults(upstream_names: None) -> None:
    with chat_host(memory_platform(), config={}) as chat:
        adapter = chat.adapter
        assert (adapter.max_message_length_for_chat("x"), adapter.message_len_fn_for_chat("x")("abc")) == (200, 3)
        assert (adapter.send_path_degraded, adapter.serves_profile_prefix) == (False, False)
        assert adapter.supports_exec_approval_buttons is False
        assert adapter.format_tool_preview(ToolPreview("ls", None)) == "ls"
        adapter._mark_connected(listener_base="http://127.0.0.1:1/")
        run = chat.host.host.bridge.wait_plugin
        assert run(adapter.send_exec_approval("room", "rm x", "key", allow_permanent=True)).success is False
        assert run(adapter.emit_media_warning("room", "not sent", caption="cap", reply_to="m1")).success
        sent = adapter.sent[-1]
        assert (sent.text, sent.reply_to) == ("cap\nnot sent", "m1")
        assert run(adapter.send_multiple_images("room", [("https://x.test/a.png", "a")])).success
        assert adapter._is_sender_authorized("u", is_bot=True, thread_id="t") is False
        assert adapter.validate_media_delivery_path("/nowhere", session_key="k") is None
        assert validate_media_delivery_path("/nowhere", session_key="k") is None


def test_limits_of_a_chat_split_its_messages() -> None:
    relay = Relay.__new__(Relay)
    assert [message_limit(relay, 0, chat) for chat in ("narrow", "wide", "")] == [64, 1000, 200]
    assert len(split_text("word " * 20, relay, chat="narrow")) > len(split_text("word " * 20, relay, chat="wide"))


async def test_nothing_is_sent_while_the_send_path_is_degraded() -> None:
    begun: list[str] = []

    async def begin() -> None:
        begun.append("begun")

    adapter = Relay.__new__(Relay)
    adapter._send_path_degraded = True
    outlet = PlatformDelivery(SimpleNamespace(adapter=adapter), None)  # type: ignore[arg-type]
    outcome = await outlet.deliver(SimpleNamespace(), begin)  # type: ignore[arg-type]
    assert "would not arrive" in outcome.reason
    assert (begun, outcome == SendOutcome.not_attempted(outcome.reason, 5.0)) == ([], True)


def test_a_reaction_reaches_event_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"platforms": {"memorychat": {"allow_all_users": True, "enabled": True}}}
    with chat_host(memory_platform(), config=config) as chat:
        seen: list[tuple[str, Any]] = []
        monkeypatch.setattr(chat.gateway._events, "emit", lambda event, context: seen.append((event, context)))
        run = chat.host.host.bridge.wait_plugin
        run(chat.adapter._reaction_handler({"event_type": "reaction_added", "reaction": "eyes"}))
        run(chat.adapter._reaction_handler({"event_type": "reaction_removed", "reaction": "eyes"}))
    assert [event for event, _ in seen] == ["reaction:added", "reaction:removed"]
    assert seen[0][1]["platform"] == "memorychat"


# -- the registry and approvals --------------------------------------------------------------------------------


def test_the_registry_takes_a_scope_and_undoes_a_registration(upstream_names: None) -> None:
    schema = {"name": "acme", "description": "d", "parameters": {"type": "object"}}
    found: dict[str, Any] = {}

    def register(ctx: Any) -> None:
        registry = importlib.import_module("tools.registry").registry
        before = registry.snapshot_registration("acme", scope=None)
        registry.register("acme", "acme", schema, lambda args, **kw: "one", scope="home")
        one = registry.snapshot_registration("acme", scope="home")
        registry.register("acme", "acme", schema, lambda args, **kw: "two", override=True, scope=None)
        two = registry.get_entry("acme", scope=None)
        found["stale"] = registry.restore_registration("acme", one, before)
        found["undone"] = registry.restore_registration("acme", two, one)
        found["back"] = registry.get_entry("acme") is one
        found["listed"] = one in registry.get_all_entries()
        found["gone"] = registry.restore_registration("acme", one, None) and registry.get_entry("acme") is None
        with pytest.raises(ValueError, match="schema must be a dict, got list"):
            registry.register("acme", "acme", [], print)
        registry.deregister("acme", scope=None)
        tools = importlib.import_module("tools.registry")
        found["scope"] = tools.plugin_scope_for_callable(importlib.import_module("json").dumps)

    with plugin_host(register):
        assert found == {
            "stale": False,
            "undone": True,
            "back": True,
            "listed": True,
            "gone": True,
            "scope": None,
        }


def test_a_check_without_cache_is_called_each_time() -> None:
    answers = [True, False, True]
    check = no_cache_check_fn(lambda: answers.pop(0))
    cache = CheckCache()
    assert [cache.ask(check), cache.ask(check), cache.ask(check)] == [True, False, True]


def test_a_pending_approval_is_listed_acknowledged_answered_by_id_and_withdrawn(upstream_names: None) -> None:
    with plugin_host(lambda ctx: None) as host:
        approval = importlib.import_module("tools.approval")
        waiting = host.host.asked
        first, second = waiting.put("chat", "run: ls"), waiting.put("chat", "run: rm")
        for question, command in ((first, "ls"), (second, "rm")):
            question.request = ApprovalRequest("terminal", "run a command", command, "rule")
        listed = approval.list_gateway_approvals("chat")
        assert [(row["request_id"], row["command"]) for row in listed] == [(first.id, "ls"), (second.id, "rm")]
        assert approval.get_pending_gateway_approval("chat") == listed[0]
        assert approval.pending_gateway_approval_count("chat") == 2
        assert approval.ack_gateway_approval("chat", second.id)
        assert not approval.ack_gateway_approval("other", second.id)
        assert approval.resolve_gateway_approval("other", "once", request_id=second.id) == 0
        assert approval.resolve_gateway_approval("chat", "once", request_id=second.id) == 1
        assert second.wait(1) == "once"
        assert approval.withdraw_gateway_approval("chat", first.id, "no client") is True
        assert "withdrawn (no client)" in first.wait(1).reason
        assert approval.withdraw_gateway_approval("chat", first.id, "no client") is False
