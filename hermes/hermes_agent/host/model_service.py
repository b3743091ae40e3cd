"""Models of the host for routes of the HTTP server that run no turn: the list, embeddings, side tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.model_client import ModelAnswer, RequestOptions
from hermes_agent.core.errors import UnsupportedOption, UserError
from hermes_agent.core.messages import Message, Usage
from hermes_agent.models.model_catalog import ModelInfo
from hermes_agent.models.selection import ModelSelection

if TYPE_CHECKING:
    from hermes_agent.host.host import Host

EMBEDDINGS_TASK = "embeddings"
"""The auxiliary task that names the model of embeddings."""


class HostModels:
    """Models of the host; implements `server.model_service.HostModelsProtocol`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def models(self) -> list[dict[str, Any]]:
        """Return the models that a request may choose: the configured one, fallbacks, the provider's list."""
        entries: list[dict[str, Any]] = await self._host.bridge.run(self._entries)
        return entries

    def _entries(self) -> list[dict[str, Any]]:
        return [self._entry(name, selection) for name, selection in self._host.choosable_models().items()]

    def _entry(self, name: str, selection: ModelSelection) -> dict[str, Any]:
        info = self._host.model_infos.known_info(selection.endpoint, selection.model)
        own = selection.client_profile
        if own is not None:
            price = 0.0 if own.is_free else None
            info = info._replace(tools=True, vision=own.takes_images, input_price=price, output_price=price)
        return {"id": name, "owned_by": selection.provider, **_abilities(info)}

    async def embed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the provider of `auxiliary.embeddings`, else of the configured one."""
        from hermes_agent.models.client import HttpModelClient, LoginModelClient
        from hermes_agent.models.errors import no_embeddings
        from hermes_agent.models.openai_types import CreateEmbeddingResponse, EmbeddingUsage, JsonObject, field_names
        from hermes_agent.plugins.llm_access import ModelCaller, record_request, request_refusal, task_selection
        from hermes_agent.plugins.llm_client import task_settings

        host = self._host
        settings = task_settings(host, EMBEDDINGS_TASK)
        model = str(body.get("model") or settings["model"])
        if not model:
            why = "name the model in the request, or with `hermes config set auxiliary.embeddings.model NAME`"
            raise UnsupportedOption("model", f"No model for embeddings is named: {why}.")
        selection = task_selection(host, settings)
        if refusal := await host.bridge.run(request_refusal, host, selection):
            raise UserError(refusal)
        client = host.clients.client(selection)
        if not isinstance(client, HttpModelClient | LoginModelClient) or client.api_mode == "anthropic_messages":
            raise no_embeddings(selection.endpoint)
        await host.bridge.run(client.warm_up)
        began = time.monotonic()
        answer: JsonObject = await client.embed({**body, "model": model})
        field = field_names(CreateEmbeddingResponse)
        tokens = (answer.get(field.usage) or {}).get(field_names(EmbeddingUsage).prompt_tokens)
        usage = Usage(tokens if isinstance(tokens, int) else 0, 0)
        cost = client.embedding_cost_usd(model, usage)
        whole = ModelAnswer(Message("assistant"), "stop", usage, model, selection.provider, cost)
        record_request(host, whole, selection.provider, ModelCaller(EMBEDDINGS_TASK), time.monotonic() - began)
        answer |= {field.object: "list", field.model: str(answer.get(field.model) or model)}
        return answer

    async def complete(
        self, task: str, messages: Sequence[Mapping[str, Any]], options: RequestOptions
    ) -> tuple[str, Usage, str]:
        """Return text, usage and model of the answer of an auxiliary task."""
        from hermes_agent.plugins.llm_client import response_text

        given: dict[str, Any] = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        given["extra"] = dict(options.extra)
        answer = await self._host.side_request(task, [dict(message) for message in messages], **given)
        used = answer.usage
        usage = Usage(used.prompt_tokens, used.completion_tokens)
        return response_text(answer), usage, str(answer.model)


def _abilities(info: ModelInfo) -> dict[str, Any]:
    """Return what is known of a model, in the words of OpenRouter's list; what is unknown is left out."""
    found: dict[str, Any] = {"context_length": info.context_length, "max_output_tokens": info.max_output}
    if info.vision is not None:
        found["architecture"] = {"input_modalities": ["text", "image"] if info.vision else ["text"]}
        found["capabilities"] = {"vision": info.vision}
    if info.tools is not None:
        found["capabilities"] = {**found.get("capabilities", {}), "tools": info.tools}
    if info.input_price is not None and info.output_price is not None:
        prices = {
            "prompt": info.input_price,
            "completion": info.output_price,
            "input_cache_read": info.cache_read_price,
        }
        found["pricing"] = {
            name: f"{price:.12f}".rstrip("0").rstrip(".") or "0" for name, price in prices.items() if price is not None
        }
    return {name: value for name, value in found.items() if value is not None}
