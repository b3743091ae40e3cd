"""Chats: the platform in memory, and those that plugins bring."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.testing import call, memory_platform, plugin_host

EXAMPLES = Path(__file__).parents[2] / "plugins" / "examples"


def plugin(ctx: Any) -> None:
    ctx.register_command("shout", lambda raw: raw.upper())
    ctx.register_hook("pre_llm_call", lambda platform, **kwargs: f"on {platform}")


def test_what_is_written_is_answered_and_sent_back() -> None:
    script = [call("read_file", path="nowhere"), "Good morning."]
    with plugin_host(memory_platform, plugin, model=script, platform="memory") as host:
        chat = host.chat("memory")
        assert chat.write("hello", chat="lobby") == "Good morning."
        assert [(sent.chat, sent.text) for sent in chat.adapter.sent] == [("lobby", "Good morning.")]
        assert host.model.requests[0]["messages"][-1]["content"] == "hello\n\non memory"
        assert chat.write("/shout hey") == "HEY"
        assert chat.adapter.is_connected
    assert not chat.adapter.is_connected


def test_the_adapter_of_a_plugin_is_used_as_it_is() -> None:
    with plugin_host(EXAMPLES / "platform", model=["From the agent."]) as host:
        chat = host.chat("example", token="a-token-of-it")
        assert chat.write("hello", chat="room-7") == "From the agent."
        assert chat.adapter.sent == [("room-7", "From the agent.")]


def test_a_platform_that_is_not_there_or_refuses_is_named() -> None:
    with plugin_host(EXAMPLES / "platform") as host:
        with pytest.raises(UserError, match="no adapter for 'nowhere'"):
            host.chat("nowhere")
        with pytest.raises(UserError, match="no adapter for 'example'"):
            host.chat("example")


def test_a_turn_that_fails_fails_the_test() -> None:
    with plugin_host(memory_platform) as host, pytest.raises(ModelError, match="no answer for request 1"):
        host.chat("memory").write("hello")


def test_a_test_with_a_loop_of_its_own_may_chat() -> None:
    async def test() -> str:
        with plugin_host(memory_platform, model=["fine"]) as host:
            return host.chat("memory").write("How are you?")

    assert asyncio.run(test()) == "fine"
