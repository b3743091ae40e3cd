"""Clients of model providers over HTTP, with a key or with the token of a login.

The wire protocol of the provider makes requests and reads answers (`models.wire_protocol`). The token of a login
(`hermes auth login`) is refreshed when it expires or is rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from hermes_agent.contracts.model_client import (
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ReasoningPart,
    RequestOptions,
    TextPart,
)
from hermes_agent.contracts.model_provider import HOOKS_LIMIT_S, OMIT_TEMPERATURE, RunHooks, classify_by_profile
from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.core.messages import Usage
from hermes_agent.credentials.logins import Login, LoginExpired, LoginStore
from hermes_agent.models import errors
from hermes_agent.models.api_modes import load_wire_protocol
from hermes_agent.models.http_transport import HttpResponse, HttpTimeouts, HttpTransport, TransportError, load_http
from hermes_agent.models.model_catalog import ModelCatalog
from hermes_agent.models.openai_types import ListedModel, ModelList, field_names
from hermes_agent.models.providers import ModelEndpoint
from hermes_agent.models.request_body import (
    PreparedRequest,
    Signer,
    find_excluded_option,
    has_hooks,
    prepare_request,
)
from hermes_agent.models.wire_protocol import (
    EXCERPT,
    AnswerBuilder,
    ErrorReplyReceived,
    MalformedReply,
    SseDecoder,
    WireProtocol,
    malformed_chunk,
    parse_error_reply,
    parse_json,
)

logger = logging.getLogger(__name__)

LONGEST_WHOLE_BODY = 8 * 1024 * 1024
"""Largest body in bytes that is not a stream."""
DRAIN_S = 0.25
"""Seconds that the end of the body may take after the end of the stream."""
EFFORT = "reasoning_effort"
_THINKING = re.compile(r"reasoning|thinking|effort", re.IGNORECASE)

LISTED = field_names(ListedModel)
LIST = field_names(ModelList)


class HttpModelClient:
    """A `ModelClient` that sends HTTP requests.

    Args:
        endpoint: base URL, key and protocol.
        deadlines: time limits of a request.
        run_hooks: runs the hooks of a plugin's profile in a worker; None runs them on the loop.
        infos: prices; None knows none.
        is_child: whether the server is a child process of the agent (see `HttpTransport`).
    """

    fits_within = 0

    def __init__(
        self,
        endpoint: ModelEndpoint,
        deadlines: HttpTimeouts | None = None,
        run_hooks: RunHooks | None = None,
        infos: ModelCatalog | None = None,
        *,
        is_child: bool = False,
    ) -> None:
        self._infos = infos
        self.provider = endpoint.provider.name
        self.base_url = endpoint.base_url
        self.api_mode = endpoint.provider.api_mode
        self._endpoint = endpoint
        self._wire: WireProtocol = load_wire_protocol(self.api_mode)
        self._run_hooks = run_hooks
        self._has_hooks = has_hooks(endpoint.provider.profile)
        self._transport = HttpTransport(endpoint.base_url, deadlines or HttpTimeouts(), is_child=is_child)
        self._signer = Signer(endpoint, run_hooks) if endpoint.provider.signs_requests and not endpoint.key else None
        self._without_effort: set[str] = set()
        self._first = ""
        """The first model that the server lists; "" before the first request."""

    def with_key(self, key: str) -> HttpModelClient:
        """Return a client with another key that shares the connections of this one."""
        other = copy.copy(self)
        other._endpoint = dataclasses.replace(self._endpoint, key=key)
        other._signer = None
        return other

    @property
    def url(self) -> str:
        """URL of its requests."""
        return self.base_url + self._wire.path(self._endpoint)

    def is_priced(self, model: str) -> bool:
        """Return whether the cost of an answer is known (see `ModelClient.is_priced`)."""
        return self._infos is not None and self._infos.is_priced(self._endpoint, model or self._first)

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Send a request and yield the answer as it arrives (see `ModelClient.stream`)."""
        return (
            self._streamed(request)
            if self._signer is None
            else self._signer.request_with_retry(partial(self._streamed, request))
        )

    def _streamed(self, request: ModelRequest, refused: bool = False) -> AsyncGenerator[ModelDelta, None]:
        """Send a request; `refused` says that the provider rejected its previous signature."""
        if EFFORT not in request.extra or EFFORT in request.options.extra:
            return self._request(request, refused)
        plain = dataclasses.replace(request, extra={k: v for k, v in request.extra.items() if k != EFFORT})
        if request.model in self._without_effort:
            return self._request(plain, refused)
        return self._request_with_effort(request, plain, refused)

    async def _request_with_effort(
        self, request: ModelRequest, plain: ModelRequest, refused: bool
    ) -> AsyncGenerator[ModelDelta, None]:
        """Send a request with `reasoning_effort`; without it from then on if the model rejects the field."""
        try:
            async with contextlib.aclosing(self._request(request, refused)) as items:
                async for item in items:
                    yield item
            return
        except ModelError as exc:
            if exc.status not in (400, 422) or not _THINKING.search(str(exc)):
                raise
            logger.info("model %s: %s left out from now on: %s", request.model, EFFORT, exc)
            self._without_effort.add(request.model)
        async with contextlib.aclosing(self._request(plain, refused)) as items:
            async for item in items:
                yield item

    async def _request(self, request: ModelRequest, refused: bool) -> AsyncGenerator[ModelDelta, None]:
        self._check_key(request.model)
        if not request.model:
            request = dataclasses.replace(request, model=await self._first_model())
        fold = self._wire.builder(self._endpoint.provider, request.model)
        prepared = await self._prepared(request)
        path = self._wire.path(self._endpoint)
        sign = None if self._signer is None else partial(self._signer.headers, request.model, again=refused)
        headers = {**self._headers(), **prepared.headers}
        try:
            async with (
                self._transport.exchange(path, headers, prepared.body, sign) as reply,
                contextlib.aclosing(self._texts(request.model, reply, fold)) as texts,
            ):
                async for text in texts:
                    if (reasoning := fold.take_reasoning()) and request.shows_reasoning:
                        yield ReasoningPart(reasoning)
                    if text:
                        yield TextPart(text)
        except TransportError as exc:
            if not fold.has_begun:
                raise errors.unreachable(self._endpoint, request.model, str(exc)) from exc
            if not fold.finish_reason:
                raise errors.cut_off(self._endpoint, request.model, str(exc)) from exc
            # the answer is complete: at most its usage is lost
        except MalformedReply as exc:
            # not `from exc`: the text of the cause may have secrets
            raise errors.cut_off(self._endpoint, request.model, str(exc)) from None
        except ErrorReplyReceived as exc:
            raise errors.error_from_reply(
                self._endpoint, request.model, exc.error_reply, streaming=fold.has_begun
            ) from None
        answer = self._answer(request.model, fold)
        cost = self._infos.listed_cost_usd(self._endpoint, request.model, answer.usage) if self._infos else None
        yield ModelAnswer(answer.message, answer.finish_reason, answer.usage, answer.model, self.provider, cost)

    async def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request for embeddings, in OpenAI's form.

        Args:
            body: with `model` and `input`.

        Raises:
            ModelError: the provider has none, or there is no answer.
        """
        model = str(body["model"])
        self._check_key(model)
        sign = None if self._signer is None else partial(self._signer.headers, model)
        try:
            async with self._transport.exchange("/embeddings", self._headers(), body, sign) as reply:
                value = parse_json(await _read_body(reply))
        except TransportError as exc:
            raise errors.unreachable(self._endpoint, model, str(exc)) from exc
        except MalformedReply as exc:
            raise errors.cut_off(self._endpoint, model, str(exc)) from None
        if reply.status < 400 and isinstance(value, dict) and isinstance(value.get("data"), list):
            return value
        if reply.status in (404, 405, 501) and not (isinstance(value, dict) and "model" in str(value.get("error"))):
            raise errors.no_embeddings(self._endpoint)
        if reply.status < 400 and not (isinstance(value, dict) and value.get("error")):
            raise errors.answer_without_embeddings(self._endpoint, model)
        status = reply.status if reply.status >= 400 else None
        error = parse_error_reply(value, status=status, retry_after_s=reply.retry_after_s)
        raise errors.error_from_reply(self._endpoint, model, error)

    def embedding_cost_usd(self, model: str, usage: Usage) -> float | None:
        """Return the listed cost of embeddings, or None if it is unknown."""
        return self._infos.listed_cost_usd(self._endpoint, model, usage) if self._infos else None

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        """Return the first option that cannot be sent (see `ModelClient.unsupported`)."""
        profile = self._endpoint.provider.profile
        fixed, values = profile.fixed_temperature, options.values()
        if options.temperature is not None and fixed not in (None, options.temperature):
            rule = "takes none" if fixed is OMIT_TEMPERATURE else f"is always asked with {fixed}"
            return "temperature", f"it {rule}"
        if values.get("tool_choice") in ("auto", "none"):  # the agent applies these: no provider is sent them
            del values["tool_choice"]
        if found := find_excluded_option(profile, model, values):
            return found
        return self._wire.unsupported(model, options)

    async def classify_error(self, error: ModelError, model: str) -> Any:
        """Return what the provider's profile makes of a failed request (see `ClassifyingClient`)."""
        return await classify_by_profile(self._endpoint.provider.profile, error, model, self._run_hooks)

    def warm_up(self) -> None:
        """Import the HTTP library (see `ModelClient.warm_up`)."""
        load_http()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    def _headers(self) -> dict[str, str]:
        return {**self._wire.headers(self._endpoint), **dict(self._endpoint.provider.default_headers)}

    async def _prepared(self, request: ModelRequest) -> PreparedRequest:
        if self._run_hooks is None or not self._has_hooks:
            return prepare_request(request, self._endpoint, self._wire)
        try:
            work = self._run_hooks(prepare_request, request, self._endpoint, self._wire, deadline_s=HOOKS_LIMIT_S)
            prepared: PreparedRequest = await work
            return prepared
        except TimeoutError:
            why = f"was not asked: its profile needed more than {HOOKS_LIMIT_S:g} seconds for the request"
            raise errors.rejected_request(self._endpoint, request.model, why) from None

    def _check_key(self, model: str) -> None:
        key = self._endpoint.key
        if not key and self._endpoint.provider.needs_key and self._signer is None:
            raise errors.missing_key(self._endpoint, model)
        # the error of the HTTP library would quote the header
        wrong = next((at for at, char in enumerate(key, 1) if not "!" <= char <= "~"), None)
        if wrong is not None:
            raise errors.invalid_key(self._endpoint, model, f"its character {wrong} of {len(key)} cannot be in a key")

    async def _first_model(self) -> str:
        """Return the first model that the server lists, which is the one that it has loaded."""
        if self._first:
            return self._first
        wanted = "(the first of its list)"
        try:
            async with self._transport.exchange("/models", self._headers()) as reply:
                value = parse_json(await _read_body(reply))
        except TransportError as exc:
            raise errors.unreachable(self._endpoint, wanted, str(exc)) from exc
        if reply.status >= 400:
            error = parse_error_reply(value, status=reply.status, retry_after_s=reply.retry_after_s)
            raise errors.error_from_reply(self._endpoint, wanted, error)
        entries: Any = value.get(LIST.data) if isinstance(value, dict) else value
        ids = [e.get(LISTED.id) for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        if not ids or not isinstance(ids[0], str):
            hint = "Name one with `hermes config set model.default NAME`."
            raise errors.rejected_request(self._endpoint, wanted, "lists no model", hint=hint)
        self._first = ids[0]
        return self._first

    async def _texts(self, model: str, reply: HttpResponse, fold: AnswerBuilder) -> AsyncGenerator[str, None]:
        """Yield the pieces of text of an answer, and "" when it has new reasoning; `fold` gets the whole."""
        if reply.status >= 400 or reply.content_type in ("application/json", "text/html"):
            if text := fold.add(_read_whole_answer(self._endpoint, model, reply, await _read_body(reply), fold.whole)):
                yield text
            return
        decoder = SseDecoder()
        async for piece in reply.pieces:
            for event in decoder.feed(piece):
                if (text := fold.event(event)) or fold.reasoning:
                    yield text
            if fold.is_done:
                await _drain(reply)
                return
        for event in decoder.finish():
            if text := fold.event(event):
                yield text

    def _answer(self, model: str, fold: AnswerBuilder) -> ModelAnswer:
        """Return the complete answer. Raise ModelError if it is cut or empty."""
        if not fold.finish_reason:
            why = "the stream ended without a finish reason" if fold.has_begun else "the stream ended before a word"
            raise errors.cut_off(self._endpoint, model, why)
        try:
            answer = fold.answer()
        except MalformedReply as exc:
            raise errors.cut_off(self._endpoint, model, str(exc)) from None
        if answer.message.content or answer.message.tool_calls:
            return answer
        if fold.finish_reason == "length":
            why = "gave no answer: the limit of tokens was spent before the first word"
            raise self._empty_answer_error(
                model, fold, answer, why, "Raise the limit (`model.max_tokens`), or ask for less."
            )
        if fold.finish_reason == "content_filter":
            why = "withheld the answer: its content filter objects to it"
            raise self._empty_answer_error(model, fold, answer, why, "Ask in other words.")
        why = f"answered with nothing, and gave {self._endpoint.quote(fold.finish_reason, EXCERPT)!r} as the reason"
        raise errors.empty_answer(self._endpoint, model, why)

    def _empty_answer_error(
        self, model: str, fold: AnswerBuilder, answer: ModelAnswer, why: str, hint: str
    ) -> ModelError:
        error = errors.rejected_request(self._endpoint, model, why, hint=hint)
        error.finish_reason, error.usage = fold.finish_reason, answer.usage
        return error


def _read_whole_answer(
    endpoint: ModelEndpoint, model: str, reply: HttpResponse, data: bytes, known: tuple[str, ...]
) -> dict[str, Any]:
    """Return the answer in a body that is not a stream.

    Raises:
        ModelError: the body is an error, or no answer.
        MalformedReply: it is not JSON.
    """
    value = parse_json(data)
    if isinstance(value, dict) and reply.status < 400 and any(key in value for key in known):
        return value
    error = parse_error_reply(value, status=reply.status, retry_after_s=reply.retry_after_s)
    if reply.status >= 400:
        # many servers answer an unknown path with a web page
        raise errors.error_from_reply(endpoint, model, error)
    if reply.content_type == "text/html" or value is not None:
        what = "a web page" if value is None else "JSON that is no completion"
        raise errors.not_an_api(endpoint, model, error, what)
    raise malformed_chunk(1, data)


async def _read_body(reply: HttpResponse) -> bytes:
    data = bytearray()
    async for piece in reply.pieces:
        data += piece
        if len(data) > LONGEST_WHOLE_BODY:
            raise MalformedReply(f"a body that is no stream has more than {LONGEST_WHOLE_BODY} bytes")
    return bytes(data)


async def _drain(reply: HttpResponse) -> None:
    """Read the rest of a stream after its end, so that its connection can be used again."""
    if reply.has_ended():
        await anext(reply.pieces, None)
        return
    with contextlib.suppress(TimeoutError, TransportError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in reply.pieces:
                continue


class LoginModelClient:
    """A `ModelClient` with the token of a login, which expires.

    Args:
        client: sends requests with a given key.
        endpoint: base URL, and the login (`ModelEndpoint.login`).
        run: runs a function in a worker (`Bridge.run`); None calls it on the loop.
    """

    fits_within = 0

    def __init__(self, client: HttpModelClient, endpoint: ModelEndpoint, logins: LoginStore, run: Any = None) -> None:
        self._client = client
        self._endpoint = endpoint
        self._logins = logins
        self._run = run
        self.provider, self.base_url = client.provider, client.base_url
        self.api_mode, self.url = client.api_mode, client.url
        self.is_priced, self.warm_up, self.aclose = client.is_priced, client.warm_up, client.aclose
        self.unsupported, self.embedding_cost_usd = client.unsupported, client.embedding_cost_usd
        self.classify_error = client.classify_error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Send a request, and once more with a new token if this one is rejected (see `ModelClient.stream`)."""
        stale = ""
        while True:
            token = await self._valid_token(stale)
            try:
                async with aclosing(self._client.with_key(token).stream(request)) as items:
                    async for item in items:
                        yield item
                return
            except ModelError as exc:
                if exc.kind != "auth" or stale:
                    raise
                stale = token

    async def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request for embeddings (see `HttpModelClient.embed`)."""
        return await self._client.with_key(await self._valid_token("")).embed(body)

    async def _valid_token(self, stale: str) -> str:
        provider, label = self._endpoint.provider.name, self._endpoint.login
        try:
            login = self._logins.get(provider, label)
            if login is None:
                raise LoginExpired(
                    f"The login {label!r} of {provider} is gone.", hint=f"`hermes auth login {provider}`."
                )
            if login.access_token == stale or login.is_stale:
                login = await self._refresh(login, stale)
        except LoginExpired as exc:
            raise ModelError("auth", exc.message, hint=exc.hint) from exc
        except UserError as exc:
            raise ModelError("unreachable", exc.message, hint=exc.hint) from exc
        return login.access_token

    async def _refresh(self, login: Login, stale: str) -> Login:
        from hermes_agent.credentials import oauth  # imports http.server, which few processes need

        by_plugin = self._endpoint.provider.profile.refresh_credential
        refresh = partial(oauth.refresh_by_plugin, by_plugin) if by_plugin else oauth.refresh
        if self._run is None:
            return self._logins.refreshed(login, stale, refresh)
        renewed = await self._run(self._logins.refreshed, login, stale, refresh)
        assert isinstance(renewed, Login)
        return renewed
