"""The tool `session_search` in a real host."""

from __future__ import annotations

import json
from typing import Any

from hermes_agent.policy import NoApprover
from hermes_agent.testing import ModelFailure, PluginHost, call, plugin_host


def searched(host: PluginHost, **args: Any) -> dict[str, Any]:
    host.model.say(call("session_search", **args), "done")
    answer: dict[str, Any] = json.loads(host.ask("look it up").tool_calls[0].result)
    return answer


def test_an_earlier_session_is_found_and_read_on() -> None:
    with plugin_host(model=["Ottilie it is."]) as host:
        old = host.conversation.session_id
        host.ask("The otter is called Ottilie")
        host.new_session()
        (session,) = searched(host, query="otter")["sessions"]
        assert (session["session_id"], session["title"]) == (old, "The otter is called Ottilie")
        assert session["matches"][0]["text"] == "The >>>otter<<< is called Ottilie"
        more = searched(host, session_id=old, around_message_id=session["matches"][0]["message_id"], window=3)
        assert [m["text"] for m in more["messages"]] == ["The otter is called Ottilie", "Ottilie it is."]
        assert searched(host, limit=1)["sessions"][0]["session_id"] == old


def test_a_summary_is_written_when_it_is_asked_for_and_missed_when_there_is_none() -> None:
    with plugin_host(model=["Ottilie it is."], config={"auxiliary": {"transient_retries": 0}}) as host:
        host.ask("The otter is called Ottilie")
        host.new_session()
        host.model.say(call("session_search", query="otter", summarize=True), "She is Ottilie.", "done")
        answer = host.ask("look it up")
        assert json.loads(answer.tool_calls[0].result)["sessions"][0]["summary"] == "She is Ottilie."
        assert "[user] The otter is called Ottilie" in str(host.model.requests[-2]["messages"])
        host.model.say(call("session_search", query="otter", summarize=True), ModelFailure("no", 400), "done")
        answer = host.ask("look again")
        (session, *_) = json.loads(answer.tool_calls[0].result)["sessions"]
        assert session["summary"].startswith("(no summary: ") and session["matches"]


def test_what_a_tool_returned_in_an_earlier_session_is_not_taken_for_anybody_s() -> None:
    def plugin(ctx: Any) -> None:
        schema = {"name": "get_page", "parameters": {"type": "object", "properties": {}}}
        ctx.register_tool("get_page", "pages", schema, lambda args, **_: "otters obey Mark")

    with plugin_host(plugin, model=[call("get_page"), "Read."]) as host:
        old = host.conversation.session_id
        host.ask("Read the page")
        host.new_session()
        (session,) = searched(host, query="otters", role_filter="tool")["sessions"]
        assert session["matches"][0]["text"].startswith("<foreign-text from=")
        roles = {m["role"]: m["text"] for m in searched(host, session_id=old)["messages"]}
        assert roles["tool"].startswith("<foreign-text from=") and roles["user"] == "Read the page"


def test_of_the_present_session_what_a_summary_stands_for_is_found() -> None:
    config = {"compression": {"protect_first_n": 0, "protect_last_n": 1}}
    with plugin_host(model=["one", "two"], config=config) as host:
        host.ask("The otter is called Ottilie")
        host.ask("And the toad Bert")
        assert searched(host, query="otter")["sessions"] == []
        host.model.say("SUMMARY")
        host.run_command("/compress")
        assert [s["session_id"] for s in searched(host, query="otter")["sessions"]] == [host.conversation.session_id]


def test_a_stranger_finds_nothing_of_the_owner_s() -> None:
    with plugin_host(model=["noted"]) as host:
        host.ask("My otter is called Ottilie")
        mine = host.conversation.session_id

        async def work() -> list[str]:
            found = []
            for args in ({"query": "otter"}, {"session_id": mine, "around_message_id": 1}, {}):
                talk = await host.host.agent.open(
                    None, platform="pond", approver=NoApprover("a test"), principal="pond:bob"
                )
                host.model.say(call("session_search", **args), "done")
                async for _ in talk.turn("look"):
                    pass
                found.append(next(m.text for m in talk.history if m.role == "tool"))
            return found

        by_words, by_id, recent = host._run(work())
    assert json.loads(by_words)["sessions"] == []
    assert "there is no session" in json.loads(by_id)["error"]
    assert mine not in recent


def test_wrong_arguments_are_named() -> None:
    with plugin_host(model=["hi"]) as host:
        host.ask("hello")
        assert "unknown role 'boss'" in searched(host, query="x", role_filter="boss")["error"]
        assert "no profile 'other'" in searched(host, query="x", profile="other")["error"]
