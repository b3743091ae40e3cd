"""Caps in dollars where the price of a model is unknown: refused, said, or counted at the operator's price."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.app.command_line import run
from hermes_agent.app.start import unpriced_models
from hermes_agent.core.messages import Notice, TurnEvent
from hermes_agent.host import Host
from hermes_agent.models.model_catalog import ModelCatalog
from hermes_agent.models.providers import ModelEndpoint
from hermes_agent.testing import ModelFailure, PluginHost, ScriptedModel, call, plugin_host, served

UNKNOWN = "the price of scripted-model of custom is unknown"


def told(events: tuple[TurnEvent, ...]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def recorded(host: PluginHost, count: int) -> Any:
    """Return what was spent, once so many calls are on record."""
    deadline = time.monotonic() + 30
    while host.host.ledger.totals().requests < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return host.host.ledger.totals()


@contextlib.contextmanager
def limited(*answers: Any, usage: dict[str, Any] | None = None, plugin: Any = None, **limits: Any) -> Iterator[Any]:
    model = ScriptedModel(*answers, usage=usage)
    with plugin_host(plugin or (lambda ctx: None), model=model, config={"limits": limits}) as host:
        yield host


@pytest.mark.parametrize("key", ["session_usd", "day_usd"])
def test_under_a_cap_in_dollars_a_model_without_a_price_is_not_asked(key: str) -> None:
    with limited("never", **{key: 5}) as host:
        answer = host.ask("hello")
        assert UNKNOWN in answer.text and f"`limits.{key}`" in answer.text and "limits.unknown_price" in answer.text
        assert host.model.requests == []


def test_a_cap_of_jobs_alone_refuses_no_conversation_and_a_cap_in_tokens_needs_no_price() -> None:
    with limited("one", job_usd=5, day_tokens=10_000) as host:
        assert host.ask("hello").text == "one"


def test_with_warn_it_is_said_once_and_the_conversation_goes_on() -> None:
    with limited("one", "two", day_usd=5, unknown_price="warn") as host:
        first, second = host.ask("hello"), host.ask("again")
    assert (first.text, second.text) == ("one", "two")
    assert [UNKNOWN in text.lower() for text in told(first.events)] == [True]
    assert told(second.events) == []


def test_a_price_of_the_operator_s_counts_until_the_cap_is_reached() -> None:
    usage = {"prompt_tokens": 900_000, "completion_tokens": 100_000, "total_tokens": 1_000_000}
    with limited("one", "two", "never", usage=usage, session_usd=4, unknown_price=2.5) as host:
        assert [host.ask(text).text for text in ("a", "b")] == ["one", "two"]
        ended = host.ask("c").text
    assert ended.startswith("I stopped: this session has used $5.00") and "$4.00 (`limits.session_usd`)" in ended


def test_a_price_of_nothing_never_reaches_the_cap() -> None:
    with limited("one", "two", session_usd=0.01, unknown_price=0) as host:
        assert [host.ask(text).text for text in ("a", "b")] == ["one", "two"]


def test_side_tasks_and_plugins_are_refused_a_model_without_a_price_too() -> None:
    seen: list[str] = []

    def register(ctx: Any) -> None:
        def side(raw: str) -> str:
            try:
                seen.append(ctx.llm.complete([{"role": "user", "content": "go"}]).text)
            except Exception as exc:
                seen.append(str(exc))
            return "done"

        ctx.register_command("side", side)

    with limited("never", plugin=register, day_usd=5) as host:
        host.run_command("/side")
        assert host.model.requests == []
    assert UNKNOWN in seen[0]


def test_what_is_asked_for_a_sub_agent_and_for_a_summary_is_on_the_account_of_the_session() -> None:
    def register(ctx: Any) -> None:
        def ask(args: dict[str, Any], **kwargs: Any) -> str:
            return ctx.llm.complete([{"role": "user", "content": "aside"}]).text

        ctx.register_tool("ask_aside", "x", {"name": "ask_aside", "parameters": {"type": "object"}}, ask)

    def answer(request: dict[str, Any]) -> Any:
        last = request["messages"][-1]
        if str(last["content"]).startswith("hand on"):
            return call("delegate_task", goal="child: look at it")
        if str(last["content"]).startswith("child"):
            return call("ask_aside")
        return "fine"

    config = {"compression": {"protect_first_n": 0, "protect_last_n": 1}}
    with plugin_host(register, model=[answer] * 20, config=config) as host:
        host.ask("hand on this")
        host.ask("and more")
        host.run_command("/compress")
        recorded(host, 7)
        session_id = host.conversation.session_id
        by_session = host.host.ledger.totals_by("session_id")
        causes = host.host.ledger.totals_by("cause", session_id=session_id)
    assert list(by_session) == [session_id]
    assert {cause: spent.requests for cause, spent in causes.items()} == {
        "turn": 3,
        "delegation": 2,
        "plugin": 1,
        "compression": 1,
    }


def test_nobody_of_unknown_price_stands_in_for_a_model_whose_price_is_known() -> None:
    other = ScriptedModel("never", name="other")
    with served(ScriptedModel(ModelFailure("no such key", 401), name="gpt-5")) as url, served(other) as away:
        config = {
            "model": {"provider": "custom", "base_url": url, "default": "gpt-5"},
            "fallback_providers": [{"provider": "custom", "base_url": away, "model": "other"}],
            "limits": {"day_usd": 5},
            "auxiliary": {"transient_retries": 0},
        }
        with plugin_host(lambda ctx: None, config=config) as host:
            priced = {"id": "gpt-5", "pricing": {"prompt": "0.000001", "completion": "0.000001"}}
            list_prices(host.host, [priced])
            with pytest.raises(Exception, match="gpt-5"):
                host.ask("hello")
    assert other.requests == []


def list_prices(host: Host, models: list[dict[str, Any]]) -> None:
    """Keep a list of models, as if the provider had been asked for it."""
    file = host.model_infos._file(host.select_model().endpoint)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"fetched_at": time.time(), "models": models}))


def test_a_model_of_a_rule_without_a_price_is_named_at_the_start() -> None:
    with served(ScriptedModel("never")) as url:
        block = {"provider": "custom", "base_url": url, "default": "gpt-5"}
        rules = [{"model": "free", "provider": "local", "task": "job"}, {"model": "odd", "vision": True}]
        config = {"model": block | {"routes": rules}, "limits": {"day_usd": 100}}
        with plugin_host(lambda ctx: None, config=config) as host:
            list_prices(host.host, [{"id": "gpt-5", "pricing": {"prompt": "0.1", "completion": "0.1"}}])
            (said,) = unpriced_models(host.host)
    assert said.startswith("model.routes[1]: ") and "odd" in said


def test_a_price_in_the_list_of_the_provider_is_a_known_one() -> None:
    with limited("one", day_usd=5) as host:
        assert unpriced_models(host.host)
        host.host.model_infos._read.clear()
        list_prices(host.host, [{"id": "scripted-model", "pricing": {"prompt": "0.1", "completion": "0.1"}}])
        assert unpriced_models(host.host) == []
        assert host.ask("hello").text == "one"
        assert "limits.day_usd" in host.ask("again").text


def test_the_embedded_model_and_a_server_of_one_s_own_cost_nothing(tmp_path: Path) -> None:
    with plugin_host(lambda ctx: None) as host:
        known, infos = host.host.model_providers, ModelCatalog(tmp_path)
        ollama = next(p for p in known.providers() if p.name == "ollama")
        custom = next(p for p in known.providers() if p.name == "custom")
        local = next(p for p in known.providers() if p.name == "local")
    assert infos.is_priced(ModelEndpoint(local, ""), "any")
    assert infos.is_priced(ModelEndpoint(ollama, "http://127.0.0.1:11434/v1"), "qwen3")
    assert infos.is_priced(ModelEndpoint(ollama, "http://127.0.0.1:11434/v1"), "of-no-family")
    assert not infos.is_priced(ModelEndpoint(ollama, "https://ollama.example/v1"), "qwen3")
    assert not infos.is_priced(ModelEndpoint(custom, "http://127.0.0.1:4000/v1"), "qwen3")  # it may be a proxy


@pytest.mark.parametrize(
    ("policy", "level", "follows"), [("refuse", "wrong", "not asked"), ("warn", "note", "counted")]
)
def test_the_start_and_doctor_say_which_cap_cannot_be_kept(
    policy: str,
    level: str,
    follows: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config.yaml").write_text(
        "model: {provider: custom, base_url: 'http://127.0.0.1:9/v1', default: some-model}\n"
        f"limits: {{day_usd: 5, unknown_price: {policy}}}\nterminal: {{sandbox: 'off'}}\n"
        "auxiliary: {compression: {model: small-model}}\n"
    )
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    run(["doctor", "--offline", "--json"])
    lines = [line for line in json.loads(capsys.readouterr().out) if line["subject"] == "limits"]
    assert [line["level"] for line in lines] == [level, level]
    assert "model: the price of some-model of custom is unknown, so `limits.day_usd`" in lines[0]["text"]
    assert follows in lines[0]["text"] and "auxiliary.compression: the price of small-model" in lines[1]["text"]
    assert "price of some-model" in (tmp_path / "logs" / "agent.log").read_text()


def test_a_word_that_is_no_policy_and_a_cap_of_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    for value in ("maybe", "-1"):
        assert run(["config", "set", "limits.unknown_price", value]) != 0
    assert run(["config", "set", "limits.day_usd", "0"]) != 0
    assert run(["config", "set", "limits.unknown_price", "0.4"]) == 0
    assert run(["config", "set", "limits.unknown_price", "warn"]) == 0
    capsys.readouterr()
