"""The keywords that `fire` fills in are those that the agent gives."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_agent.hooks import HOOKS, VALID_HOOKS
from hermes_agent.hooks.catalog import FIRED
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.host import hook_keywords

SCHEMA = "telemetry_schema_version"


def test_a_turn_gives_every_hook_the_keywords_that_fire_gives_it() -> None:
    seen: dict[str, set[str]] = {}

    def watch(ctx: Any) -> None:
        for hook in VALID_HOOKS:
            ctx.register_hook(hook, lambda hook=hook, **kw: seen.__setitem__(hook, set(kw)))

    script = [call("terminal", command="echo hello"), call("read_file", path="nowhere"), "done"]
    with plugin_host(watch, model=script, approvals=["once", "once"]) as host:
        host.ask("go")
        host.new_session()

    assert {
        *("pre_tool_call", "post_tool_call", "transform_tool_result", "transform_terminal_output"),
        *("pre_llm_call", "post_llm_call", "transform_llm_output", "on_session_start", "on_session_end"),
    } <= set(seen) & FIRED
    for hook, keywords in seen.items():
        assert keywords - {SCHEMA} == set(hook_keywords(hook, {})), hook


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_can_be_fired(hook: str) -> None:
    keywords = hook_keywords(hook, {"extra": 1}, session_id="here")

    assert keywords.pop("extra") == 1
    assert keywords
    assert keywords.get("session_id", "here") == "here"
