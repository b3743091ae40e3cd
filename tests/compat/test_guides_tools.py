"""The guide of the tools' runtime: tools registered at import, errors, visibility, approval."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat.guides import guide, plugin
from hermes_agent.testing import plugin_host

AT_IMPORT = """
import json, os
from tools.registry import registry

asked = []

def check_search():
    asked.append(1)
    return bool(os.environ.get("SERP_API_KEY"))

def handle(args, **kwargs):
    if args.get("fail"):
        raise ValueError("no such thing")
    return json.dumps({"found": args})

async def handle_later(args, **kwargs):
    return json.dumps({"later": kwargs["task_id"] != ""})

for name in ("search_one", "search_two"):
    registry.register(
        name=name,
        toolset="search",
        schema={"name": name, "description": "Search", "parameters": {"type": "object", "properties": {}}},
        handler=handle,
        check_fn=check_search,
        requires_env=["SERP_API_KEY"],
        is_async=False,
        emoji="🔎",
    )
registry.register("later", "search", {"name": "later", "parameters": {}}, handle_later, is_async=True)

def register(ctx):
    pass
"""


@pytest.fixture(scope="module")
def page() -> str:
    return guide("tools-runtime.zh.txt")


def test_a_module_registers_with_the_arguments_of_the_guide(page: str, tmp_path: Path) -> None:
    for word in ("name=", "toolset=", "schema=", "handler=", "check_fn=", "requires_env=", "is_async=", "emoji="):
        assert word in page
    folder = plugin(tmp_path / "search", AT_IMPORT)

    with plugin_host(folder, env={"SERP_API_KEY": "a-key-for-it"}) as host:
        assert sorted(host.tools) == ["later", "search_one", "search_two"]
        assert {"search_one", "search_two"} <= set(host.visible_tools)
        assert len(host.module.asked) == 1, "two tools with one check ask once"
        assert json.loads(host.dispatch_tool("search_one", {"q": "x"})) == {"found": {"q": "x"}}
        assert json.loads(host.dispatch_tool("later")) == {"later": True}
    with plugin_host(folder) as host:
        assert not {"search_one", "search_two"} & set(host.visible_tools)
        assert host.host.tools.is_toolset_available("search"), "one of its tools has no check"


def test_an_error_is_a_result_with_the_guide_s_words(page: str, tmp_path: Path) -> None:
    assert "Tool execution failed: ExceptionType: message" in page

    with plugin_host(plugin(tmp_path / "search", AT_IMPORT)) as host:
        result = json.loads(host.dispatch_tool("search_one", {"fail": True}))

    assert result == {"error": "[TOOL_ERROR] Tool execution failed: ValueError: no such thing"}


def test_a_dangerous_command_is_asked_for_and_a_session_s_answer_holds(page: str) -> None:
    assert "rm -rf" in page

    with plugin_host(approvals=["session"]) as host:
        for _ in range(2):
            (host.workspace / "old").mkdir()
            assert json.loads(host.dispatch_tool("terminal", {"command": "rm -rf old"}))["exit_code"] == 0
            assert not (host.workspace / "old").exists()
        assert len(host.approval_requests) == 1
    with plugin_host() as host:
        (host.workspace / "kept").mkdir()
        assert json.loads(host.dispatch_tool("terminal", {"command": "rm -rf kept"}))["error"]
        assert (host.workspace / "kept").exists()
