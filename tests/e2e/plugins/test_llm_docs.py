"""docs/plugins/llm.md: its plugin and its config are run as they are printed."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent import config
from hermes_agent.host import Host
from hermes_agent.plugins.llm_client import PluginLlm
from hermes_agent.plugins.llm_types import LlmPermissions, Overrides, PluginLlmTrustError, check_overrides
from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.tools import CallScope
from peers.raw import raw_server

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "plugins" / "llm.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# file: (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


async def test_the_plugin_of_the_page_does_what_it_says(
    home: Path, write_plugin: Callable[..., Path], start: Callable[..., Host], tmp_path: Path
) -> None:
    write_plugin("triage", FILES["plugins/triage/__init__.py"])
    said = json.dumps({"urgency": 0.9, "category": "fire"})
    answer = {"choices": [{"index": 0, "message": {"content": said}, "finish_reason": "stop"}]}

    async def main() -> tuple[str, str, list[bytes]]:
        async with raw_server(json.dumps(answer).encode(), content_type="application/json") as server:
            model = f"model: {{default: m-1, provider: custom, base_url: '{server.base_url}', api_key: k}}\n"
            host = start("plugins: {enabled: [triage]}\n" + model)
            scope = CallScope("s", "t", "u", tmp_path, Approvals(NoApprover("in a test"), timeout_s=1))
            async with asyncio.timeout(30):
                call = host.dispatcher.run("c", "triage", {"messages": ["fire!", "help!"]}, scope, valid=["triage"])
                scored = (await call).result
                short = await host.bridge.run(host.plugins._plugin_commands["tldr"]["handler"], "a long text")
                await host.clients.aclose()
            return scored, short, server.requests

    scored, short, requests = await main()

    assert json.loads(scored) == [{"urgency": 0.9, "category": "fire"}] * 2
    assert short == said
    assert [b'"response_format"' in r for r in requests] == [True, True, False]


def test_the_config_of_the_page_is_valid_and_allows_what_it_says(home: Path) -> None:
    (home / "config.yaml").write_text(FILES["config.yaml"])
    assert config.load(home).get("auxiliary.vision.model") == "google/gemini-2.5-flash"

    policy = LlmPermissions(home, "triage").read()

    check_overrides("triage", policy, Overrides("groq", "openai/GPT-4o-mini", "", ""))
    for refused in (("gemini", "", "", ""), ("", "x", "", ""), ("", "", "other", ""), ("", "", "", "default")):
        with pytest.raises(PluginLlmTrustError):
            check_overrides("triage", policy, Overrides(*refused))


def test_the_methods_of_the_page_are_those_of_the_class() -> None:
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|", PAGE, re.MULTILINE)

    assert [name for name, _ in rows] == ["complete", "complete_structured"]
    for name, printed in rows:
        ours = list(inspect.signature(getattr(PluginLlm, name)).parameters)[1:]
        assert [p for p in printed.split(", ") if p != "*"] == ours
