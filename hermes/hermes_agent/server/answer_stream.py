"""A turn in a task of its own, and its answer as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hermes_agent.contracts.model_client import RequestOptions
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import (
    Content,
    FinishReason,
    Notice,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnSink,
    Usage,
)
from hermes_agent.server.chat_format import KEEP_ALIVE, AnswerFormat
from hermes_agent.server.conversations import AnswerSource
from hermes_agent.server.http_types import Headers, http_error_of, interrupted_error
from hermes_agent.server.turn_slots import CLIENT_GONE, TurnSlot
from hermes_agent.service.shutdown import RETRY_AFTER_S

if TYPE_CHECKING:
    from hermes_agent.server.http_types import Send


logger = logging.getLogger(__name__)

NOTICE_HEADER = b"x-hermes-notice"
LONGEST_NOTICE = 500
"""Characters of a notice in a header."""
SEND_LIMIT_S = 60.0
"""Time in which a client must read its stream; after it, the client counts as disconnected."""
STREAM_HEADERS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx buffers the stream
)


class TurnRun(TurnSink):
    """A turn in a task of its own, so that a stream can send its text and keep-alives meanwhile.

    Args:
        slot: an interrupt of the slot interrupts the turn, and cancels it after `grace_s` seconds.
    """

    def __init__(
        self,
        source: AnswerSource,
        content: Content,
        options: RequestOptions,
        slot: TurnSlot,
        group: asyncio.TaskGroup,
        *,
        grace_s: float,
    ) -> None:
        self.has_acted = False
        """Whether a tool was started."""
        self.has_ended = False
        self.end: TurnFinished | None = None
        self._source = source
        self._slot = slot
        self._grace_s = grace_s
        self.notices: list[str] = []
        """Warnings for the user."""
        self._texts: list[str] = []
        self._taken = 0
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._task = group.create_task(self._run(content, options))
        slot.on_interrupt(self._interrupt)

    def event(self, event: TurnEvent) -> None:
        """Handle one event, and wake the reader."""
        super().event(event)
        self._changed.set()

    def text(self, delta: str) -> None:
        """Add a piece of the answer."""
        self._texts.append(delta)

    def tool_started(self, event: ToolStarted) -> None:
        """Record that a tool was started."""
        self.has_acted = True

    def notice(self, event: Notice) -> None:
        """Keep a warning for the headers of the answer."""
        if event.level == "warning":
            self.notices.append(event.text)

    def notice_headers(self) -> Headers:
        """Return a header for each warning so far."""
        return tuple((NOTICE_HEADER, _header_text(text)) for text in self.notices)

    def finished(self, event: TurnFinished) -> None:
        """Store the end: it counts also when a hook that runs after it is cancelled."""
        self.end = event

    async def wait_change(self, silence_s: float | None) -> bool:
        """Wait for the next event or the end; return False after `silence_s` seconds without any."""
        try:
            async with asyncio.timeout(silence_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def take_texts(self) -> list[str]:
        """Return the pieces of the answer since the last call."""
        texts, self._taken = self._texts[self._taken :], len(self._texts)
        return texts

    async def wait_end(self) -> TurnFinished:
        """Return the end of the turn.

        Raises:
            Exception: the exception of the turn, or an `HttpError` if it was interrupted.
        """
        await asyncio.wait([self._task])
        if self._error is not None:
            raise self._error
        if self.end is None or self.end.reason == "interrupted":
            raise interrupted_error(self._slot.reason, RETRY_AFTER_S, acted=self.has_acted)
        return self.end

    async def _run(self, content: Content, options: RequestOptions) -> None:
        try:
            if not self._slot.reason:  # an interrupt before the turn has nothing to stop
                self.end = await self._source.answer(content, self, options=options)
        except ModelError as error:
            if error.finish_reason:  # an empty answer is complete if the client set the limit
                self.end = self._incomplete_end(error)
            else:
                self._error = error
        except Exception as error:  # noqa: BLE001 - `wait_end` raises it
            self._error = error
        finally:
            self.has_ended = True
            self._changed.set()

    def _incomplete_end(self, error: ModelError) -> TurnFinished:
        logger.info("empty answer: %s", error)
        reason: FinishReason = "content_filter" if error.finish_reason == "content_filter" else "length"
        return TurnFinished("".join(self._texts), "answered", error.usage or Usage(), "", finish_reason=reason)

    def _interrupt(self) -> None:
        self._source.interrupt()
        asyncio.get_running_loop().call_later(self._grace_s, self._task.cancel)


def _header_text(text: str) -> bytes:
    """Return a text as the value of a header: ASCII, one line."""
    return " ".join(text.split()).encode("ascii", "replace")[:LONGEST_NOTICE]


class AnswerStream:
    """Sends a turn as server-sent events.

    Nothing is sent before the first event or silence. An earlier failure becomes an HTTP status, a later one an event
    with an `error`.
    """

    def __init__(self, send: Send, chunks: AnswerFormat, slot: TurnSlot, headers: Headers) -> None:
        self.has_begun = False
        self._send = send
        self._format = chunks
        self._slot = slot
        self._headers = headers
        self._notices: Headers = ()
        self._sent = ""

    async def run(self, turn: TurnRun, silence_s: float) -> None:
        """Send the whole stream.

        Raises:
            Exception: the turn failed before anything was sent.
        """
        try:
            has_ended = False
            while not has_ended:
                is_silent = not await turn.wait_change(silence_s)
                has_ended = turn.has_ended
                if not self.has_begun:
                    self._notices = turn.notice_headers()
                if data := self._render(turn, is_silent):
                    await self._write(data)
            end = await turn.wait_end()
            await self._write(self._rest(end) + self._format.last_chunk(end), more=False)
        except Exception as error:
            if not self.has_begun:  # otherwise the status is sent already, and the error goes into the stream
                raise
            await self._write(self._format.error_chunk(http_error_of(error, acted=turn.has_acted).body), more=False)

    def _render(self, turn: TurnRun, is_silent: bool) -> bytes:
        texts = [text for text in turn.take_texts() if text]
        self._sent += "".join(texts)
        if texts:
            return b"".join(self._format.text_chunk(text) for text in texts)
        # a started tool begins the stream, too: a failure of the turn cannot be a status any more
        return KEEP_ALIVE if is_silent or (turn.has_acted and not self.has_begun) else b""

    def _rest(self, end: TurnFinished) -> bytes:
        """Return the part of the reply that was not streamed; streamed text that a plugin replaced stays."""
        if end.text.startswith(self._sent):
            rest = end.text[len(self._sent) :]
            return self._format.text_chunk(rest) if rest else b""
        logger.debug("the reply differs from the streamed text")
        return b""

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        if self._slot.is_client_gone:
            return
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                if not self.has_begun:
                    self.has_begun = True
                    headers = list(STREAM_HEADERS + self._headers + self._notices)
                    await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                    data = self._format.first_chunk() + data
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            logger.warning("turn over HTTP: the client has not read its stream for %g s, interrupting", SEND_LIMIT_S)
            self._slot.interrupt(CLIENT_GONE)
