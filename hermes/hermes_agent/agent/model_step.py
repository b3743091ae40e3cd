"""One model request: middleware, retries and fallbacks, the stream of the answer, and hooks.

Callbacks of `llm_execution` middleware run in a worker. When the innermost one calls `next_call`, that worker waits
while the core loop streams. Text reaches the reader as it comes; the callback gets the whole response at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import field, replace
from functools import partial
from typing import Any

from hermes_agent.agent.error_classification import reclassified
from hermes_agent.agent.settings import price_refusal
from hermes_agent.agent.stream_observers import StreamObservers
from hermes_agent.agent.turn_context import TurnContext, TurnStopped
from hermes_agent.contracts.model_client import (
    ModelAnswer,
    ModelDelta,
    ModelRequest,
    ReasoningPart,
    TextPart,
    classify_error,
    loading_notice,
)
from hermes_agent.core.errors import ModelError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.core.redaction import mask_arguments
from hermes_agent.core.secrecy import MASK
from hermes_agent.hooks import HookResult, MiddlewareChain
from hermes_agent.hooks.middleware import Trace
from hermes_agent.hooks.observers import redact_payload
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.models.fallback import (
    Continuation,
    RequestAttempts,
    RetryNotice,
    continuation_messages,
)
from hermes_agent.models.openai_format import from_keywords, parse_answer, to_keywords, to_response
from hermes_agent.models.request_options import fit_with_notices, record_refusal
from hermes_agent.runtime.bridge import Bridge

logger = logging.getLogger(__name__)

KIND = "llm_execution"


@lazy_dataclass(slots=True, eq=False, repr=False)
class MiddlewareStream:
    """A model request inside `llm_execution` middleware.

    Attributes:
        send: sends a request to the model.
        keywords: the additional keywords of the callbacks.
        original: the request as keywords, before request middleware.
    """

    middleware: MiddlewareChain
    bridge: Bridge
    send: Callable[[ModelRequest], AsyncIterator[ModelDelta]]
    request: ModelRequest
    keywords: dict[str, Any]
    original: dict[str, Any]
    _items: asyncio.Queue[TextPart | ReasoningPart | None] = field(default_factory=asyncio.Queue)
    """Text as it comes; None after the last callback."""
    _answers: tuple[Any, ModelAnswer] | None = None
    """The response that the callbacks got, and the answer that it represents."""
    _request_task: asyncio.Task[Any] | None = None

    async def stream(self) -> AsyncGenerator[ModelDelta, None]:
        """Yield the answer: the model's as it comes, or the one of the callbacks in one piece.

        Streamed text stays when a callback returns another answer; the `ModelAnswer` counts.

        Raises:
            ModelError: the model could not answer, or the callbacks did not return an answer.
        """
        work = asyncio.ensure_future(self.bridge.run(self._work))
        work.add_done_callback(lambda _: self._items.put_nowait(None))
        streamed = False
        try:
            while (item := await self._items.get()) is not None:
                streamed = streamed or isinstance(item, TextPart)
                yield item
            answer = self._answer(work.result())
        finally:
            for task in (self._request_task, work):
                if task is not None and not task.done():
                    task.cancel()
            await asyncio.gather(work, return_exceptions=True)
        if answer.message.text and not streamed:
            yield TextPart(answer.message.text)
        yield answer

    def _work(self) -> Any:
        given = to_keywords(self.request)
        return self.middleware.execute(KIND, given, self.original, self.keywords, self._ask_and_wait)

    def _ask_and_wait(self, keywords: Any) -> Any:
        return self.bridge.wait_core(self._ask(keywords))

    async def _ask(self, keywords: Any) -> Any:
        self._request_task = asyncio.current_task()
        try:
            request = from_keywords(keywords, self.request)
        except (ValueError, AttributeError) as exc:
            raise self._refused(f"asked the model with a request that is none ({exc})") from exc
        answer: ModelAnswer | None = None
        async for item in self.send(request):
            if isinstance(item, ModelAnswer):
                answer = item
            else:
                self._items.put_nowait(item)
        assert answer is not None  # the last item of every stream
        response = to_response(answer)
        self._answers = (response, answer)
        return response

    def _answer(self, value: Any) -> ModelAnswer:
        if self._answers is not None and value is self._answers[0] and value == _copy_response(*self._answers):
            return self._answers[1]
        try:
            return parse_answer(value, self.request.model)
        except ValueError as exc:
            raise self._refused(f"gave back {type(value).__name__}, which is no answer of a model ({exc})") from exc

    def _refused(self, what: str) -> ModelError:
        plugins = ", ".join(dict.fromkeys(f"`{plugin}`" for plugin, _ in self.middleware.listeners(KIND)))
        return ModelError(
            "refused",
            f"The {KIND} middleware of plugin {plugins} {what}.",
            hint="Return what next_call() returned, or a chat-completions response.",
        )


def _copy_response(response: Any, answer: ModelAnswer) -> Any:
    """Return the response as it was before a callback could change it."""
    return to_response(answer) | {k: response.get(k) for k in ("id", "created")}


FIELDS = ("max_tokens", "temperature", "extra")
"""Fields of a request, besides model, messages and tools, that plugins change."""
CLASSIFICATION = "transform_api_error_classification"
STREAM = ("on_stream_start", "on_stream_delta", "on_stream_end")
HOOKS = ("pre_api_request", "post_api_request", "api_request_error", *STREAM)


@lazy_dataclass(slots=True, eq=False, repr=False)
class ModelStep:
    """One request of a turn.

    Attributes:
        number: number of the request in the turn, from 1.
        attempts: the model, its fallbacks and retries.
    """

    context: TurnContext
    user_message: str
    number: int
    attempts: RequestAttempts = field(init=False)
    id: str = ""
    _request: ModelRequest = field(init=False)
    """The request as the agent made it."""
    _given: ModelRequest = field(init=False)
    """The request after its middleware."""
    _fitted: ModelRequest = field(init=False)
    """The request with the options that the model takes."""
    _is_continuation: bool = False
    """Whether the request continues an answer that broke off."""
    _plugins: dict[str, None] = field(default_factory=dict)
    """Plugins that changed the request with middleware."""
    began_at: float = 0.0
    """Time of the request, in seconds since the epoch."""

    def __post_init__(self) -> None:
        refusal = partial(_price_refusal, self.context)  # a method would be a cycle, which keeps all messages
        self.attempts = RequestAttempts(self.context.model.chosen, self.context.settings.api_max_retries, refusal)

    async def ask(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | RetryNotice, None]:
        """Send requests until one is answered, and yield the answer; an answer that breaks off is continued.

        Raises:
            ModelError: no model could answer.
            Interrupted: the turn was interrupted.
        """
        self.id, self.began_at = new_id("req"), time.time()
        attempts, streamed = self.attempts, ""
        self._request = request
        while True:
            continuation, before = Continuation(streamed) if streamed else None, attempts.chosen
            self._is_continuation = bool(streamed)
            for notice in self._notices(attempts.request(request), streamed):
                yield notice
            asked = self._fitted
            try:
                await self.context.warm_up(before.client)
                async with contextlib.aclosing(await self._once(asked)) as items:
                    async for item in items:
                        if isinstance(item, ReasoningPart):
                            yield item
                            continue
                        text = item.text if isinstance(item, TextPart) else ""
                        if continuation is not None:
                            text = continuation.feed(text) if isinstance(item, TextPart) else continuation.flush()
                        if text:
                            streamed += text
                            yield TextPart(text)
                        if isinstance(item, ModelAnswer):
                            attempts.chosen.health.recover()
                            self.context.history.record.add_answered(
                                self.context.turn_id, self.number, self._wrappers()
                            )
                            yield _with_earlier_text(item, streamed) if asked.messages is not request.messages else item
                            return
            except ModelError as failed:
                exc = await self._reclassified(failed, asked)
                if continuation is not None and (text := continuation.flush()):
                    streamed += text
                    yield TextPart(text)
                if not streamed and record_refusal(exc, asked, before):
                    logger.info("model %s of %s refused an option: %s", before.name, before.client.provider, exc)
                    continue
                wait_s = attempts.record_failure(exc)
                await self._notify_failure(exc, asked, before, retryable=wait_s is not None)
                if wait_s is None:
                    raise exc from failed.__cause__
                pause_s, again = wait_s, attempts.retry_notice(exc, wait_s, before)
                logger.warning("%s", again.log)
            yield again
            await self.context.interrupt.run(asyncio.sleep(pause_s))

    async def _reclassified(self, error: ModelError, request: ModelRequest) -> ModelError:
        """Return the error as a hook, else the provider's profile, classifies it; else unchanged."""
        chosen = self.attempts.chosen
        changed = await self._reclassified_by_hook(error, request, chosen)
        if changed is not error:
            return changed
        answer = await classify_error(chosen.client, error, chosen.name)
        return reclassified(error, [HookResult(f"{chosen.client.provider} (model provider)", answer)])

    async def _reclassified_by_hook(self, error: ModelError, request: ModelRequest, chosen: ChosenModel) -> ModelError:
        if not self.context.hooks.has(CLASSIFICATION):
            return error
        chars = len(json.dumps(to_keywords(request), ensure_ascii=False, default=str))
        answers = await self.context.call_hook(
            CLASSIFICATION,
            provider=chosen.client.provider,
            model=chosen.name,
            status_code=error.status,
            error_type=type(error).__name__,
            error_code=error.reply_code or error.kind,
            error_message=error.message,
            error_body=mask_arguments(dict(error.reply_body)),
            error=error,
            approx_tokens=chars // 4,
            context_length=chosen.context_length,
            num_messages=len(request.messages),
        )
        return reclassified(error, answers)

    def _notices(self, request: ModelRequest, streamed: str) -> list[RetryNotice]:
        """Set `_fitted` (see `_fit_request`), and return the notices before this attempt."""
        texts = (*self._start_notices(), *self._fit_request(request, streamed))
        loading = loading_notice(self.attempts.chosen.client)
        return [
            *(RetryNotice(text, text) for text in texts),
            *([RetryNotice(loading, level="info")] if loading else []),
        ]

    def _start_notices(self) -> list[str]:
        """Return the notice, before the first attempt, that a fallback is asked; only once."""
        attempts = self.attempts
        fallback = (attempts.first, attempts.chosen)
        if attempts.count or self.context.model.announced_fallback == fallback:
            return []
        if not (notice := attempts.start_notice()):
            return []
        self.context.model.announced_fallback = fallback
        logger.warning("%s", notice)
        return [notice]

    def _fit_request(self, request: ModelRequest, streamed: str) -> list[str]:
        """Set `_fitted`, without options that the model does not take; return the new notices.

        Args:
            streamed: the text so far, after which the answer continues.
        """
        if streamed:
            request = replace(request, messages=continuation_messages(request.messages, streamed))
        self._fitted, notices = fit_with_notices(request, self.attempts.chosen, self.context.model.left_out)
        return notices

    async def _once(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Send the request once and return its stream."""
        hooks, chosen = self.context.hooks, self.attempts.chosen
        original, trace = request, Trace()
        if hooks.middleware.has("llm_request"):
            request, trace = await self._changed(request)
            other = replace(chosen, name=request.model)
            if request.model != original.model and (why := self.attempts.refusal(other)):
                raise TurnStopped(why)
        self._given = request
        if hooks.middleware.has("llm_execution"):
            stream: AsyncIterator[ModelDelta] = MiddlewareStream(
                hooks.middleware,
                self.context.bridge,
                self._send,
                request,
                self._keywords(),
                to_keywords(original),
            ).stream()
        else:
            stream = self._send(request)
        if hooks.has_any(HOOKS):
            return self._observed(request, stream, trace)
        return self.context.interrupt.iterate(stream)

    def _send(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Send a request and record it for a replay, unless it continues an answer that broke off."""
        history, chosen, known = self.context.history, self.attempts.chosen, self.attempts.request(self._request)
        if not self._is_continuation:
            changes = (
                {} if request is known else {f: v for f in FIELDS if (v := getattr(request, f)) != getattr(known, f)}
            )
            wrappers = self._wrappers() if request != self._given else {}
            plugins = {**history.sent_texts.plugins, **self._plugins, **wrappers}
            history.record.add_sent(self.context.turn_id, self.number, request, changes, plugins)
        return chosen.stream(request)

    def _wrappers(self) -> dict[str, None]:
        """Return the plugins with `llm_execution` middleware."""
        middleware = self.context.hooks.middleware
        if not middleware.has(KIND):
            return {}
        return dict.fromkeys(plugin for plugin, _ in middleware.listeners("llm_execution"))

    async def _changed(self, request: ModelRequest) -> tuple[ModelRequest, Trace]:
        """Return the request after `llm_request` middleware."""
        middleware, bridge = self.context.hooks.middleware, self.context.bridge
        given = to_keywords(request)
        work = bridge.run_steps(
            middleware.request_steps("llm_request", given, self._keywords()),
            shortest_s=self.context.hooks.deadlines.shortest_s,
        )
        changed, trace = await self.context.interrupt.run(work)
        if changed is given:
            return request, trace
        self._plugins = dict(trace.plugins)
        try:
            return from_keywords(changed, request), trace
        except ValueError as exc:
            plugins = ", ".join(dict.fromkeys(plugin for plugin, _ in middleware.listeners("llm_request")))
            logger.warning("llm_request middleware (%s): its request is ignored: %s", plugins, exc)
            return request, Trace()

    async def _observed(
        self, request: ModelRequest, stream: AsyncIterator[ModelDelta], trace: Trace
    ) -> AsyncGenerator[ModelDelta, None]:
        """Call the hooks before the request, and after its end before the answer is yielded."""
        context = self.context
        body = to_keywords(request)
        shown: dict[str, Any] = {"method": "POST", "body": redact_payload(body)}
        began = time.time()
        if context.hooks.has("pre_api_request"):
            await context.call_hook("pre_api_request", **self._before(request, body, shown, trace, began))
        stream_keywords = {**self._keywords(), "iteration": self.number, "surface": context.session.platform}
        observers = StreamObservers(context.hooks, stream_keywords)
        self.began_at = began
        first = 0.0
        try:
            async with contextlib.aclosing(self.context.interrupt.iterate(stream)) as items:
                async for item in items:
                    first = first or time.time()
                    observers.add(item)
                    if isinstance(item, ModelAnswer) and context.hooks.has("post_api_request"):
                        await context.call_hook("post_api_request", **self._after(item, body, began, first))
                    yield item
        finally:
            observers.end()

    async def _notify_failure(
        self, error: ModelError, request: ModelRequest, asked: ChosenModel, *, retryable: bool
    ) -> None:
        if self.attempts.chosen is not asked:  # its notice follows; the next turn does not repeat it
            self.context.model.announced_fallback = (self.attempts.first, self.attempts.chosen)
        if self.context.hooks.has("api_request_error"):
            shown = {"method": "POST", "body": redact_payload(to_keywords(request))}
            await self.context.call_hook("api_request_error", **self._failed(error, shown, asked, retryable=retryable))

    def _before(
        self, request: ModelRequest, body: dict[str, Any], shown: dict[str, Any], trace: Trace, began: float
    ) -> dict[str, Any]:
        chars = len(json.dumps(body, ensure_ascii=False, default=str))
        return {
            **self._keywords(),
            "user_message": self.user_message,
            "conversation_history": [m.to_dict() for m in self.context.history.messages],
            "request_messages": body.get("messages", []),
            "message_count": len(request.messages),
            "tool_count": len(request.tools),
            "approx_input_tokens": chars // 4,
            "request_char_count": chars,
            "max_tokens": request.max_tokens,
            "retry_count": self.attempts.count,
            "system_prompt": next((m.text for m in request.messages if m.role == "system"), ""),
            "started_at": began,
            "middleware_trace": trace,
            "request": shown,
            "method": "POST",
            "url": self.attempts.chosen.client.url,
            "headers": {"content-type": "application/json", "authorization": MASK},
            "body": shown["body"],
        }

    def _after(self, answer: ModelAnswer, body: dict[str, Any], began: float, first: float) -> dict[str, Any]:
        ended = time.time()
        response, usage = to_response(answer), answer.usage
        return {
            **self._keywords(),
            "api_duration": ended - began,
            "started_at": began,
            "ended_at": ended,
            "first_chunk_at": first,
            "context_length": self.attempts.chosen.context_length or None,
            "moa_references": None,
            "finish_reason": answer.finish_reason,
            "message_count": len(body.get("messages", ())),
            "response_model": answer.model,
            "response": redact_payload(response),
            "usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "total_tokens": usage.total_tokens,
                "cache_read_tokens": usage.cached_tokens,
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
            },
            "assistant_message": response["choices"][0]["message"],
            "assistant_content_chars": len(answer.message.text),
            "assistant_tool_call_count": len(answer.message.tool_calls),
            "method": "POST",
            "url": self.attempts.chosen.client.url,
            "status_code": 200,
        }

    def _failed(
        self, error: ModelError, shown: dict[str, Any], asked: ChosenModel, *, retryable: bool
    ) -> dict[str, Any]:
        ended = time.time()
        return {
            **self._keywords(asked),
            "api_duration": ended - self.began_at,
            "started_at": self.began_at,
            "ended_at": ended,
            "status_code": error.status,
            "retry_count": self.attempts.count - 1,
            "max_retries": self.attempts.retries,
            "retryable": retryable,
            "reason": error.kind,
            "error": {"type": type(error).__name__, "message": str(error)},
            "request": shown,
        }

    def _keywords(self, asked: ChosenModel | None = None) -> dict[str, Any]:
        """Return the keywords of every hook and middleware of a request.

        Args:
            asked: the model of the request, if that is not the present one.
        """
        session, chosen = self.context.session, asked or self.attempts.chosen
        return {
            "task_id": session.id,
            "session_id": session.id,
            "turn_id": self.context.turn_id,
            "api_request_id": self.id,
            "platform": session.platform,
            "model": chosen.name,
            "provider": chosen.client.provider,
            "base_url": chosen.client.base_url,
            "api_mode": chosen.client.api_mode,
            "api_call_count": self.number,
        }


def _price_refusal(context: TurnContext, asked: ChosenModel) -> str:
    """Return why a model may not be asked, for its price or the usage caps, or ""."""
    return price_refusal(context.settings.limits, context.caps(), asked.client, asked.name)


def _with_earlier_text(answer: ModelAnswer, streamed: str) -> ModelAnswer:
    """Return the answer with the text of the attempts that broke off."""
    return replace(answer, message=replace(answer.message, content=streamed))
