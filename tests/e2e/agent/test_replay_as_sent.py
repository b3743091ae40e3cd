"""A replay compares what was really sent: after compactions, with what plugins changed, to whoever stood in."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from e2e.agent.test_compaction import LONG, TOO_LONG, Model, hosted, tools
from hermes_agent.app.command_line import run
from hermes_agent.core.messages import Notice
from hermes_agent.testing import ModelFailure, PluginHost, ScriptedModel, call, plugin_host, served

SMALL = {"protect_first_n": 1, "protect_last_n": 4}


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `hermes sessions replay` over the conversation of a host: its exit status, and its lines without the ids."""

    def replay(host: PluginHost, *options: str) -> tuple[int, Any]:
        monkeypatch.setenv("HERMES_HOME", str(host.host.home))
        capsys.readouterr()
        status = run(["sessions", "replay", host.conversation.session_id, *options])
        out = capsys.readouterr().out
        return status, json.loads(out) if "--json" in options else [
            line.split("  ", 2)[1:] for line in out.splitlines()
        ]

    return replay


def compactions(host: PluginHost) -> int:
    with closing(sqlite3.connect(host.host.home / "state.db")) as db:
        return int(db.execute("SELECT count(*) FROM compactions").fetchone()[0])


def test_after_compactions_between_and_inside_turns_every_request_is_the_same(replayed: Any) -> None:
    steps = [[call("fetch", page=n), call("fetch", page=-n)] for n in range(1, 7)]
    model = Model("one", *steps, "done", *[f"answer {n}" for n in range(8)])
    with hosted(model, tools, length=6000, compression=SMALL) as host:
        host.ask("hello")
        answer = host.ask("Read everything about otters, exactly twice each.")
        assert any(isinstance(event, Notice) for event in answer.events)
        for n in range(6):
            host.ask(f"question {n} {LONG}")
        host.run_command("/compress")
        host.ask("and now?")
        assert compactions(host) >= 3
        status, lines = replayed(host)
    assert (status, {what for _, what in lines}) == (0, {"the same"})
    assert len(lines) == 9


def test_a_request_that_was_too_long_and_was_made_again_shorter_is_the_same(replayed: Any) -> None:
    model = Model("one", "two", "three", TOO_LONG, "after all", [call("fetch")], "in the end")
    with hosted(model, tools, length=100_000, compression=SMALL) as host:
        for n in range(4):
            host.ask(f"question {n} {LONG}")
        host.ask("and a page")
        assert compactions(host) >= 1
        status, lines = replayed(host)
    assert (status, lines[-2:]) == (0, [["2 request(s)", "the same"], ["2 request(s)", "the same"]])


def test_a_request_that_request_middleware_changed_is_said_to_be(replayed: Any) -> None:
    def register(ctx: Any) -> None:
        def shout(request: dict[str, Any], **kwargs: Any) -> Any:
            if "loud" not in str(request["messages"][-1]["content"]):
                return None
            last = {"role": "user", "content": "LOUD"}
            return {"request": {**request, "messages": [*request["messages"][:-1], last]}}

        ctx.register_middleware("llm_request", shout)

    with plugin_host(register, model=["one", "two", "three"]) as host:
        for text in ("quiet", "loud", "quiet again"):
            host.ask(text)
        status, lines = replayed(host)
        as_json = replayed(host, "--json")[1]
    assert (status, [what for _, what in lines]) == (
        0,
        ["the same", "changed by plugin under-test: request 1", "the same"],
    )
    assert [turn["changed"] for turn in as_json] == [{}, {"1": ["under-test"]}, {}]


def test_tools_that_remained_after_middleware_are_known_to_a_replay_when_they_are_all(replayed: Any) -> None:
    def register(ctx: Any) -> None:
        schema = {"name": "one", "description": "x", "parameters": {"type": "object", "properties": {}}}
        ctx.register_tool("one", "alone", schema, lambda args, **kw: "done")
        ctx.register_middleware("llm_request", narrow)

    def narrow(request: dict[str, Any], **kwargs: Any) -> Any:
        if "narrow" not in str(request["messages"][-1]["content"]):
            return None
        return {"request": {**request, "tools": [t for t in request["tools"] if t["function"]["name"] == "one"]}}

    with plugin_host(register, model=["first", "second"]) as host:
        host.ask("narrow")
        host.conversation.toolsets = ("alone",)
        host.ask("plain")
        assert [what for _, what in replayed(host)[1]] == ["changed by plugin under-test: request 1", "the same"]


def test_a_temperature_that_middleware_added_is_a_change_too(replayed: Any) -> None:
    def register(ctx: Any) -> None:
        ctx.register_middleware("llm_request", lambda request, **kw: {"request": {**request, "temperature": 0.1}})

    with plugin_host(register, model=["one"]) as host:
        host.ask("hello")
        assert replayed(host)[1][0][1].startswith("changed by plugin ")


def test_execution_middleware_that_passes_a_request_on_changes_nothing_and_one_that_answers_is_named(
    replayed: Any,
) -> None:
    def register(ctx: Any) -> None:
        def around(request: dict[str, Any], next_call: Any, **kwargs: Any) -> Any:
            said = str(request["messages"][-1]["content"])
            if said == "cached":
                return "from the cache"
            if said == "other":
                return next_call({**request, "messages": [*request["messages"], {"role": "user", "content": "more"}]})
            return next_call()

        ctx.register_middleware("llm_execution", around)

    with plugin_host(register, model=["one", "two"]) as host:
        for text in ("plain", "cached", "other"):
            host.ask(text)
        status, lines = replayed(host)
    assert status == 0
    assert [what.startswith("changed by plugin ") for _, what in lines] == [False, True, True]


def test_what_was_sent_to_a_model_that_stood_in_is_the_same(replayed: Any) -> None:
    other = ScriptedModel("from the other", name="other")
    with served(ScriptedModel(ModelFailure("no such key", 401), name="first")) as url, served(other) as away:
        config = {
            "model": {"provider": "custom", "base_url": url, "default": "first"},
            "fallback_providers": [{"provider": "custom", "base_url": away, "model": "other"}],
        }
        with plugin_host(lambda ctx: None, config=config) as host:
            assert host.ask("hello").text == "from the other"
            assert replayed(host) == (0, [["1 request(s)", "the same"]])


def test_a_digest_that_is_not_that_of_what_was_sent_is_found(replayed: Any) -> None:
    with plugin_host(lambda ctx: None, model=["one"]) as host:
        host.ask("hello")
        with closing(sqlite3.connect(host.host.home / "state.db")) as db, db:
            db.execute("UPDATE turn_sent SET digest = 'another'")
        assert replayed(host) == (1, [["1 request(s)", "not the same: request 1"]])
        with closing(sqlite3.connect(host.host.home / "state.db")) as db, db:
            db.execute("DELETE FROM turn_sent")  # as a release before left it
        said = "the same but for what plugins may have changed: request 1"
        assert replayed(host) == (0, [["1 request(s)", said]])
