"""Ask a model in a test and keep what comes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, TextPart
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message
from hermes_agent.models.client import HttpModelClient
from hermes_agent.models.http_transport import HttpTimeouts
from hermes_agent.models.providers import ModelEndpoint, ProviderCatalog


def client_for(
    base_url: str, *, provider: str = "openai", key: str = "", api_mode: str = "chat_completions", **deadlines: float
) -> HttpModelClient:
    known = ProviderCatalog().get(provider)
    assert known is not None
    key_name = known.key_names[0] if key else ""
    return HttpModelClient(
        ModelEndpoint(replace(known, api_mode=api_mode), base_url, key, key_name), HttpTimeouts(**deadlines)
    )


async def answer_of(client: HttpModelClient, request: ModelRequest) -> tuple[list[str], ModelAnswer]:
    """Return the pieces of text and the answer; fails unless the answer is the last item, once."""
    items = [item async for item in client.stream(request)]
    answers = [item for item in items if isinstance(item, ModelAnswer)]
    assert len(answers) == 1 and items[-1] is answers[0]
    return [item.text for item in items if isinstance(item, TextPart)], answers[0]


def ask(base_url: str, says: str = "hello", **options: Any) -> tuple[list[str], ModelAnswer]:
    """Ask one question in a loop of its own."""
    request = ModelRequest(options.pop("model", "m-1"), [Message("user", says)], options.pop("tools", ()))

    async def run() -> tuple[list[str], ModelAnswer]:
        client = client_for(base_url, **options)
        try:
            return await answer_of(client, request)
        finally:
            await client.aclose()

    return asyncio.run(run())


def failure(base_url: str, says: str = "hello", **options: Any) -> ModelError:
    """Ask one question and return the error."""
    try:
        pieces, answer = ask(base_url, says, **options)
    except ModelError as exc:
        return exc
    raise AssertionError(f"it answered: {pieces} {answer}")
