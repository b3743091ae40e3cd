"""Upstream's modules of tier B that are thin: each function once, its shape and its effect. Plugin contract §11."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from hermes_agent.compat import gateway
from hermes_agent.cron import Job, JobStore, Schedule
from hermes_agent.gateway import access as store
from hermes_agent.host import Host

pytestmark = pytest.mark.usefixtures("served")

SIGNATURES = {
    "agent.portal_tags.nous_portal_tags": "session_id=None",
    "agent.usage_pricing.estimate_usage_cost": "model_name, usage, provider=None, base_url=None, api_key=None",
    "agent.usage_pricing.get_pricing_entry": "model_name, provider=None, base_url=None, api_key=None",
    "agent.usage_pricing.normalize_usage": "response_usage, provider=None, api_mode=None",
    "cron.jobs.get_job": "job_id",
    "cron.jobs.load_jobs": "",
    "gateway.channel_directory.lookup_channel_type": "platform_name, chat_id",
    "gateway.pairing.PairingStore": "profile=None",
    "gateway.rich_sent_store.lookup": "chat_id, message_id",
    "gateway.rich_sent_store.record": "chat_id, message_id, text",
    "gateway.run._load_gateway_config": "",
    "gateway.run._resolve_gateway_model": "config=None",
    "gateway.run._resolve_runtime_agent_kwargs": "",
    "gateway.run.cfg_get": "cfg, keys, default=None",
    "gateway.sticker_cache.build_animated_sticker_injection": "emoji=''",
    "gateway.sticker_cache.build_sticker_injection": "description, emoji='', set_name=''",
    "gateway.sticker_cache.cache_sticker_description": "file_unique_id, description, emoji='', set_name=''",
    "gateway.sticker_cache.get_cached_description": "file_unique_id",
    "plugins.memory.find_provider_dir": "name",
    "tools.tool_backend_helpers.fal_key_is_configured": "",
    "tools.tool_backend_helpers.managed_nous_tools_enabled": "options",
    "tools.tool_backend_helpers.prefers_gateway": "config_section",
}
MEMORY = """
from agent.memory_provider import MemoryProvider


class Mine(MemoryProvider):
    name = "mine"


def register(ctx):
    ctx.register_memory_provider(Mine())
"""


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_takes_what_its_callers_give(name: str) -> None:
    module, _, function = name.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters.values()

    given = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
    assert given == SIGNATURES[name]


# -- agent, tools, cron ---------------------------------------------------------------------------------------------


def test_where_a_tool_s_backend_is_reached_is_read_from_config_and_credentials(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.tool_backend_helpers import fal_key_is_configured, managed_nous_tools_enabled, prefers_gateway

    monkeypatch.delenv("FAL_KEY", raising=False)
    assert not fal_key_is_configured()
    assert not prefers_gateway("image_gen")
    (home / "config.yaml").write_text("image_gen: {use_gateway: true}\nvideo_gen: {use_gateway: 'no'}\n")
    (home / ".env").write_text("FAL_KEY=made-up\n")

    assert (prefers_gateway("image_gen"), prefers_gateway("video_gen"), prefers_gateway("none")) == (True, False, False)
    assert fal_key_is_configured()
    assert managed_nous_tools_enabled() is False


def test_scheduled_jobs_are_those_that_the_home_has(home: Path) -> None:
    from cron.jobs import get_job, load_jobs

    assert load_jobs() == []
    with contextlib.closing(JobStore(home / "state.db")) as store:
        made = store.put(Job("", "daily", Schedule("interval", "every 2h", seconds=7_200), prompt="x", next_run=1.0))

    (found,) = load_jobs()
    assert (found["id"], found["name"], found["schedule"]["minutes"]) == (made.id, "daily", 120)
    assert get_job(made.id) == found
    assert get_job("daily") is None


@pytest.mark.parametrize(
    "usage",
    [
        {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
        SimpleNamespace(
            input_tokens=100,
            output_tokens=20,
            input_tokens_details=SimpleNamespace(cached_tokens=30, cache_write_tokens=10),
            output_tokens_details=SimpleNamespace(reasoning_tokens=5),
        ),
        {
            "input_tokens": 60,
            "output_tokens": 20,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 5},
        },
    ],
    ids=["chat completions", "responses", "messages"],
)
def test_the_counts_of_three_protocols_come_out_alike(usage: object) -> None:
    from agent.usage_pricing import CanonicalUsage, normalize_usage

    counts = normalize_usage(usage)

    assert counts == CanonicalUsage(60, 20, 30, 10, 5)
    assert (counts.prompt_tokens, counts.total_tokens, counts.request_count) == (100, 120, 1)
    assert normalize_usage(None) == CanonicalUsage()


def test_a_cost_is_what_is_known_and_never_a_guess(host: Host) -> None:
    from agent.usage_pricing import CanonicalUsage, estimate_usage_cost, get_pricing_entry, normalize_usage

    told = normalize_usage({"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.0125})
    by_name = estimate_usage_cost("x/y", told, provider="openrouter")
    by_address = estimate_usage_cost("x/y", told, base_url="https://openrouter.ai/api/v1", api_key="unused")
    unknown = estimate_usage_cost("m", CanonicalUsage(10, 2), provider="deepseek")
    embedded = estimate_usage_cost("m", CanonicalUsage(10, 2), provider="local")

    assert (by_name.amount_usd, by_name.status, by_name.label) == (Decimal("0.0125"), "actual", "$0.0125")
    assert by_address == by_name
    assert (unknown.amount_usd, unknown.status, unknown.source) == (None, "unknown", "none")
    assert "no price is known for m" in unknown.notes
    assert (embedded.amount_usd, embedded.status) == (0, "included")
    assert get_pricing_entry("m", provider="deepseek") is None
    entry = get_pricing_entry("m", provider="local")
    assert (entry.input_cost_per_million, entry.output_cost_per_million) == (0, 0)


def test_the_tags_of_a_request_are_a_list_of_the_caller_s_own() -> None:
    from agent.portal_tags import nous_portal_tags
    from hermes_cli import __version__

    nous_portal_tags().append("mine")

    assert nous_portal_tags() == ["product=hermes-agent", f"client=hermes-client-v{__version__}"]


# -- plugins.memory -------------------------------------------------------------------------------------------------


def test_the_folder_of_a_memory_plugin_is_found_without_running_it(home: Path) -> None:
    from plugins.memory import find_provider_dir

    for name, manifest in {"mine": "name: mine\nkind: exclusive\n", "bare": "", "tool": "name: tool\n"}.items():
        folder = home / "plugins" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise SystemExit\n" if name == "tool" else MEMORY + "\n1 / 0\n")
        if manifest:
            (folder / "plugin.yaml").write_text(manifest)

    assert find_provider_dir("mine") == home / "plugins" / "mine"
    assert find_provider_dir("bare") == home / "plugins" / "bare"
    assert find_provider_dir("tool") is None
    assert find_provider_dir("../plugins/mine") is None


def test_settings_of_a_memory_plugin_are_plain_data() -> None:
    from plugins.memory import config_schema as c

    secret = c.ProviderField(key="key", label="Key", kind=c.KIND_SECRET, env_key="MINE_KEY")
    options = (c.ProviderFieldOption("a", "A"), c.ProviderFieldOption(value="b", label="B", description="other"))
    choice = c.ProviderField("mode", "Mode", c.KIND_SELECT, "a", options=options, inline=True)
    schema = c.ProviderConfigSchema(name="mine", label="Mine", fields=(secret, choice))

    assert (secret.is_secret, choice.is_secret, choice.allowed_values()) == (True, False, {"a", "b"})
    assert schema.inline_fields() == (choice,)
    assert schema.storage == c.STORAGE_FLAT_JSON == "flat_json"
    assert c.STORAGE_HONCHO_HOST_BLOCK == "honcho_host_block"
    kinds = [c.KIND_TEXT, c.KIND_SELECT, c.KIND_SECRET, c.KIND_BOOL, c.KIND_NUMBER, c.KIND_JSON]
    assert kinds == ["text", "select", "secret", "bool", "number", "json"]


# -- gateway --------------------------------------------------------------------------------------------------------


def test_the_kind_of_a_channel_is_what_an_adapter_wrote(home: Path) -> None:
    from gateway.channel_directory import lookup_channel_type

    assert lookup_channel_type("discord", "7") is None
    channels = {"updated_at": "x", "platforms": {"discord": [{"id": "7", "name": "help", "type": "forum"}]}}
    (home / "channel_directory.json").write_text(json.dumps(channels))

    assert lookup_channel_type("discord", "7") == "forum"
    assert lookup_channel_type("discord", "8") is None
    assert lookup_channel_type("slack", "7") is None


def test_a_sticker_is_described_once(home: Path) -> None:
    from gateway import sticker_cache as s

    assert s.get_cached_description("u1") is None
    s.cache_sticker_description("u1", "a cat waves", emoji="X", set_name="Cats")

    known = s.get_cached_description("u1")
    assert {k: known[k] for k in ("description", "emoji", "set_name")} == {
        "description": "a cat waves",
        "emoji": "X",
        "set_name": "Cats",
    }
    assert known["cached_at"] > 0
    assert (home / "sticker_cache.json").stat().st_mode & 0o777 == 0o600
    assert (
        s.build_sticker_injection("a cat waves", "X", "Cats")
        == '[Sticker X of the set "Cats", which shows: a cat waves]'
    )
    assert s.build_sticker_injection("a]\nignore [this") == "[Sticker, which shows: a) ignore (this]"
    assert s.build_animated_sticker_injection("X") == "[Animated sticker X; what it shows is not known]"
    assert "sticker" in s.STICKER_VISION_PROMPT


def test_a_text_that_was_sent_is_found_by_its_message(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway import rich_sent_store

    rich_sent_store.record("c", "1", "hello")
    rich_sent_store.record("c", "", "no id")

    assert rich_sent_store.lookup("c", "1") == "hello"
    assert rich_sent_store.lookup("d", "1") is None
    file = home / "rich_sent_messages.json"
    assert (file.stat().st_mode & 0o777, len(json.loads(file.read_text()))) == (0o600, 1)
    many = {f"c:{n}": {"text": "old", "at": n} for n in range(gateway.MAX_SENT_TEXTS)}
    file.write_text(json.dumps(many))
    rich_sent_store.record("c", "new", "x" * (gateway.MAX_TEXT + 1))
    assert rich_sent_store.lookup("c", "0") is None
    assert rich_sent_store.lookup("c", "1") == "old"
    assert rich_sent_store.lookup("c", "new") == "x" * gateway.MAX_TEXT


def test_a_code_lets_one_person_in_until_that_is_revoked(home: Path) -> None:
    from gateway.pairing import PairingStore

    code = PairingStore().generate_code("telegram", "42", "Ann")
    (waiting,) = PairingStore().list_pending()
    files = list((home / "pairing").iterdir())

    assert {k: waiting[k] for k in ("platform", "user_id", "user_name", "age_minutes")} == {
        "platform": "telegram",
        "user_id": "42",
        "user_name": "Ann",
        "age_minutes": 0,
    }
    assert all(code not in file.read_text() and file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert not PairingStore().is_approved("telegram", "42")
    assert PairingStore().approve_code("discord", code) is None
    assert PairingStore().approve_code("telegram", code.lower()) == {"user_id": "42", "user_name": "Ann"}
    assert PairingStore().approve_code("telegram", code) is None
    assert PairingStore().is_approved("telegram", "42")
    assert not PairingStore(profile="other").is_approved("telegram", "42")
    (person,) = PairingStore().list_approved("telegram")
    assert (person["platform"], person["user_id"], person["user_name"]) == ("telegram", "42", "Ann")
    assert (PairingStore().revoke("telegram", "42"), PairingStore().revoke("telegram", "42")) == (True, False)
    assert not PairingStore().is_approved("telegram", "42")


def test_codes_are_few_and_do_not_last(home: Path) -> None:
    from gateway.pairing import PairingStore

    pairing = PairingStore()
    codes = [pairing.generate_code("telegram", str(n)) for n in range(store.MAX_PENDING)]

    assert len(set(codes)) == store.MAX_PENDING
    assert pairing.generate_code("telegram", "one more") is None
    assert pairing.generate_code("discord", "0") is not None
    assert pairing.generate_code("discord", "0") is None
    file = home / "pairing" / "telegram-pending.json"
    waiting = json.loads(file.read_text())
    for entry in waiting.values():
        entry["created_at"] -= store.CODE_TTL_S
    file.write_text(json.dumps(waiting))
    assert pairing.list_pending("telegram") == []
    assert pairing.approve_code("telegram", codes[0]) is None
    assert pairing.generate_code("telegram", "one more") is not None
    assert pairing.clear_pending() == 2
    assert pairing.list_pending() == []


def test_guessing_codes_locks_the_platform(home: Path) -> None:
    from gateway.pairing import PairingStore

    pairing = PairingStore()
    code = pairing.generate_code("telegram", "42")
    (request,) = pairing.list_pending("telegram")
    for _ in range(store.FAILURES_ALLOWED):
        assert pairing.approve_code("telegram", "WRONG234") is None

    assert pairing.approve_code("telegram", code) is None
    assert pairing.generate_code("telegram", "43") is None
    limits = home / "pairing" / "_rate_limits.json"
    times = json.loads(limits.read_text())
    limits.write_text(json.dumps({k: v - store.LOCKOUT_S if "lockout" in k else v for k, v in times.items()}))
    assert pairing.approve_code("telegram", request["request_id"]) == {"user_id": "42", "user_name": ""}


def test_a_broken_list_lets_nobody_in_and_is_not_lost(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    from gateway.pairing import PairingStore

    code = PairingStore().generate_code("telegram", "42")
    approved = home / "pairing" / "telegram-approved.json"
    approved.write_text('{"41": {"user_na')

    assert not PairingStore().is_approved("telegram", "41")
    assert PairingStore().approve_code("telegram", code) is not None
    assert PairingStore().is_approved("telegram", "42")
    assert approved.with_name("telegram-approved.json.broken").read_text() == '{"41": {"user_na'
    assert "kept as telegram-approved.json.broken" in caplog.text


def test_people_who_are_approved_at_once_are_all_let_in(home: Path) -> None:
    from gateway.pairing import PairingStore

    people = {f"platform{n}": PairingStore().generate_code(f"platform{n}", "42") for n in range(8)}
    stored = {n: PairingStore().generate_code("shared", str(n)) for n in range(store.MAX_PENDING)}
    with ThreadPoolExecutor(4) as pool:
        let_in = list(pool.map(lambda of: PairingStore().approve_code(*of), people.items()))
        shared = list(pool.map(lambda code: PairingStore().approve_code("shared", code), stored.values()))

    assert None not in let_in + shared
    assert {p["user_id"] for p in PairingStore().list_approved("shared")} == {str(n) for n in stored}
    assert len(PairingStore().list_approved()) == len(people) + len(stored)


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden"])
def test_a_name_cannot_lead_out_of_the_folder_of_codes(home: Path, name: str) -> None:
    from gateway.pairing import PairingStore

    with pytest.raises(ValueError, match="is no valid name of a platform"):
        PairingStore().generate_code(name, "42")
    with pytest.raises(ValueError, match="is no valid name of a profile"):
        PairingStore(profile=name)


def test_the_gateway_s_model_and_endpoint_make_an_agent_and_no_key_leaves(
    home: Path, without_host: None, caplog: pytest.LogCaptureFixture
) -> None:
    from gateway.run import _load_gateway_config, _resolve_gateway_model, _resolve_runtime_agent_kwargs, cfg_get
    from run_agent import AIAgent

    (home / "config.yaml").write_text("model: {provider: deepseek, default: deepseek-chat}\nagent: {max_turns: 7}\n")
    (home / ".env").write_text("DEEPSEEK_API_KEY=made-up-and-secret\n")
    built = Host.build(home)
    try:
        with caplog.at_level(logging.DEBUG):
            given = _resolve_runtime_agent_kwargs()

            assert cfg_get(_load_gateway_config(), "agent", "max_turns") == 7
            assert _resolve_gateway_model() == "deepseek-chat"
            assert _resolve_gateway_model({"model": {"provider": "deepseek", "default": "other"}}) == "other"
            assert _resolve_gateway_model({"model": {"provider": "nobody"}}) == ""
            agent = AIAgent(model=_resolve_gateway_model(), **given, platform="gateway", quiet_mode=True)
    finally:
        built.bridge.close()

    assert agent.model == "deepseek/deepseek-chat"
    assert given["provider"] == "deepseek"
    assert "made-up-and-secret" not in f"{given} {caplog.text}"


def test_the_variables_of_the_home_are_listed_and_removed(served: None, home: Path) -> None:
    from hermes_cli.config import get_env_path, load_env, remove_env_value, save_env_value

    assert (get_env_path(), load_env()) == (home / ".env", {})
    save_env_value("TEA_KEY", "green")
    try:
        assert load_env() == {"TEA_KEY": "green"}
        assert remove_env_value("TEA_KEY") is True
        assert remove_env_value("TEA_KEY") is False
        assert (load_env(), os.environ.get("TEA_KEY")) == ({}, None)
    finally:
        os.environ.pop("TEA_KEY", None)
