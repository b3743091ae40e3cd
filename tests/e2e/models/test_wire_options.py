"""Every option of a request in the words of each provider, against expected bodies in files.

`source` of a file is the page of the provider that documents the fields. `compared` says when the file was compared
field by field, and with what: mostly the types of the provider's own package, which are made from its documentation. It
is null, with a `reason`, for a provider that documents no fields.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.messages import Notice, TurnFinished
from hermes_agent.host import Host
from hermes_agent.models.request_options import OPTION_NAMES, make_options
from hermes_agent.policy import NoApprover
from peers import install
from peers.scripted import KEY, ScriptedModel, scripted_model
from peers.wires import Reply, WireModel
from tiny_gguf import write_gguf

FOLDER = Path(__file__).parents[2] / "data" / "request_options"
PROVIDERS = Path(__file__).parents[3] / "plugins" / "model-providers"
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))
OF_EACH_REQUEST = {"model", "messages", "tools", "stream", "stream_options", "input", "instructions", "system"} | {
    *("include", "store", "prompt_cache_key", "cache_control"),
}
"""Fields of a body that are no options."""
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
LLAMA_CPP = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], 0
params.endpoint_slots, params.ui, params.n_parallel, params.n_ctx, params.verbosity = True, False, 1, 4096, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
import os; os._exit(0)
"""
"""llama.cpp's own HTTP server, until stdin ends; `/slots` shows how an answer was sampled."""


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


def options_of(body: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in body.items() if field not in OF_EACH_REQUEST and field[0] != "_"}


@pytest.fixture(scope="module")
def others_server() -> Iterator[ScriptedModel]:
    """A server that others wrote: it reads each request in the words of its protocol, and keeps it."""
    try:
        install.aimock(), install.node()
    except install.NotInstalled as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"a test server could not be installed: {exc}")
    with scripted_model([{"match": {}, "response": {"content": '{"a": "b"}'}}]) as model:
        yield model


def is_chat(given: dict[str, Any]) -> bool:
    return not given.get("api_mode") and given["provider"] != "anthropic"


@pytest.mark.parametrize("name", [name for name in FILES if not load(name).get("refusals")])
async def test_a_server_that_others_wrote_gets_the_options_in_the_words_of_the_provider(
    others_server: ScriptedModel, tmp_path: Path, name: str
) -> None:
    given = load(name)
    text, notices = await answer(tmp_path, given, others_server.base_url)
    body = others_server.requests()[-1]["body"]
    assert text == '{"a": "b"}'
    assert body["model"] == given["model"]
    if is_chat(given):
        assert options_of(body) == given["body"]
    else:  # it keeps other protocols in the words of chat completions
        assert body.get("temperature") == given["body"].get("temperature")
    assert [notice.split(" ", 1)[0] for notice in notices] == given["left_out"]


@pytest.mark.parametrize("name", [name for name in FILES if load(name).get("refusals") or not is_chat(load(name))])
async def test_a_request_has_the_options_in_the_words_of_the_provider_after_what_it_refuses(
    tmp_path: Path, name: str
) -> None:
    given = load(name)
    with WireModel(*(Reply(text, status=400) for text in given.get("refusals", ())), Reply()) as model:
        _, notices = await answer(tmp_path, given, model.url)
        body = model.bodies[-1]
    assert options_of(body) == given["body"]
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


@pytest.fixture
def llama_cpp(tmp_path: Path) -> Iterator[str]:
    """The address of llama.cpp's own server, with a model that says one text to everything."""
    if find_spec("xllamacpp") is None:
        pytest.skip("llama.cpp's server is not installed")
    weights = write_gguf(tmp_path / "m.gguf", TEMPLATE, "Go on END never")
    line = [sys.executable, "-c", LLAMA_CPP, str(weights)]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(60)


def last_slot(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/slots", timeout=60) as reply:
        [slot] = json.load(reply)
    found: dict[str, Any] = slot["params"]
    return found


async def test_the_server_of_llama_cpp_samples_by_the_options_that_it_is_asked_with(
    llama_cpp: str, tmp_path: Path
) -> None:
    given = load("llama.cpp")
    given["options"] |= {"tool_choice": "auto", "response_format": {"type": "text"}}
    text, notices = await answer(tmp_path, given, f"{llama_cpp}/v1")
    sampled = await asyncio.to_thread(last_slot, llama_cpp)
    assert (text.strip(), [notice.split(" ", 1)[0] for notice in notices]) == ("Go on", ["verbosity"])
    wanted = {name: given["options"][name] for name in ("temperature", "top_p", "seed", "max_tokens")}
    wanted |= {name: given["options"][name] for name in ("presence_penalty", "frequency_penalty")}
    assert {name: pytest.approx(sampled[name], abs=1e-6) for name in wanted} == wanted


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


def test_the_files_name_their_source_and_cover_every_option_for_each_provider() -> None:
    covered: dict[str, set[str]] = {}
    for name in FILES:
        given = load(name)
        assert given["source"].startswith("https://"), name
        if given["compared"] is None:
            assert "no page" in given["reason"], name
        else:
            assert re.fullmatch(r"20\d\d-\d\d-\d\d", given["compared"]["date"]) and given["compared"]["with"], name
        covered.setdefault(given["provider"], set()).update(given["options"])
    missing = {provider: set(OPTION_NAMES) - options for provider, options in covered.items()}
    assert {provider: options for provider, options in missing.items() if options} == {}


def test_each_bundled_provider_has_a_file() -> None:
    bundled = {path.parent.name for path in PROVIDERS.glob("*/plugin.yaml")}
    own_client = {"local"}  # it sends no such request: tests/plugins/local_model
    assert {load(name)["provider"] for name in FILES} == bundled - own_client
