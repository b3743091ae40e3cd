"""Run one turn and give its events to an HTTP answer: whole, or as a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hermes_agent.core.errors import ModelError
from hermes_agent.core.events import Event, FinishReason, TextDelta, ToolStarted, TurnFinished
from hermes_agent.core.messages import Content, Usage
from hermes_agent.models.request import RequestOptions
from hermes_agent.server.chunks import KEEP_ALIVE, AnswerFormat
from hermes_agent.server.doors import ConversationProtocol
from hermes_agent.server.failures import http_error_of, interrupted_error
from hermes_agent.server.reply import Headers
from hermes_agent.server.turns import CLIENT_GONE, TurnSlot
from hermes_agent.service.shutdown import RETRY_AFTER_S

if TYPE_CHECKING:
    from hermes_agent.server.asgi import Send

__all__ = ["AnswerStream", "TurnRun"]

logger = logging.getLogger(__name__)

SEND_LIMIT_S = 60.0
"""How long a caller may leave its stream unread before it is taken for gone."""
STREAM_HEADERS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold the stream back
)


class TurnRun:
    """A turn in a task of its own: an answer can wait for its events and do something else meanwhile.

    Args:
        slot: interrupting it interrupts the turn, and cancels it when it does not end within `grace_s` seconds.
        whole: nobody wants its events, only the end (`ended`).
    """

    def __init__(
        self,
        talk: ConversationProtocol,
        content: Content,
        options: RequestOptions,
        slot: TurnSlot,
        group: asyncio.TaskGroup,
        *,
        grace_s: float,
        whole: bool = False,
    ) -> None:
        self.has_acted = False
        """A tool was started."""
        self.end: TurnFinished | None = None
        self._conversation = talk
        self._slot = slot
        self._grace_s = grace_s
        self._whole = whole
        self._queue: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self._texts: list[str] = []
        self._task = group.create_task(self._pump(content, options))
        slot.on_interrupt(self._interrupt)

    async def events(self, silence_s: float | None = None) -> AsyncIterator[list[Event]]:
        """Yield the events that have come, in batches; an empty one after `silence_s` seconds without any.

        Raises:
            Exception: what the turn raised; `Refusal`, it was interrupted.
        """
        while True:
            batch: list[Event] = []
            for item in await self._next(silence_s):
                if item is None or isinstance(item, Exception):
                    if batch:
                        yield batch
                    self._check_end(item)
                    return
                self._note(item)
                batch.append(item)
            yield batch

    async def wait_end(self) -> TurnFinished:
        """Return the end, when it has come. Raises as `events`."""
        async for _ in self.events():
            continue
        assert self.end is not None
        return self.end

    async def _next(self, silence_s: float | None) -> list[Event | Exception | None]:
        """What is there, at least one item; nothing when the time is over."""
        try:
            if self._queue.empty():
                async with asyncio.timeout(silence_s):
                    items = [await self._queue.get()]
            else:
                items = []
        except TimeoutError:
            return []
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        return items

    async def _pump(self, content: Content, options: RequestOptions) -> None:
        try:
            if self._slot.reason:  # before the turn there was nothing to interrupt
                return
            given = {"options": options} if options.values() else {}
            async for event in self._conversation.turn(content, **given):
                self._take(event)
        except ModelError as error:
            if error.finish_reason:  # an answer without a word, which is whole for whoever set the limit
                self._take(self._incomplete_end(error))
            else:
                self._queue.put_nowait(error)
        except Exception as error:  # noqa: BLE001 - the answering side raises it
            self._queue.put_nowait(error)
        finally:
            self._queue.put_nowait(None)

    def _take(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
        if self._whole:
            self._note(event)
        else:
            self._queue.put_nowait(event)

    def _incomplete_end(self, error: ModelError) -> TurnFinished:
        logger.info("an answer without a word: %s", error)
        why: FinishReason = "content_filter" if error.finish_reason == "content_filter" else "length"
        return TurnFinished("".join(self._texts), "answered", error.usage or Usage(), "", finish_reason=why)

    def _interrupt(self) -> None:
        self._conversation.interrupt()
        asyncio.get_running_loop().call_later(self._grace_s, self._task.cancel)

    def _note(self, event: Event) -> None:
        if isinstance(event, ToolStarted):
            self.has_acted = True
        elif isinstance(event, TurnFinished):
            self.end = event

    def _check_end(self, last: Exception | None) -> None:
        if last is not None:
            raise last
        if self.end is None or self.end.reason == "interrupted":
            raise interrupted_error(self._slot.reason, RETRY_AFTER_S, acted=self.has_acted)


class AnswerStream:
    """Sends a turn as server-sent events.

    Nothing is sent before the first event (or a silence): what fails until then is an HTTP status, later it is an
    event with an `error`.
    """

    def __init__(self, send: Send, chunks: AnswerFormat, slot: TurnSlot, headers: Headers) -> None:
        self.has_begun = False
        self._send = send
        self._format = chunks
        self._slot = slot
        self._headers = headers
        self._sent = ""

    async def run(self, turn: TurnRun, silence_s: float) -> None:
        """Send everything.

        Raises:
            Exception: the turn failed before anything was sent.
        """
        try:
            async for batch in turn.events(silence_s):
                if data := self._render(batch):
                    await self._write(data)
            assert turn.end is not None
            await self._write(self._rest(turn.end) + self._format.last_chunk(turn.end), more=False)
        except Exception as error:
            if not self.has_begun:  # afterwards the status is sent, and the caller is told in the stream
                raise
            await self._write(self._format.error_chunk(http_error_of(error, acted=turn.has_acted).body), more=False)

    def _render(self, batch: list[Event]) -> bytes:
        if not batch:
            return KEEP_ALIVE
        texts = [event.text for event in batch if isinstance(event, TextDelta) and event.text]
        self._sent += "".join(texts)
        data = b"".join(self._format.text_chunk(text) for text in texts)
        if not data and not self.has_begun and any(isinstance(event, ToolStarted) for event in batch):
            return KEEP_ALIVE  # a tool runs: the turn has begun, its failure is no status any more
        return data

    def _rest(self, end: TurnFinished) -> bytes:
        """What the reply has beyond what was streamed; text that a plugin replaced cannot be called back."""
        if end.text.startswith(self._sent):
            rest = end.text[len(self._sent) :]
            return self._format.text_chunk(rest) if rest else b""
        logger.debug("the reply differs from what was streamed")
        return b""

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        if self._slot.is_client_gone:
            return
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                if not self.has_begun:
                    self.has_begun = True
                    headers = list(STREAM_HEADERS + self._headers)
                    await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                    data = self._format.first_chunk() + data
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            logger.warning("a caller has not read its stream for %g s: the turn is interrupted", SEND_LIMIT_S)
            self._slot.interrupt(CLIENT_GONE)
