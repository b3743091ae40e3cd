"""Models over HTTP: `/v1/models`, `/v1/embeddings`, and the side tasks of web clients.

Web clients ask for a title, tags or follow-up questions after each turn, as a chat completion with a prompt of their
own. Such a request goes to the model of `auxiliary.web_client`, without tools, instructions and stored session.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hermes_agent.contracts.model_client import NO_OPTIONS, RequestOptions
from hermes_agent.core.messages import Content, Message, TurnFinished, TurnSink, Usage, new_id, text_content
from hermes_agent.server.conversations import AGENT_MODEL
from hermes_agent.server.http_types import HttpError, HttpReply, http_error_of, json_reply, read_body
from hermes_agent.server.settings import HttpSettings

if TYPE_CHECKING:
    from hermes_agent.server.chat_format import ChatRequest
    from hermes_agent.server.http_types import Receive, Scope

WEB_CLIENT_TASK = "web_client"
"""The auxiliary task of web clients."""

_TASK = re.compile(r"\s*### Task:\s*\n")
"""How the prompts of Open WebUI begin.

https://docs.openwebui.com/reference/env-configuration (TITLE_, TAGS_ and FOLLOW_UP_GENERATION_PROMPT_TEMPLATE)
"""
_PURPOSE = re.compile(r"title|\btags|follow[- ]up|autocomplet|emoji|quer(?:y|ies)", re.IGNORECASE)
LONGEST_HEAD = 600
"""Characters in which the prompt names its purpose."""


class HostModelsProtocol(Protocol):
    """Models of the host, for routes that run no turn."""

    async def models(self) -> list[dict[str, Any]]:
        """Return the models that a request may choose, as entries of OpenAI's list with their abilities."""
        ...

    async def embed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return OpenAI's answer to a request for embeddings.

        Raises:
            UserError: the provider has none, or refuses the request.
        """
        ...

    async def complete(
        self, task: str, messages: Sequence[Mapping[str, Any]], options: RequestOptions
    ) -> tuple[str, Usage, str]:
        """Return text, usage and model of the answer of an auxiliary task.

        Raises:
            UserError: no model is available, or it does not answer.
        """
        ...


def is_web_client_task(request: ChatRequest) -> bool:
    """Return whether a request is a side task of a web client: a prompt for a title, tags, ….

    A request in a session, with a history or with tools is a turn.
    """
    if request.session_id is not None or request.history or request.options.tools or request.options.continuation:
        return False
    text = text_content(request.content)
    found = _TASK.match(text)
    if found is None or "<chat_history>" not in text:
        return False
    return _PURPOSE.search(text, found.end(), found.end() + LONGEST_HEAD) is not None


class SideTaskAnswer:
    """Answers with the model of an auxiliary task, in place of a turn."""

    def __init__(self, service: HostModelsProtocol, request: ChatRequest) -> None:
        self.session_id = new_id("task")
        self._service = service
        self._request = request

    async def answer(self, content: Content, sink: TurnSink, *, options: RequestOptions = NO_OPTIONS) -> TurnFinished:
        """Ask the model once; its answer is the reply."""
        messages = [Message("user", content).to_dict()]
        if self._request.instructions:
            messages.insert(0, {"role": "system", "content": self._request.instructions})
        text, usage, model = await self._service.complete(WEB_CLIENT_TASK, messages, options)
        if text:
            sink.text(text)
        return TurnFinished(text, "answered", usage, model)

    def interrupt(self) -> None:
        """Do nothing: the task of the request is cancelled."""

    async def close(self, reason: str) -> None:
        """Do nothing: no conversation is open."""


class ModelEndpoints:
    """The routes of models.

    Args:
        models: names of the agent's model, the default first.
        service: the models of the host; None: only the agent's own names are known.
    """

    def __init__(self, models: Sequence[str], service: HostModelsProtocol | None, settings: HttpSettings) -> None:
        self._names = tuple(dict.fromkeys((*models, AGENT_MODEL)))
        self._service = service
        self._settings = settings
        self._started = int(time.time())

    async def known(self) -> dict[str, dict[str, Any]]:
        """Return every entry of the list by its name."""
        from hermes_agent.models.openai_types import ListedModel, as_dict, field_names  # for a request

        field = field_names(ListedModel)
        listed = [] if self._service is None else await self._service.models()
        by_name = {entry[field.id]: entry for entry in listed}
        default = by_name.get(self._names[0], {})
        own = {name: {**by_name.get(name, default), field.id: name} for name in self._names}

        def usual(name: str) -> dict[str, Any]:
            made = ListedModel(id=name, object="model", created=self._started, owned_by="hermes-agent")
            return as_dict(made)

        return {name: {**usual(name), **entry} for name, entry in {**own, **by_name, **own}.items()}

    async def list(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return the models in OpenAI's list format, with their abilities."""
        from hermes_agent.models.openai_types import JsonObject, ModelList, field_names  # for a request

        field = field_names(ModelList)
        listed: JsonObject = {field.object: "list", field.data: [*(await self.known()).values()]}
        return json_reply(listed)

    async def get(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return one model."""
        name = scope["name"]
        found = (await self.known()).get(name)
        if found is None:
            text = f"The model {name[:200]!r} does not exist"
            return HttpError(404, text, code="model_not_found", param="model").reply()
        return json_reply(found)

    async def embed(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return the embeddings of texts."""
        from hermes_agent.server.chat_format import parse_body  # with the first request

        try:
            settings = self._settings
            data = await read_body(scope, receive, max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s)
            body = _embedding_request(parse_body(data))
            if self._service is None:
                raise HttpError(400, "this agent has no embeddings", code="unsupported_parameter", param="model")
            return json_reply(await self._service.embed(body))
        except Exception as error:  # noqa: BLE001 - mapped to a status; unexpected errors are logged
            return http_error_of(error).reply()


_EMBEDDING_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "model": lambda value: isinstance(value, str),
    "input": lambda value: bool(value) and isinstance(value, str | list),
    "encoding_format": lambda value: value in ("float", "base64"),
    "dimensions": lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0,
    "user": lambda value: isinstance(value, str),
}


def _embedding_request(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked fields of a request for embeddings."""
    from hermes_agent.server.request_fields import bad_request, kind_of  # with the first request

    for name, given in value.items():
        if name not in _EMBEDDING_FIELDS:
            raise HttpError(400, f"{name[:100]} is an unknown field", code="unknown_parameter", param=name[:100])
        if given is not None and not _EMBEDDING_FIELDS[name](given):
            raise bad_request(f"{name} is {kind_of(given)}, which does not fit", name)
    if value.get("input") is None:
        raise bad_request("input: expected text, or a list of texts", "input")
    found = {name: given for name, given in value.items() if given is not None and name != "user"}
    if found.get("model") == AGENT_MODEL:
        del found["model"]
    return found
