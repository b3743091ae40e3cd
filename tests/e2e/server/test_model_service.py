"""The list of models, embeddings and the side tasks of web clients: OpenAI's client against the agent's server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web

from hermes_agent.host import Host
from hermes_agent.host.model_service import HostModels
from peers.wires import Reply, WireModel
from unit.server.scripted_door import KEY, LIMIT_S, serving

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TASKS = {
    "title": """Generate a concise, 3-5 word title with an emoji summarizing the chat history.
### Guidelines:
- Keep it clear and simple.
### Output:
JSON format: { "title": "your concise title here" }""",
    "tags": """Generate 1-3 broad tags categorizing the main themes of the chat history, along with 1-3 more specific \
subtopic tags.
### Guidelines:
- Start with high-level domains.
### Output:
JSON format: { "tags": ["tag1", "tag2", "tag3"] }""",
    "follow_ups": """Suggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next in \
this conversation as a **user**, based on the chat history, to help continue or deepen the discussion.
### Guidelines:
- Make questions concise.
### Output:
JSON format: { "follow_ups": ["Question 1?", "Question 2?", "Question 3?"] }""",
}
"""The prompts that Open WebUI sends after a turn (its documented defaults, shortened).

https://docs.openwebui.com/reference/env-configuration
"""
HISTORY = """
### Chat History:
<chat_history>
USER: What is the capital of Norway?
ASSISTANT: Oslo.
</chat_history>"""
TITLE = f"### Task:\n{TASKS['title']}{HISTORY}"


class Embedder(WireModel):
    """A model server with embeddings and a list of models."""

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.router.add_post("/v1/embeddings", self._embeddings)

    async def _embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append((request.path, dict(request.headers), json.dumps(body).encode()))
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        data = [{"object": "embedding", "index": i, "embedding": [0.5, len(text)]} for i, text in enumerate(texts)]
        return web.json_response(
            {"data": data, "model": body["model"], "usage": {"prompt_tokens": 9, "total_tokens": 9}}
        )


def _host(home: Path, config: dict[str, Any]) -> Host:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(json.dumps(config))
    return Host.build(home)


@asynccontextmanager
async def serving_host(home: Path, config: dict[str, Any]) -> AsyncIterator[tuple[Host, openai.AsyncOpenAI]]:
    host = _host(home, {"compression": {"enabled": False}, **config})
    try:
        async with (
            serving(host.agent, service=HostModels(host)) as running,  # type: ignore[arg-type]
            openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=KEY, timeout=LIMIT_S * 4, max_retries=0) as client,
        ):
            yield host, client
    finally:
        await host.aclose()


async def run(
    tmp_path: Path, model: WireModel, ask: Callable[[Host, openai.AsyncOpenAI], Awaitable[Any]], **more: Any
) -> Any:
    async def main() -> Any:
        async with serving_host(tmp_path / "home", {"model": _block(model), **more}) as (host, client):
            return await ask(host, client)

    return await main()


def _block(model: WireModel, **more: Any) -> dict[str, Any]:
    return {"provider": "custom", "base_url": model.url, "default": "m-1", "api_key": "k-0123456789", **more}


def _write(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(value))


async def test_the_list_names_what_can_be_chosen_with_abilities_and_a_request_chooses_it(tmp_path: Path) -> None:
    async def ask(host: Host, client: openai.AsyncOpenAI) -> Any:
        endpoint = host.select_model().endpoint
        entries = [{"id": "m-2", "context_length": 9000, "architecture": {"input_modalities": ["text", "image"]}}]
        entries[0]["pricing"] = {"prompt": "0.000001", "completion": "0.000002"}  # type: ignore[assignment]
        file = host.model_infos._file(endpoint)
        await asyncio.to_thread(_write, file, {"models": entries})
        listed = {entry.id: entry.model_dump() for entry in (await client.models.list()).data}
        one = await client.models.retrieve("m-2")
        answers = [await client.chat.completions.create(model=name, **ASK) for name in ("m-2", "box/big")]
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="m-9", **ASK)
        return listed, one, answers

    with WireModel() as model, WireModel(Reply("From the box.")) as other:
        box = {"box": {"base_url": other.url, "api_key": "k-0123456789"}}
        chain = [{"provider": "box", "model": "big"}]
        listed, one, answers = await run(tmp_path, model, ask, providers=box, fallback_providers=chain)
        assert [body["model"] for body in model.bodies + other.bodies] == ["m-2", "big"]
    assert set(listed) == {"m-1", "hermes-agent", "scripted-1", "m-2", "box/big"}
    assert (listed["box/big"]["owned_by"], one.id) == ("box", "m-2")
    known = {
        "context_length": 9000,
        "capabilities": {"vision": True},
        "pricing": {"prompt": "0.000001", "completion": "0.000002"},
    }
    assert {name: listed["m-2"][name] for name in known} == known
    assert [answer.choices[0].message.content for answer in answers] == ["It is done.", "From the box."]


async def test_embeddings_come_from_the_provider_and_are_counted(tmp_path: Path) -> None:
    async def ask(host: Host, client: openai.AsyncOpenAI) -> Any:
        several = await client.embeddings.create(model="e-1", input=["a", "bcd"], encoding_format="float")
        single = await client.embeddings.create(model="hermes-agent", input="ab", encoding_format="float")
        with pytest.raises(openai.BadRequestError) as caught:
            await client.embeddings.create(model="e-1", input=[])
        assert caught.value.param == "input"
        return several, single

    with Embedder() as model:
        several, single = await run(tmp_path, model, ask, auxiliary={"embeddings": {"model": "e-2"}})
        assert [body["model"] for body in model.bodies] == ["e-1", "e-2"]
    assert [item.embedding for item in several.data] == [[0.5, 1], [0.5, 3]]
    assert (single.model, several.usage.prompt_tokens) == ("e-2", 9)
    from hermes_agent.sessions import UsageLedger

    ledger = UsageLedger(tmp_path / "home" / "state.db")
    spent = ledger.totals_by("cause")["embeddings"]
    ledger.close()
    assert (spent.requests, spent.input_tokens) == (2, 18)


async def test_a_provider_without_embeddings_is_named_with_what_to_do(tmp_path: Path) -> None:
    async def ask(host: Host, client: openai.AsyncOpenAI) -> openai.APIStatusError:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.embeddings.create(model="e-1", input="ab")
        return caught.value

    for mode in ("chat_completions", "anthropic_messages"):
        with WireModel() as model:  # it has no such route: 404
            error = await run(tmp_path, model, ask, api_mode=mode)
        assert (error.status_code, error.code) == (400, "unsupported_parameter")
        assert "auxiliary.embeddings.provider" in error.message


class WithoutEmbeddings(Embedder):
    """A model server that answers requests for embeddings with 200 and something else."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self._answer = answer

    async def _embeddings(self, request: web.Request) -> web.Response:
        return web.json_response(self._answer)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"object": "list"}, "without embeddings (model 'e-1')"),
        ({"error": {"message": "the pool is empty"}}, "refused the request: the pool is empty (model 'e-1')"),
    ],
)
async def test_a_server_that_answers_200_without_embeddings_refused_nothing(
    tmp_path: Path, answer: dict[str, Any], said: str
) -> None:
    async def ask(host: Host, client: openai.AsyncOpenAI) -> openai.APIStatusError:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.embeddings.create(model="e-1", input="ab")
        return caught.value

    with WithoutEmbeddings(answer) as model:
        error = await run(tmp_path, model, ask)
    assert said in error.message and "status 200" not in error.message
    assert error.status_code == 502


async def test_a_title_for_a_web_client_is_written_by_its_own_model_without_tools(tmp_path: Path) -> None:
    async def ask(host: Host, client: openai.AsyncOpenAI) -> Any:
        message = [{"role": "user", "content": TITLE}]
        title = await client.chat.completions.create(model="hermes-agent", messages=message, max_tokens=50)
        stream = await client.chat.completions.create(model="hermes-agent", messages=message, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        quoted = [{"role": "user", "content": "Explain this prompt: " + TITLE}]
        await client.chat.completions.create(model="hermes-agent", messages=quoted)
        return title, text

    with WireModel(Reply('{"title": "Norway"}')) as model:
        title, text = await run(tmp_path, model, ask, auxiliary={"web_client": {"model": "small-1"}})
        bodies = model.bodies
    assert title.choices[0].message.content == text == '{"title": "Norway"}'
    assert [(body["model"], "tools" in body) for body in bodies] == [
        ("small-1", False),
        ("small-1", False),
        ("m-1", True),
    ]
    assert [message["role"] for message in bodies[0]["messages"]] == ["user"]
    assert bodies[0]["max_tokens"] == 50


async def test_bodies_as_open_webui_sends_them_are_answered(tmp_path: Path) -> None:
    answer = '{"title": "Norway", "tags": ["Norway"], "follow_ups": ["And Sweden?"]}'

    async def ask(host: Host, client: openai.AsyncOpenAI) -> tuple[str, list[str]]:
        async def post(body: dict[str, Any]) -> httpx.Response:
            key = {"Authorization": f"Bearer {client.api_key}"}
            return await http.post("chat/completions", json={"model": "hermes-agent", **body}, headers=key)

        async with httpx.AsyncClient(base_url=str(client.base_url), trust_env=False, timeout=LIMIT_S * 4) as http:
            chat = {"stream": True, "stream_options": {"include_usage": True}, **ASK}
            streamed = (await post(chat)).raise_for_status().text
            said = []
            for name, task in TASKS.items():
                prompt = [{"role": "user", "content": f"### Task:\n{task}{HISTORY}"}]
                limit = {"max_completion_tokens": 1000} if name == "title" else {}
                done = (await post({"messages": prompt, "stream": False, **limit})).raise_for_status().json()
                said += list(json.loads(done["choices"][0]["message"]["content"]))
        return streamed, said

    with WireModel(Reply(answer)) as model:
        streamed, said = await run(tmp_path, model, ask, auxiliary={"web_client": {"model": "small-1"}})
        bodies = model.bodies
    assert streamed.endswith("data: [DONE]\n\n") and '"usage":{' in streamed
    assert said == list(json.loads(answer)) * 3
    assert [(body["model"], "tools" in body) for body in bodies] == [("m-1", True), *[("small-1", False)] * 3]
