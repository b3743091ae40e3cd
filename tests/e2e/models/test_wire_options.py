"""Every option of a request in the words of each provider, against expected bodies in files.

`source` of a file is the page of the provider that documents the fields. `compared` says when the file was compared
field by field, and with what: mostly the types of the provider's own package, which are made from its documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.messages import Notice, TurnFinished
from hermes_agent.host import Host
from hermes_agent.models.request_options import OPTION_NAMES, make_options
from hermes_agent.policy import NoApprover
from peers.scripted import KEY
from peers.wires import Reply, WireModel

FOLDER = Path(__file__).parents[2] / "data" / "request_options"
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))
OF_EACH_REQUEST = {"model", "messages", "tools", "stream", "stream_options", "input", "instructions", "system"} | {
    *("include", "store", "prompt_cache_key", "cache_control"),
}
"""Fields of a body that are no options."""


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


async def answer(home: Path, given: dict[str, Any], base_url: str) -> tuple[str, list[str]]:
    """Ask the model of a file with its options; return the answer and the notices."""
    block = {"provider": given["provider"], "base_url": base_url, "default": given["model"], "api_key": KEY}
    block["api_mode"] = given.get("api_mode", "")
    (home / "config.yaml").write_text(json.dumps({"model": block, "compression": {"enabled": False}}))
    host = Host.build(home)
    try:
        talk = await host.agent.open(platform="cli", approver=NoApprover("here"), keep=False, history=[])
        events = [event async for event in talk.turn("hi", options=make_options(given["options"]))]
        text = next((event.text for event in reversed(events) if isinstance(event, TurnFinished)), "")
        return text, [event.text for event in events if isinstance(event, Notice)]
    finally:
        await host.aclose()


@pytest.mark.parametrize("name", FILES)
async def test_a_request_has_the_options_in_the_words_of_the_provider(tmp_path: Path, name: str) -> None:
    given = load(name)
    replies = [Reply(text, status=400) for text in given.get("refusals", ())] + [Reply()]
    with WireModel(*replies) as model:
        _, notices = await answer(tmp_path, given, model.url)
        body = model.bodies[-1]
    assert {field: value for field, value in body.items() if field not in OF_EACH_REQUEST} == given["body"]
    assert [notice.split(" ", 1)[0] for notice in notices] == given["left_out"]


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_a_choice_of_tools_that_the_agent_applies_itself_is_no_option_that_a_provider_lacks(
    tmp_path: Path, choice: str
) -> None:
    given = {**load("ollama"), "options": {"tool_choice": choice}}
    with WireModel(Reply()) as model:
        _, notices = await answer(tmp_path, given, model.url)
        body = model.bodies[-1]
    assert notices == [] and "tool_choice" not in body
    assert ("tools" in body) is (choice == "auto")


@pytest.mark.parametrize("name", ["openai", "openai-responses", "anthropic", "anthropic-effort", "openrouter"])
async def test_a_server_that_others_wrote_answers_a_request_with_every_option(
    scripted: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    given = load(name)
    with scripted([{"match": {}, "response": {"content": '{"a": "b"}'}}]) as model:
        text, _ = await answer(tmp_path, given, model.base_url)
        asked = model.requests()[-1]["body"]
    assert text == '{"a": "b"}'
    assert asked["model"] == given["model"]
    assert asked.get("temperature") == given["body"].get("temperature")


@pytest.mark.parametrize(
    ("name", "module", "params"),
    [
        ("openai", "openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
        ("openai-responses", "openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
    ],
)
def test_the_package_of_openai_has_each_field_with_such_a_value(name: str, module: str, params: str) -> None:
    pydantic = pytest.importorskip("pydantic", reason="it comes with the extra `openai`")
    given = load(name)
    known = getattr(import_module(module), params)
    body = {**given["body"], "model": given["model"], "stream": True}
    assert set(body) <= set(known.__annotations__)
    pydantic.TypeAdapter(known).validate_python(body | ({"messages": []} if name == "openai" else {}))


def test_the_files_name_their_source_and_cover_every_option() -> None:
    covered: set[str] = set()
    for name in FILES:
        given = load(name)
        assert given["source"].startswith("https://"), name
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", given["compared"]["date"]) and given["compared"]["with"], name
        covered |= set(given["options"])
    assert set(OPTION_NAMES) <= covered
