"""Options of a session: `/model NAME key=value` is read, changed and sent, and what a model lacks is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import Notice, fold
from hermes_agent.host import Host
from hermes_agent.models.request_options import change_model_text, read_options, split_model_text
from hermes_agent.policy import NoApprover
from peers.wires import Reply, WireModel


def test_a_change_keeps_the_model_and_the_other_options() -> None:
    text = change_model_text("", "m-2 temperature=0.5 stop='the end'")
    assert split_model_text(text) == ("m-2", {"temperature": "0.5", "stop": "the end"})
    text = change_model_text(text, "seed=7 temperature=")
    assert split_model_text(text) == ("m-2", {"stop": "the end", "seed": "7"})
    assert split_model_text(change_model_text(text, "m-3"))[0] == "m-3"
    options = read_options({"max_tokens": "50", "tool_choice": "todo", "response_format": '{"type": "object"}'})
    assert options.values() == {
        "max_tokens": 50,
        "tool_choice": {"type": "function", "function": {"name": "todo"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("temprature=1", "Did you mean temperature?"),
        ("temperature=warm", "expected a number from 0 to 2"),
        ("max_tokens=0", "expected a whole number from 1"),
        ("response_format=xml", "expected text, json_object or a JSON schema"),
        ("m-1 m-2", "more than one model"),
        ("stop='x", "cannot be read"),
    ],
)
def test_what_is_no_option_is_refused_with_what_is_expected(text: str, says: str) -> None:
    with pytest.raises(UserError, match=r"^") as caught:
        change_model_text("", text)
    assert says in f"{caught.value}"


def _home(tmp_path: Path, model: WireModel, **config: Any) -> Path:
    block = {"provider": "custom", "base_url": model.url, "default": "m-1", "api_key": "k-0123456789"}
    given = {"model": block, "compression": {"enabled": False}, **config}
    (tmp_path / "config.yaml").write_text(json.dumps(given))
    return tmp_path


async def test_options_of_a_session_reach_its_model_and_are_left_out_once_where_they_are_refused(
    tmp_path: Path,
) -> None:
    async def main(home: Path) -> list[list[str]]:
        host = Host.build(home)
        try:
            talk = await host.agent.open(platform="cli", approver=NoApprover("here"))
            talk.use_model("temperature=0.25 seed=7")
            notices = []
            for text in ("hi", "more"):
                events = [event async for event in talk.turn(text)]
                notices.append([event.text for event in events if isinstance(event, Notice)])
            talk.use_model("m-2 temperature=")
            await fold(talk.turn("again"))
            await talk.close("quit")
            return notices
        finally:
            await host.aclose()

    with WireModel(Reply("unsupported parameter: seed", status=400), Reply()) as model:
        notices = await main(_home(tmp_path, model))
        sent = [(b["model"], b.get("temperature"), b.get("seed")) for b in model.bodies]
    assert sent == [("m-1", 0.25, 7), ("m-1", 0.25, None), ("m-1", 0.25, None), ("m-2", None, 7)]
    assert notices == [["seed is left out for m-1 of custom: the provider refuses it."], []]


async def test_a_side_task_has_options_of_its_own(tmp_path: Path) -> None:
    task: dict[str, Any] = {"temperature": 0.1, "top_p": 0.9, "max_tokens": 40, "seed": 3, "stop": ["END"]}
    task |= {"reasoning_effort": "low", "response_format": {"type": "json_object"}}

    with WireModel(Reply("no seed here: seed is not supported", status=400), Reply("A title")) as model:
        host = Host.build(_home(tmp_path, model, auxiliary={"title_generation": task}))
        try:
            assert host.side_answer("title_generation", "Write a title.", 200) == "A title"
        finally:
            await host.aclose()
        first, second = model.bodies
    assert {name: first[name] for name in task} == task
    assert {name: second.get(name) for name in task} == {**task, "seed": None}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("required", {"tool_choice": "required", "tools": ["look"]}), ("auto", {"tools": ["look"]}), ("none", {})],
)
async def test_a_side_task_has_a_choice_among_the_tools_that_its_call_offers(
    tmp_path: Path, choice: str, sent: dict[str, Any]
) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    with WireModel(Reply("Done.")) as model:
        host = Host.build(_home(tmp_path, model, auxiliary={"mcp": {"tool_choice": choice}}))
        try:
            await host.side_request("mcp", [{"role": "user", "content": "Look."}], tools=[tool])
        finally:
            await host.aclose()
        [body] = model.bodies
    if "tools" in body:
        body["tools"] = [each["function"]["name"] for each in body["tools"]]
    assert {name: body[name] for name in ("tool_choice", "tools") if name in body} == sent
