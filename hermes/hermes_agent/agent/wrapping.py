"""A model's stream inside `llm_execution` middleware, which knows requests and whole responses.

The callbacks run in a worker. Where the innermost one calls `next_call`, that worker waits while the core streams: the
text goes on to the reader as it comes, and the callback is given the whole response at its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from hermes_agent.core.errors import ModelError
from hermes_agent.hooks import MiddlewareChain
from hermes_agent.io.bridge import Bridge
from hermes_agent.models.completions import from_keywords, parse_answer, to_keywords, to_response
from hermes_agent.models.request import ModelAnswer, ModelDelta, ModelRequest, TextPart

__all__ = ["MiddlewareStream"]

logger = logging.getLogger(__name__)

KIND = "llm_execution"


@dataclass(slots=True)
class MiddlewareStream:
    """One request.

    Attributes:
        send: sends a request to the model.
        keywords: what the callbacks are given beside the request.
        original: the request as keywords, before request middleware.
    """

    middleware: MiddlewareChain
    bridge: Bridge
    send: Callable[[ModelRequest], AsyncIterator[ModelDelta]]
    request: ModelRequest
    keywords: dict[str, Any]
    original: dict[str, Any]
    _items: asyncio.Queue[TextPart | None] = field(default_factory=asyncio.Queue)
    """Text as it comes; None at the end of the callbacks."""
    _answers: tuple[Any, ModelAnswer] | None = None
    """The response that the callbacks were given, and the answer that it stands for."""
    _request_task: asyncio.Task[Any] | None = None

    async def stream(self) -> AsyncGenerator[ModelDelta, None]:
        """Yield the answer: that of the model as it comes, or the callbacks' own at once.

        Text that was streamed is not recalled when a callback answers otherwise; the `ModelAnswer` is what counts.

        Raises:
            ModelError: the model could not answer, or what the callbacks gave back is no answer.
        """
        work = asyncio.ensure_future(self.bridge.run(self._work))
        work.add_done_callback(lambda _: self._items.put_nowait(None))
        streamed = False
        try:
            while (item := await self._items.get()) is not None:
                streamed = True
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
