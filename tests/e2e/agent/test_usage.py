"""What a model call costs is written down, shown, and limited."""

from __future__ import annotations

import itertools
import json
import time
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from hermes_agent.agent.settings import UsageLimits
from hermes_agent.app.command_line import run
from hermes_agent.core.messages import Notice, TurnEvent, TurnFinished, Usage
from hermes_agent.sessions import Transcript, UsageLedger, UsageRecord
from hermes_agent.testing import call as scripted_call
from hermes_agent.testing import plugin_host
from unit.agent.test_turn import Bench, call, events_of


def ledger(path: Path) -> UsageLedger:
    return UsageLedger(path / "state.db")


async def ends(path: Path, limits: UsageLimits, *, platform: str = "cli", before: int = 0) -> list[TurnFinished]:
    """Say `go`, `again` in a session whose turns use 24 and then 12 tokens; return the ends."""
    if before:
        book = ledger(path)
        book.record(UsageRecord(Usage(before, 0), cause="title", provider="p", model="m", cost_usd=before / 100))
        book.close()
    bench = Bench(path, [[call(1)], "one", "two"], limits=limits)

    async def work() -> list[TurnEvent]:
        talk = await bench.open("s1", platform=platform)
        return [(await events_of(talk, text))[-1] for text in ("go", "again")]

    found: list[TurnFinished] = await bench.run(work())
    return found


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        (UsageLimits(session_tokens=24), "limits.session_tokens"),
        (UsageLimits(session_tokens=20), "limits.session_tokens"),
        (UsageLimits(day_tokens=24), "limits.day_tokens"),
    ],
)
async def test_a_session_that_reached_its_limit_is_told_so_and_asks_no_model(
    tmp_path: Path, limits: UsageLimits, key: str
) -> None:
    first, second = await ends(tmp_path, limits)
    assert first.reason == "answered"
    assert second.reason == "stopped"
    assert key in second.text
    assert second.usage.total_tokens == 0


async def test_a_limit_is_noticed_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    first, _ = await ends(tmp_path, UsageLimits(session_tokens=12))
    assert first.reason == "stopped"
    assert first.text == (
        "I stopped: this session has used 12 tokens, and the operator's limit is 12 (`limits.session_tokens`)."
    )
    assert Transcript(tmp_path / "state.db").messages("s1")[-3].text == first.text


async def test_calls_outside_turns_count_for_the_day(tmp_path: Path) -> None:
    first, _ = await ends(tmp_path, UsageLimits(day_usd=1.0), before=150)
    assert (
        first.text == "I stopped: the agent has used $1.50 today, and the operator's limit is $1.00 (`limits.day_usd`)."
    )


async def test_the_limit_of_a_job_is_of_jobs_alone(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    assert [e.reason for e in await ends(tmp_path, UsageLimits(job_tokens=24))] == ["answered", "answered"]
    assert [e.reason for e in await ends(tmp_path / "job", UsageLimits(job_tokens=24), platform="cron")] == [
        "answered",
        "stopped",
    ]


def llm_plugin(seen: list[str]) -> Any:
    """A command `/side` that asks the model for itself."""

    def register(ctx: Any) -> None:
        def side(raw: str) -> str:
            try:
                seen.append(ctx.llm.complete([{"role": "user", "content": raw or "go"}]).text)
            except Exception as exc:
                seen.append(str(exc))
            return "done"

        ctx.register_command("side", side)

    return register


def test_what_plugins_and_side_tasks_ask_is_held_by_the_caps_too() -> None:
    seen: list[str] = []
    with plugin_host(llm_plugin(seen), model=["one", "two", "never"], config={"limits": {"day_tokens": 1}}) as host:
        host.run_command("/side")
        settled(host, 1)
        host.run_command("/side")
        assert host.ask("hello").text.startswith("I stopped: the agent has used")
    assert seen[0] == "one"
    assert seen[1].startswith("I stopped: the agent has used") and "limits.day_tokens" in seen[1]
    assert len(host.model.requests) == 1


def settled(host: Any, count: int) -> dict[str, Any]:
    """Wait until so many calls are on record; return them by cause."""
    deadline = time.monotonic() + 30
    while host.host.ledger.totals().requests < count and time.monotonic() < deadline:
        time.sleep(0.02)
    found: dict[str, Any] = host.host.ledger.totals_by("cause")
    return found


def test_every_request_that_the_model_server_saw_has_a_cause_on_record() -> None:
    config = {
        "auxiliary": {"title_generation": {"enabled": True}, "transient_retries": 0},
        "compression": {"protect_first_n": 0, "protect_last_n": 1},
    }

    def answer(request: dict[str, Any]) -> Any:
        said = [m for m in request["messages"] if m["role"] == "user"]
        last = request["messages"][-1]
        if last["role"] == "user" and str(last["content"]).startswith("hand on"):
            return scripted_call("delegate_task", goal="look at it")
        if last["role"] == "user" and str(last["content"]).startswith("look up"):
            return scripted_call("session_search", query="otter", summarize=True)
        return f"answer {len(said)}"

    with plugin_host(llm_plugin([]), model=[answer] * 20, config=config) as host:
        host.ask("my otter is called Ottilie")
        host.new_session()
        for text in ("look up the otter", "hand on this", "and more"):
            host.ask(text)
        host.run_command("/side ask")
        host.run_command("/compress")
        expected = {
            "turn": 6,
            "delegation": 1,
            "plugin": 1,
            "session_search": 1,
            "compression": 1,
            "title_generation": 2,
        }
        by_cause = settled(host, sum(expected.values()))
        assert {cause: spent.requests for cause, spent in by_cause.items()} == expected
        assert len(host.model.requests) == sum(expected.values())


def test_sums_by_cause_plugin_and_source_add_up(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    details: dict[str, Any] = {"provider": "p", "model": "m"}
    book.record(UsageRecord(Usage(10, 1, 4), cause="title", seconds=0.5, **details))
    book.record(
        UsageRecord(Usage(20, 2), cause="plugin", plugin="weather", cost_usd=0.25, source="telegram", **details)
    )
    book.record(UsageRecord(Usage(30, 3), cause="plugin", plugin="weather", cost_usd=0.5, source="telegram", **details))
    assert {k: v.tokens for k, v in book.totals_by("cause").items()} == {"plugin": 55, "title": 11}
    assert {k: v.cost_usd for k, v in book.totals_by("plugin").items()} == {"weather": 0.75, "": 0.0}
    assert list(book.totals_by("day", days=1)) == [date.today().isoformat()]
    assert {k: v.requests for k, v in book.totals_by("model", source="telegram").items()} == {"m": 2}
    assert book.totals() == (3, 60, 6, 4, 0.75, 1, 0.5, 11)
    with pytest.raises(ValueError, match="no column"):
        book.totals_by("secrets")


def test_usage_and_insights_show_what_a_conversation_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_host(lambda ctx: None, model=["hello there"]) as host:
        host.ask("hi")
        shown = host.run_command("/usage")
        monkeypatch.setenv("HERMES_HOME", str(host.host.home))
        assert run(["insights", "--days", "1"]) == 0
        table = capsys.readouterr().out
        assert run(["insights", "--by", "cause", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
    assert shown is not None
    assert shown.startswith("This session: ")
    assert "1 call(s)" in shown
    assert "Today, all sessions: " in shown
    assert date.today().isoformat() in table
    assert "scripted-model" in table
    assert found["cause"]["turn"]["requests"] == 1


@pytest.mark.parametrize(
    ("key", "platform", "subject"),
    [
        ("session", "cli", "This session has used {}"),
        ("job", "cron", "This job has used {}"),
        ("day", "cli", "The agent has used {} today"),
    ],
)
@pytest.mark.parametrize(
    ("unit", "cap", "used", "limit"), [("tokens", 130, "108 tokens", "130"), ("usd", 13.0, "$10.80", "$13.00")]
)
async def test_a_cap_is_announced_once_when_four_fifths_of_it_are_used(
    tmp_path: Path, key: str, platform: str, subject: str, unit: str, cap: float, used: str, limit: str
) -> None:
    limits = UsageLimits(**{f"{key}_{unit}": cap}, unknown_price=100_000)  # type: ignore[arg-type]
    bench = Bench(tmp_path, ["twelve tokens"] * 11, limits=limits)

    async def work() -> list[list[str]]:
        talk = await bench.open("s1", platform=platform)
        turns = [await events_of(talk, "go") for _ in range(11)]
        return [[event.text for event in events if isinstance(event, Notice)] for events in turns]

    notice = f"{subject.format(used)} of the operator's limit of {limit} (`limits.{key}_{unit}`)."
    assert await bench.run(work()) == [*[[]] * 9, [notice], []]


def test_insights_show_sessions_people_and_plugins_and_draw_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    book = ledger(tmp_path)
    for at in range(12):
        given = {"session_id": f"s{at}", "principal": f"irc:p<{at}>", "plugin": "weather" if at % 2 else ""}
        book.record(UsageRecord(Usage(10 * at, 1), "p", "m", cost_usd=at / 4, **given))
    book.close()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert run(["insights"]) == 0
    table = capsys.readouterr().out
    assert "irc:p<11>" in table and "weather" in table and "session " not in table
    assert run(["insights", "--by", "session", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["session"]["s11"]["cost_usd"] == 2.75
    picture = tmp_path / "usage.svg"
    assert run(["insights", "--picture", str(picture), "--days", "7"]) == 0
    assert capsys.readouterr().out == f"{picture}\n"
    drawn = ElementTree.parse(picture).getroot()
    texts = [element.text for element in drawn.iter() if element.text]
    assert "Models in the last 7 days: $16.50, 12 calls" in texts
    assert {"irc:p<11>", "5 others", "person", "plugin", "cause", "model"} <= set(texts)
    assert len([e for e in drawn.iter() if e.tag.endswith("rect") and len(e)]) == 7
    assert run(["insights", "--picture", str(tmp_path / "no" / "folder.svg")]) == 1
    assert "name another file" in capsys.readouterr().err


def test_insights_of_an_empty_home_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert run(["insights"]) == 0
    assert capsys.readouterr().out == "No model was asked in the last 30 day(s).\n"


def test_the_bytes_of_a_request_begin_with_those_of_the_one_before_across_turns() -> None:
    def register(ctx: Any) -> None:
        schema = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
        ctx.register_tool("look", schema=schema, handler=lambda args, **kw: f"seen {args['at']}")
        ctx.register_hook("pre_llm_call", lambda user_message, **kw: {"context": f"about {user_message}"})

    note = scripted_call("memory", action="add", target="memory", content="Tea, not coffee.")
    script = [
        *(scripted_call("look", at="a"), "one"),
        *(note, "two"),
        *([scripted_call("look", at="b"), scripted_call("look", at="c")], "three"),
    ]
    with plugin_host(register, model=script) as host:
        for text in ("first", "second", "third"):
            host.ask(text)
        bodies = host.model.requests
    assert len(bodies) == 6
    for earlier, later in itertools.pairwise(bodies):
        assert json.dumps(later["tools"]) == json.dumps(earlier["tools"])
        said = json.dumps(earlier["messages"])[:-1]
        assert json.dumps(later["messages"]).startswith(said)
    assert "about second" in json.dumps(bodies[-1]["messages"])
