"""Texts that answer nobody: where they go."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_agent.adapters.config import HomeChannel, Platform, PlatformConfig, PlatformEntry
from hermes_agent.adapters.registry import GatewayConfig
from hermes_agent.core.errors import UserError
from hermes_agent.delivery import ReplyTarget
from hermes_agent.gateway.chat_messages import parse_target
from hermes_agent.testing import call
from hermes_agent.testing.chat import chat_host

TELEGRAM, SLACK = Platform("telegram"), Platform("slack")
CONFIG = GatewayConfig(
    {
        TELEGRAM: PlatformConfig(enabled=True, home_channel=HomeChannel(TELEGRAM, "42", thread_id="7")),
        SLACK: PlatformConfig(enabled=True),
    }
)


def entry(name: str, **more: Any) -> PlatformEntry:
    return PlatformEntry(name, name, lambda config: None, lambda: True, **more)


ENTRIES = {name: entry(name, cron_deliver_env_var=f"{name.upper()}_HOME") for name in ("telegram", "matrix", "irc")}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("telegram:-100:17", ReplyTarget("telegram", "-100", "17")),
        ("telegram", ReplyTarget("telegram", "42", "7")),
        ("irc:#room", ReplyTarget("irc", "#room")),
        ("matrix:!abc:example.org", ReplyTarget("matrix", "!abc:example.org")),
        ("matrix:!abc:example.org:$thread", ReplyTarget("matrix", "!abc:example.org", "$thread")),
        ("slack:C1:1700000000.25", ReplyTarget("slack", "C1", "1700000000.25")),
        ("irc", ReplyTarget("irc", "#home", "9")),
    ],
)
def test_a_place_is_read(text: str, target: ReplyTarget) -> None:
    assert parse_target(text, CONFIG, ENTRIES, {"IRC_HOME": "#home", "IRC_HOME_THREAD_ID": "9"}) == target


def test_a_place_that_is_none_is_named_with_what_there_is() -> None:
    with pytest.raises(UserError, match="there is no platform 'fax'") as raised:
        parse_target("fax:1", CONFIG, ENTRIES, {})
    assert raised.value.hint == "Platforms: irc, matrix, slack, telegram."
    with pytest.raises(UserError, match="'slack' names no chat, and slack has no home channel"):
        parse_target("slack", CONFIG, ENTRIES, {})


def test_a_job_that_is_made_in_a_chat_answers_there() -> None:
    made = call("cronjob", action="create", schedule="in 3d", prompt="Say hello.", name="greeting")
    now = call("cronjob", action="run", job_id="greeting")

    def either(request: dict[str, Any]) -> str:  # the job and the turn that asked for it run beside each other
        return "Hello!" if "scheduled job" in str(request["messages"][-1]) else "Now."

    with chat_host(model=[made, "It is planned.", now, either, either]) as chat:
        assert chat.ask("greet us in three days") == "It is planned."
        chat.write("do it now")
        said = sorted(chat.answers(3))
        chats = {sent.chat for sent in chat.adapter.sent}

    assert said == ["It is planned.", "Now.", "⏰ greeting\n\nHello!"]
    assert chats == {"room"}


def test_one_person_s_jobs_are_not_another_s() -> None:
    made = call("cronjob", action="create", schedule="in 3d", prompt="Say hello.", name="greeting")
    with chat_host(model=[made, "Yes.", call("cronjob", action="list"), "Listed."]) as chat:
        chat.ask("greet", user="ann", chat="one")
        chat.ask("what is planned?", user="bob", chat="two")
        result = chat.host.model.messages[-1]

    assert result["role"] == "tool"
    assert '"jobs": []' in result["content"]
