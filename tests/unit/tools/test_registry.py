from __future__ import annotations

import logging
import math

import pytest

from hermes_agent.core.registry import BUILTIN, NO_OWNER, Owner, registration_context
from hermes_agent.tools import ToolRegistry

BUILT_IN = Owner(BUILTIN)
PLUGIN = Owner("weather")
OTHER = Owner("other")
TRUSTED = Owner("trusted", may_override=True)

REJECTED = (
    "Tool registration REJECTED: 'patch' (toolset 'mine') would shadow existing tool from toolset 'file'. "
    "Pass override=True to register() if the replacement is intentional, or deregister the existing tool first."
)


def old(args, **kwargs):
    return "old"


def new(args, **kwargs):
    return "new"


def schema(description="d", **properties):
    return {"name": "x", "description": description, "parameters": {"type": "object", "properties": properties}}


def put(registry, owner, handler, *, toolset="file", name="patch", override=False, **more):
    registry.register(name, toolset, schema(), handler, owner=owner, override=override, **more)


# Rows of §4.2: who has the name, who wants it, its toolset, override, and what comes of it.
@pytest.mark.parametrize(
    ("first", "first_toolset", "second", "second_toolset", "override", "outcome"),
    [
        (BUILT_IN, "file", BUILT_IN, "file", False, "replaced"),
        (BUILT_IN, "file", PLUGIN, "file", False, "kept"),
        (BUILT_IN, "file", PLUGIN, "mine", False, "kept"),
        (BUILT_IN, "file", PLUGIN, "mine", True, "forbidden"),
        (BUILT_IN, "file", PLUGIN, "file", True, "forbidden"),
        (BUILT_IN, "file", NO_OWNER, "file", False, "kept"),
        (BUILT_IN, "file", NO_OWNER, "file", True, "forbidden"),
        (BUILT_IN, "file", TRUSTED, "mine", False, "kept"),
        (BUILT_IN, "file", TRUSTED, "mine", True, "replaced"),
        (PLUGIN, "mine", PLUGIN, "other", False, "replaced"),
        (PLUGIN, "mine", OTHER, "mine", False, "kept"),
        (PLUGIN, "mine", OTHER, "mine", True, "forbidden"),
        (PLUGIN, "mine", Owner("other", free_tools=("patch",)), "mine", True, "replaced"),
        (PLUGIN, "mine", Owner("other", free_tools=("patch",)), "mine", False, "kept"),
        (PLUGIN, "mine", Owner("other", free_tools=("terminal",)), "mine", True, "forbidden"),
        (PLUGIN, "mine", BUILT_IN, "file", True, "replaced"),
        (PLUGIN, "mcp-a", OTHER, "mcp-b", False, "replaced"),
        (PLUGIN, "mcp-a", OTHER, "mine", False, "kept"),
    ],
)
def test_who_gets_a_name_that_is_taken(first, first_toolset, second, second_toolset, override, outcome):
    registry = ToolRegistry()
    put(registry, first, old, toolset=first_toolset)
    if outcome == "forbidden":
        with pytest.raises(PermissionError, match=r"without operator opt-in \(allow_tool_override\)"):
            put(registry, second, new, toolset=second_toolset, override=override)
    else:
        put(registry, second, new, toolset=second_toolset, override=override)

    entry = registry.get("patch")
    assert entry is not None
    assert entry.handler is (new if outcome == "replaced" else old)
    assert registry.owner("patch") == (second if outcome == "replaced" else first).key
    assert len(registry.refusals) == (outcome == "kept")


def test_a_refusal_is_logged_in_the_contracts_words_and_kept(caplog):
    registry = ToolRegistry()
    put(registry, BUILT_IN, old)
    put(registry, PLUGIN, new, toolset="mine")

    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.ERROR, REJECTED)]
    assert str(registry.refusals[0]) == "tool `patch` belongs to the agent"
    assert registry.refusals[0].claimed_by == "weather"


def test_a_forbidden_override_is_an_error_in_the_contracts_words(caplog):
    registry = ToolRegistry()
    put(registry, BUILT_IN, old)
    with pytest.raises(PermissionError) as caught:
        put(registry, PLUGIN, new, override=True)

    text = (
        "Plugin module 'weather' cannot override built-in tool 'patch' without operator opt-in (allow_tool_override)."
    )
    assert str(caught.value) == text
    assert caplog.records[-1].getMessage() == text


def test_whoever_registers_owns_also_from_partials_objects_and_submodules():
    registry = ToolRegistry()
    with registration_context(PLUGIN):
        registry.register("a", "t", schema(), type("Handler", (), {"__call__": lambda self, args: ""})())

    assert registry.owner("a") == "weather"


@pytest.mark.parametrize(
    ("remover", "toolset", "may"),
    [
        (PLUGIN, "mine", True),
        (OTHER, "mine", False),
        (NO_OWNER, "mine", False),
        (TRUSTED, "mine", True),
        (BUILT_IN, "mine", True),
        (OTHER, "mcp-x", True),
    ],
)
def test_who_may_take_a_tool_away(remover, toolset, may):
    registry = ToolRegistry()
    put(registry, PLUGIN, old, toolset=toolset)
    with registration_context(remover):
        if may:
            registry.deregister("patch")
        else:
            with pytest.raises(PermissionError, match=r"cannot deregister tool 'patch' \(toolset 'mine'\)"):
                registry.deregister("patch")

    assert ("patch" in registry) is not may


def test_taking_away_what_is_not_there_is_no_error():
    ToolRegistry().deregister("nothing")


def test_the_last_tool_of_a_toolset_takes_its_aliases_with_it():
    registry = ToolRegistry()
    put(registry, BUILT_IN, old, name="a", toolset="mcp-x")
    put(registry, BUILT_IN, old, name="b", toolset="mcp-x")
    registry.register_toolset_alias("x", "mcp-x")
    registry.register_toolset_alias("f", "file")
    with registration_context(BUILT_IN):
        registry.deregister("a")
        assert registry.get_toolset_alias_target("x") == "mcp-x"
        registry.deregister("b")

    assert registry.get_registered_toolset_aliases() == {"f": "file"}


def test_every_change_raises_the_generation():
    registry = ToolRegistry()
    seen = [registry._generation]
    state = registry.snapshot()
    put(registry, PLUGIN, old)
    seen.append(registry._generation)
    with registration_context(PLUGIN):
        registry.deregister("patch")
    seen.append(registry._generation)
    registry.restore(state)
    seen.append(registry._generation)

    assert seen == sorted(set(seen))


def test_a_snapshot_brings_back_what_was_there():
    registry = ToolRegistry()
    put(registry, BUILT_IN, old)
    state = registry.snapshot()
    put(registry, PLUGIN, new, name="extra")
    registry.restore(state)

    assert registry.names() == ["patch"]


@pytest.mark.parametrize("handler", [None, "f"])
def test_a_handler_that_cannot_be_called_is_refused_at_once(handler):
    with pytest.raises(TypeError):
        ToolRegistry().register("x", "t", {}, handler)


@pytest.mark.parametrize("given", [None, [], {"parameters": "text"}])
def test_a_schema_that_is_none_is_refused_at_once(given):
    with pytest.raises(ValueError, match=r"Tool 'x': schema.* must be a"):
        ToolRegistry().register("x", "t", given, old)


def test_what_plugins_ask_the_registry():
    registry = ToolRegistry()
    put(registry, BUILT_IN, old, name="b", toolset="file", emoji="🔧", max_result_size_chars=math.inf)
    put(registry, BUILT_IN, old, name="a", toolset="file")
    put(registry, BUILT_IN, old, name="c", toolset="mcp-x", check_fn=lambda: False)
    registry.register_toolset_alias("x", "mcp-x")

    assert registry.get_all_tool_names() == ["a", "b", "c"]
    assert registry.get_tool_names_for_toolset("file") == ["a", "b"]
    assert registry.get_tool_names_for_toolset("x") == ["c"]
    assert registry.get_registered_toolset_names() == ["file", "mcp-x"]
    assert registry.get_toolset_for_tool("c") == "mcp-x"
    assert registry.get_tool_to_toolset_map() == {"b": "file", "a": "file", "c": "mcp-x"}
    assert (registry.get_emoji("b"), registry.get_emoji("a"), registry.get_emoji("gone")) == ("🔧", "⚡", "⚡")
    assert registry.get_max_result_size("b") == math.inf
    assert registry.get_max_result_size("a", 7) == 7
    assert registry.check_toolset_requirements() == {"file": True, "mcp-x": False}
    assert registry.get_entry("gone") is None
    assert registry.get_schema("gone") is None


def test_definitions_are_sorted_visible_and_bear_the_registered_name():
    registry = ToolRegistry()
    put(registry, BUILT_IN, old, name="b")
    put(registry, BUILT_IN, old, name="a", dynamic_schema_overrides=lambda: {"description": "fresh"})
    put(registry, BUILT_IN, old, name="hidden", check_fn=lambda: False)

    assert registry.get_definitions(["b", "a", "hidden", "gone"]) == [
        {
            "type": "function",
            "function": {"name": "a", "description": "fresh", "parameters": {"type": "object", "properties": {}}},
        },
        {
            "type": "function",
            "function": {"name": "b", "description": "d", "parameters": {"type": "object", "properties": {}}},
        },
    ]


@pytest.mark.parametrize(
    ("names", "description"),
    [
        ((), "Open an address. Then look."),
        (("web_search",), "Open an address. For facts prefer web_search! Then look."),
        (
            ("web_search", "web_extract"),
            "Open an address. For facts prefer web_search! Use web_extract to read. Then look.",
        ),
    ],
)
def test_a_browser_of_a_plugin_sends_the_model_to_no_web_tool_that_is_not_there(names, description):
    text = "Open an address. For facts prefer web_search! Use web_extract to read. Then look."
    registry = ToolRegistry()
    for name in ("browser_navigate", "other"):
        registry.register(name, "browser", {"name": name, "description": text}, old, owner=PLUGIN)
    for name in names:
        put(registry, BUILT_IN, old, name=name)

    described = registry.get_definitions(["browser_navigate", "other", *names])
    assert {d["function"]["name"]: d["function"]["description"] for d in described} == {
        "browser_navigate": description,
        "other": text,
        **dict.fromkeys(names, "d"),
    }


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)])
def test_overrides_and_checks_that_fail_leave_the_schema_and_hide_the_tool(error):
    def fail():
        raise error

    registry = ToolRegistry()
    put(registry, BUILT_IN, old, name="a", dynamic_schema_overrides=fail)
    put(registry, BUILT_IN, old, name="b", check_fn=fail)

    assert [d["function"]["description"] for d in registry.get_definitions(["a", "b"])] == ["d"]


def test_parameters_without_properties_are_completed():
    registry = ToolRegistry()
    registry.register("a", "t", {"description": "d"}, old)

    assert registry.get_definitions(["a"])[0]["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("name", ["", "two words", "dotted.name", "ümlaut", "x" * 65, 7, None])
def test_a_name_that_providers_would_not_take_is_refused_with_the_reason(name, caplog):
    registry = ToolRegistry()

    put(registry, PLUGIN, new, name=name)

    assert len(registry) == 0
    (refusal,) = registry.refusals
    assert (refusal.owner, refusal.claimed_by) == ("", "weather")
    assert "cannot be used: expected 1 to 64 letters" in str(refusal)
    assert "Tool registration REJECTED" in caplog.text


def test_the_emoji_is_kept_as_given_and_shown_by_default():
    registry = ToolRegistry()
    put(registry, PLUGIN, new, name="plain")
    put(registry, PLUGIN, new, name="kite", emoji="🪁")

    assert (registry.get_entry("plain").emoji, registry.get_entry("kite").emoji) == ("", "🪁")
    assert (registry.get_emoji("plain"), registry.get_emoji("kite"), registry.get_emoji("none")) == ("⚡", "🪁", "⚡")


def test_toolsets_are_described_with_what_they_need():
    registry = ToolRegistry()
    here = lambda: True  # noqa: E731
    put(registry, PLUGIN, new, name="b", toolset="sky", check_fn=here, requires_env=["KEY", "URL"])
    put(registry, PLUGIN, new, name="a", toolset="sky", check_fn=lambda: False, requires_env=["KEY"])
    put(registry, PLUGIN, new, name="c", toolset="sea", check_fn=lambda: False, requires_env=["BOAT"])

    assert registry.check_tool_availability() == (["sky"], [{"name": "sea", "env_vars": ["BOAT"], "tools": ["c"]}])
    assert registry.get_available_toolsets()["sky"] == {
        "available": True,
        "tools": ["a", "b"],
        "description": "",
        "requirements": ["KEY", "URL"],
    }
    sea = registry.get_toolset_requirements()["sea"]
    assert {k: sea[k] for k in ("name", "env_vars", "setup_url", "tools")} == {
        "name": "sea",
        "env_vars": ["BOAT"],
        "setup_url": None,
        "tools": ["c"],
    }
