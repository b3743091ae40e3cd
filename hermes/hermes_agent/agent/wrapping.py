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
from hermes_agent.hooks import Middleware
from hermes_agent.io.bridge import Bridge
from hermes_agent.models.completions import answer_of, from_keywords, response_of, to_keywords
from hermes_agent.models.request import ModelAnswer, ModelDelta, ModelRequest, TextPart

__all__ = ["WrappedStream"]

logger = logging.getLogger(__name__)

KIND = "llm_execution"


@dataclass(slots=True)
class WrappedStream:
    """One request.

    Attributes:
        send: sends a request to the model.
        keywords: what the callbacks are given beside the request.
        original: the request as keywords, before request middleware.
    """

    middleware: Middleware
    bridge: Bridge
    send: Callable[[ModelRequest], AsyncIterator[ModelDelta]]
    request: ModelRequest
    keywords: dict[str, Any]
    original: dict[str, Any]
    _items: asyncio.Queue[TextPart | None] = field(default_factory=asyncio.Queue)
    """Text as it comes; None at the end of the callbacks."""
    _heard: tuple[Any, ModelAnswer] | None = None
    """The response that the callbacks were given, and the answer that it stands for."""
    _asking: asyncio.Task[Any] | None = None

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
            for task in (self._asking, work):
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
        self._asking = asyncio.current_task()
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
        response = response_of(answer)
        self._heard = (response, answer)
        return response

    def _answer(self, value: Any) -> ModelAnswer:
        if self._heard is not None and value is self._heard[0] and value == _as_given(*self._heard):
            return self._heard[1]
        try:
            return answer_of(value, self.request.model)
        except ValueError as exc:
            raise self._refused(f"gave back {type(value).__name__}, which is no answer of a model ({exc})") from exc

    def _refused(self, what: str) -> ModelError:
        plugins = ", ".join(dict.fromkeys(f"`{plugin}`" for plugin, _ in self.middleware.listeners(KIND)))
        return ModelError(
            "refused",
            f"The {KIND} middleware of plugin {plugins} {what}.",
            hint="Return what next_call() returned, or a chat-completions response.",
        )


def _as_given(response: Any, answer: ModelAnswer) -> Any:
    """Return the response as it was before a callback could change it."""
    return response_of(answer) | {k: response.get(k) for k in ("id", "created")}
