"""Tool search: plugin contract §4.9."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builtin_context import context_of
from hermes_agent.core.messages import ToolCall
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.testing import PluginHost, call, plugin_host
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.tool_search import SEARCH_TOOLS, SearchSettings, ToolSearch

WORDS = ["invoice", "weather", "ticket", "photo", "train"]


def plugin(toolset: str, *names: str, weight: int = 40, said: list[Any] | None = None) -> Callable[[Any], None]:
    def register(ctx: Any) -> None:
        for name in names:
            schema = {
                "name": name,
                "description": f"Works with {name.replace('_', ' ')}. " + "x" * weight * 4,
                "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
            }

            def handler(args: dict[str, Any], *, tool: str = name, **kwargs: Any) -> str:
                if said is not None:
                    said.append((tool, dict(args), kwargs))
                return json.dumps({"ran": tool, **args})

            ctx.register_tool(name, toolset, schema, handler)

    register.__name__ = toolset
    return register


MANY = plugin("office", *(f"{verb}_{word}" for word in WORDS for verb in ("find", "make", "send")), weight=500)
SMALL = plugin("sky", "look_up", weight=10)
ON = {"tools": {"tool_search": {"threshold_tokens": 2_000}}}


def names(host: PluginHost) -> list[str]:
    return [d["function"]["name"] for d in host.host.agent.definitions("cli")]


def test_below_the_threshold_every_tool_is_listed_and_nothing_of_the_search_is() -> None:
    with plugin_host(MANY, SMALL) as host:
        assert {"find_invoice", "send_train", "look_up"} <= set(names(host))
        assert not set(SEARCH_TOOLS) & set(names(host))


def test_above_it_the_large_toolsets_are_found_by_search_and_core_and_small_ones_stay() -> None:
    with plugin_host(MANY, SMALL, config=ON) as host:
        shown = names(host)
        assert set(SEARCH_TOOLS) <= set(shown)
        assert {"terminal", "read_file", "look_up"} <= set(shown)
        assert not {"find_invoice", "send_train"} & set(shown)
        assert shown == sorted(shown)
        (search,) = [d for d in host.host.agent.definitions("cli") if d["function"]["name"] == "tool_search"]
        assert "send_train" in search["function"]["description"]  # the model knows what there is


@pytest.mark.parametrize(
    "kept",
    [
        {"tools": {"tool_search": {"enabled": "off", "threshold_tokens": 0}}},
        {"tools": {"tool_search": {"enabled": False, "threshold_tokens": 0}}},
        {"tools": {"tool_search": {"threshold_tokens": 0, "pinned": ["office"]}}},
        {**ON, "platform_toolsets": {"cli": ["hermes-cli", "office"]}},
        {**ON, "toolsets": ["hermes-cli", "office"]},
        {**ON, "agent": {"disabled_toolsets": ["tool_search"]}},
    ],
)
def test_what_the_operator_pinned_or_named_is_always_listed(kept: dict[str, Any]) -> None:
    with plugin_host(MANY, config=kept) as host:
        assert {"find_invoice", "send_train"} <= set(names(host))


def test_one_pinned_tool_stays_when_its_toolset_goes() -> None:
    with plugin_host(MANY, config={"tools": {"tool_search": {"enabled": "on", "pinned": ["find_photo"]}}}) as host:
        assert "find_photo" in names(host) and "make_photo" not in names(host)


def test_a_part_of_a_small_context_is_a_threshold_too() -> None:
    with plugin_host(MANY, config={"tools": {"tool_search": {"threshold_pct": 10}}}) as host:
        assert "find_photo" in [d["function"]["name"] for d in host.host.agent.definitions("cli", window=200_000)]
        assert "find_photo" not in [d["function"]["name"] for d in host.host.agent.definitions("cli", window=30_000)]


def test_a_found_tool_is_called_under_its_own_name_through_hooks_approval_and_limits() -> None:
    said: list[Any] = []
    seen: list[dict[str, Any]] = []

    def guard(ctx: Any) -> None:
        ctx.register_hook("pre_tool_call", lambda **kw: seen.append(kw))

        def ask(tool_name: str, **kw: Any) -> Any:
            return {"action": "approve", "message": "sure?"} if tool_name == "send_invoice" else None

        ctx.register_hook("pre_tool_call", ask)

    office = plugin("office", "send_invoice", "find_invoice", weight=3_000, said=said)
    answers = [
        call("tool_search", {"query": "send an invoice"}),
        call("tool_call", {"name": "send_invoice", "arguments": {"n": "7"}}),
        call("tool_call", {"name": "sendInvoice", "arguments": '{"n": 8}'}),
        call("find_invoice", {"n": 9}),
        "Sent.",
    ]
    with plugin_host(office, guard, config=ON, model=answers, approvals=["deny", "once"]) as host:
        done = host.ask("send invoice 7")

    found = json.loads(done.tool_calls[0].result)
    assert [tool["name"] for tool in found["tools"]] == ["send_invoice", "find_invoice"]
    assert "n" in found["tools"][0]["parameters"]["properties"]
    assert [c.name for c in done.tool_calls] == ["tool_search", "send_invoice", "send_invoice", "find_invoice"]
    assert [r.summary for r in host.approval_requests] == ["sure?", "sure?"]
    assert [(tool, args) for tool, args, _ in said] == [("send_invoice", {"n": 8}), ("find_invoice", {"n": 9})]
    assert [kw["tool_name"] for kw in seen] == ["tool_search", "send_invoice", "send_invoice", "find_invoice"]
    assert seen[1]["args"] == {"n": 7}  # coerced by the schema of the tool that is meant
    assert all(kw["turn_id"] and kw["api_request_id"] and kw["tool_call_id"] for kw in seen)


def test_the_tools_of_every_request_are_the_same_bytes() -> None:
    answers = [
        call("tool_search", {"query": "train"}),
        call("tool_call", {"name": "find_train", "arguments": {}}),
        "done",
        "again",
    ]
    with plugin_host(MANY, config=ON, model=answers) as host:
        host.ask("go")
        host.ask("and again")
    assert len({json.dumps(body["tools"]) for body in host.model.requests}) == 1
    assert len({body["messages"][0]["content"] for body in host.model.requests}) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "no_such_thing_at_all", "arguments": {}}, "Unknown tool: no_such_thing_at_all"),
        ({"name": "tool_call", "arguments": {}}, "tool_call must be handled by the agent loop"),
        ({"name": "find_train", "arguments": [1]}, "Invalid tool arguments"),
        ({"name": "find_train", "arguments": "{"}, "Invalid tool arguments"),
        ({"arguments": {}}, "Invalid tool arguments"),
    ],
)
def test_a_call_that_means_no_tool_is_an_error_that_says_so(arguments: dict[str, Any], error: str) -> None:
    with plugin_host(MANY, config=ON, model=[call("tool_call", arguments), "hm"]) as host:
        (done,) = host.ask("go").tool_calls
    assert json.loads(done.result)["error"].startswith(error)


def test_a_tool_that_the_conversation_does_not_offer_cannot_be_found_or_called() -> None:
    secret = plugin("vault", "open_vault", weight=3_000)
    config = {**ON, "agent": {"disabled_toolsets": ["vault"]}}
    answers = [
        call("tool_search", {"query": "vault"}),
        call("tool_call", {"name": "open_vault", "arguments": {}}),
        call("tool_describe", {"name": "open_vault"}),
        "no",
    ]
    with plugin_host(MANY, secret, config=config, model=answers) as host:
        search, called, described = host.ask("go").tool_calls
    assert json.loads(search.result)["tools"] == []
    assert json.loads(called.result) == {"error": "Unknown tool: open_vault"}
    assert "error" in json.loads(described.result)


def test_tool_describe_shows_one_tool_and_names_near_ones() -> None:
    answers = [call("tool_describe", {"name": "make_photo"}), call("tool_describe", {"name": "zzz_photo"}), "ok"]
    with plugin_host(MANY, config=ON, model=answers) as host:
        one, other = host.ask("go").tool_calls
    assert json.loads(one.result)["parameters"]["properties"] == {"n": {"type": "integer"}}
    assert "make_photo" in json.loads(other.result)["did_you_mean"]


def test_plugins_are_told_of_the_same_tools_and_may_leave_the_search_out() -> None:
    def lists(ctx: Any) -> None:
        from model_tools import get_tool_definitions, handle_function_call

        def handler(args: dict[str, Any], **kwargs: Any) -> str:
            short = [d["function"]["name"] for d in get_tool_definitions()]
            full = [d["function"]["name"] for d in get_tool_definitions(skip_tool_search_assembly=True)]
            ran = json.loads(handle_function_call("tool_call", {"name": "find_photo", "arguments": {"n": "1"}}))
            return json.dumps([short, full, ran])

        ctx.register_tool("lists", "lists", {"name": "lists", "description": "d", "parameters": {}}, handler)

    with plugin_host(MANY, lists, config={"tools": {"tool_search": {"enabled": "on"}}}) as host:
        short, full, ran = json.loads(host.dispatch_tool("lists"))
    assert "tool_call" in short and "find_photo" not in short
    assert "tool_call" not in full and "find_photo" in full
    assert ran == {"ran": "find_photo", "n": 1}


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 400), max_size=4),
    st.integers(0, 1_000),
    st.sampled_from([0, 1_000, 8_000]),
)
def test_every_tool_is_either_shown_or_to_be_found_and_what_is_shown_fits(
    weights: dict[str, int], limit: int, window: int
) -> None:
    registry = ToolRegistry()
    settings = SearchSettings(threshold_tokens=limit)
    search = ToolSearch(registry, settings)
    search.register_tools(context_of(registry))
    registry.register("core", "core", {"description": "c", "parameters": {}}, print, owner=Owner(BUILTIN))
    for name, weight in weights.items():
        schema = {"description": "x" * weight * 4, "parameters": {}}
        registry.register(name, f"set-{name}", schema, print, owner=Owner("plugin"))
    definitions = registry.get_definitions(registry.get_all_tool_names())

    shown, found = search.split(definitions, window=window)

    listed = {d["function"]["name"] for d in shown}
    assert listed - {*SEARCH_TOOLS} | {*found} == {"core", *weights}
    assert not listed & {*found}
    assert bool(found) == (set(SEARCH_TOOLS) <= listed)
    weight = sum(
        len(json.dumps(d["function"], ensure_ascii=False)) // 4
        for d in definitions
        if d["function"]["name"] in listed & {*weights}
    )
    assert weight < settings.room_tokens(window) or weight == 0
    assert search.split(definitions, window=window) == (shown, found)


def test_a_bare_call_of_the_bridge_at_the_registry_is_refused() -> None:
    with plugin_host() as host:
        assert "must be handled by the agent loop" in host.host.tools.dispatch("tool_call", {})
        assert {host.host.tools.owner(name) for name in SEARCH_TOOLS} == {BUILTIN}
        assert host.host.dispatcher.resolve(ToolCall("c", "tool_call", "{}"), ["echo"])[0] != "echo"
