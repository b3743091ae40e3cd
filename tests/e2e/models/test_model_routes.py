"""`model.routes` and the probes of failed providers, through conversations with model servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, Notice, TurnFinished
from hermes_agent.host import Host
from hermes_agent.models.client_pool import EndpointHealth
from hermes_agent.models.model_routes import JOB, ModelRoutes, RouteQuestion
from hermes_agent.policy import NoApprover
from hermes_agent.sessions import Transcript
from peers.wires import Reply, WireModel

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PICTURE = [{"type": "text", "text": "what is it?"}, IMAGE]


def _home(tmp_path: Path, model: WireModel, **config: Any) -> Host:
    routes = config.pop("routes", [])
    block = {"provider": "custom", "base_url": model.url, "default": "m-1", "api_key": "k-0123456789", "routes": routes}
    given = {"model": block, "compression": {"enabled": False}, "agent": {"api_max_retries": 0}, **config}
    (tmp_path / "config.yaml").write_text(json.dumps(given))
    return Host.build(tmp_path)


async def say(host: Host, *messages: Any, session: str = "", **given: Any) -> list[list[str]]:
    """Return the notices of turns in one conversation."""
    options = {"platform": "cli", "approver": NoApprover("here"), **given}
    talk = await host.agent.open(session or None, **options)
    found = []
    for message in messages:
        events = [event async for event in talk.turn(message)]
        assert isinstance(events[-1], TurnFinished)
        found.append([event.text for event in events if isinstance(event, Notice)])
    await talk.close("quit")
    return found


async def test_rules_choose_by_person_task_picture_and_length_and_a_session_never_goes_back(tmp_path: Path) -> None:
    rules = [
        {"model": "seeing", "vision": True},
        {"model": "long", "longer_than": 500},
        {"model": "theirs", "person": "irc:*"},
        {"model": "jobs", "task": "job"},
        {"model": "titles", "task": "title_generation"},
    ]

    async def main(host: Host) -> None:
        try:
            await say(host, "hi", PICTURE, "and now?", "x" * 4000)
            await say(host, "hi", principal="irc:anna")
            await say(host, "hi", platform="cron")
            await say(host, "x" * 4000, "short")
            await host.bridge.run(host.side_answer, "title_generation", "a title", 20)
            await say(host, "hi", model="named")
        finally:
            await host.aclose()

    with WireModel() as model:
        await main(_home(tmp_path, model, routes=rules))
        names = [body["model"] for body in model.bodies]
    assert names[:4] == ["m-1", "seeing", "seeing", "long"]
    assert names[4:] == ["theirs", "jobs", "long", "long", "titles", "named"]


async def test_a_stored_session_keeps_its_model_when_the_hour_of_a_rule_ends(tmp_path: Path) -> None:
    with WireModel() as model:
        host = _home(tmp_path, model)
        hour = [23]
        rules = [{"model": "night", "hours": "22:00-06:00"}, {"model": "cheap", "max_price": 0}, {"model": "day"}]
        routes = ModelRoutes(
            lambda: rules,
            lambda block: host.select_model(settings=block | {"provider": "custom", "base_url": model.url}),
            host.model_infos,
            lambda: datetime(2026, 12, 1, hour[0]),
        )

        def ask(kept: str = "") -> tuple[str, str]:
            rule, found = routes.find(RouteQuestion(JOB, kept=kept))
            assert found is not None
            return rule, found.model

        night, name = ask()
        hour[0] = 12
        day, other = ask()
        assert (name, other, ask(night)) == ("night", "day", (night, "night"))
        hour[0] = 5
        assert (ask(day), ask()) == ((day, "day"), (night, "night"))
        rules.pop()
        assert ask(day) == (night, "night"), "the rule is gone"
        await host.aclose()


@pytest.mark.parametrize(("limit", "chosen"), [(2, "fair"), (1.99, "m-1"), (3, "dear")])
async def test_a_rule_takes_a_model_up_to_its_price_and_passes_over_a_dearer_one(
    tmp_path: Path, limit: float, chosen: str
) -> None:
    prices = {"dear": "0.000003", "fair": "0.000002"}  # for a token of the answer
    listed = [{"id": name, "pricing": {"prompt": "0", "completion": price}} for name, price in prices.items()]
    with WireModel() as model:
        host = _home(tmp_path, model, routes=[{"model": name, "max_price": limit} for name in prices])
        file = host.model_infos._file(host.select_model().endpoint)
        await asyncio.to_thread(_write_models, file, listed)
        try:
            await say(host, "hi")
        finally:
            await host.aclose()
        assert [body["model"] for body in model.bodies] == [chosen]


def _write_models(file: Path, listed: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"fetched_at": time.time(), "models": listed}))


async def test_a_session_keeps_its_model_over_restarts_and_in_branches(tmp_path: Path) -> None:
    rules = [{"model": "seeing", "vision": True}, {"model": "titles", "task": "title_generation"}]

    async def main(model: WireModel, *messages: Any, **given: Any) -> None:
        host = _home(tmp_path, model, routes=rules)
        try:
            await say(host, *messages, **given)
        finally:
            await host.aclose()

    with WireModel() as model:
        await main(model, "hi", PICTURE, session="s1")
        await main(model, "and now?", session="s1")
        await main(model, "hi", session="s2")
        with contextlib.closing(Transcript(tmp_path / "state.db")) as stored:
            branch = stored.branch("s1", "another way")
        rules.insert(0, {"model": "everyone's"})
        for session in ("s1", branch, "s2", "s3"):
            await main(model, "again", session=session)
        rules.pop(0)
        await main(model, "the rule is gone", session="s3")
        names = [body["model"] for body in model.bodies]
    assert names == ["m-1", "seeing", "seeing", "m-1", "seeing", "seeing", "m-1", "everyone's", "m-1"]


async def test_a_history_of_the_caller_with_a_picture_goes_to_a_model_that_sees_it(tmp_path: Path) -> None:
    with WireModel() as model:
        host = _home(tmp_path, model, routes=[{"model": "seeing", "vision": True}])
        before = [Message("user", PICTURE), Message("assistant", "A cat.")]
        await say(host, "and now?", history=before, keep=False)
        await say(host, "and now?", history=before[1:], keep=False)
        await host.aclose()
        assert [body["model"] for body in model.bodies] == ["seeing", "m-1"]


async def test_a_failed_provider_is_tried_with_a_probe_and_the_fallback_is_announced_once(tmp_path: Path) -> None:
    async def main(host: Host, model: WireModel) -> tuple[list[list[str]], list[list[str]]]:
        try:
            first = await say(host, "one", "two")
            health = host.agent.choose_model(None).health
            health._until = 0.0  # the pause is over
            second = await say(host, "three")
            assert health._probing is not None
            await health._probing
            assert health.is_paused  # the probe failed
            health._until = 0.0
            await say(host, "four")
            await health._probing
            assert not health.is_paused
            return first, second + await say(host, "five")
        finally:
            await host.aclose()

    broken = Reply("out of order", status=500)
    with WireModel(broken, broken, Reply("ok"), Reply("back")) as model, WireModel(Reply("instead")) as other:
        chain = [{"provider": "custom", "base_url": other.url, "model": "m-2", "api_key": "k-0123456789"}]
        first, later = await main(_home(tmp_path, model, fallback_providers=chain), model)
        said = [body["messages"][-1]["content"] for body in model.bodies]
        assert [body["messages"][-1]["content"] for body in other.bodies] == ["one", "two", "three", "four"]
    probe = "Answer with the one word: ok"
    assert said == ["one", probe, probe, "five"]
    assert [len(notices) for notices in first] == [1, 0] and "Fallback: from model m-1" in first[0][0]
    assert "It is being tried in the background." in later[0][0] and later[1] == []


def test_a_provider_that_fails_again_soon_is_paused_for_longer() -> None:
    async def never() -> None:
        raise ModelError("unreachable", "no")

    health = EndpointHealth(never)
    health.pause(60)
    first = health.left_s
    health.recover()
    health.pause(60)
    assert first <= 60 < health.left_s <= 120


@pytest.mark.parametrize("hours", ["25:00-06:00", "22-6", "night"])
def test_a_rule_with_hours_that_are_none_is_refused(tmp_path: Path, hours: str) -> None:
    from hermes_agent.core.errors import ConfigError

    with WireModel() as model, pytest.raises(ConfigError, match=r"hours"):
        _home(tmp_path, model, routes=[{"model": "m", "hours": hours}])
