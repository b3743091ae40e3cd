"""`POST /v1/chat/completions` and `POST /v1/responses`: one turn, as a whole reply or as a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.agent.command_router import CommandCall, RunSkill
from hermes_agent.contracts.model_client import RequestOptions
from hermes_agent.core.errors import ModelError
from hermes_agent.core.log_context import log_context
from hermes_agent.core.messages import Content, FinishReason, ToolStarted, TurnEvent, TurnFinished, TurnSink, Usage
from hermes_agent.policy import NoApprover
from hermes_agent.server.chat_format import (
    KEEP_ALIVE,
    AnswerFormat,
    ChatCompletionFormat,
    ChatRequest,
    check_session_id,
    read_chat_request,
)
from hermes_agent.server.conversations import (
    KEY_HEADER,
    AgentProtocol,
    AnswerSource,
    CommandAnswer,
    CommandRouterProtocol,
    IdempotentRequests,
    TurnAnswer,
    plain_text,
)
from hermes_agent.server.http_types import (
    ClientDisconnected,
    Headers,
    HttpError,
    http_error_of,
    interrupted_error,
    json_reply,
    read_body,
    wait_disconnected,
)
from hermes_agent.server.request_fields import unsupported_field
from hermes_agent.server.responses_format import ResponsesFormat, read_responses_request
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.turn_slots import CLIENT_GONE, ClientLeft, TurnSlot, TurnSlots
from hermes_agent.service.shutdown import RETRY_AFTER_S
from hermes_agent.sessions import API_SERVER

if TYPE_CHECKING:
    from hermes_agent.server.http_types import Receive, Scope, Send


logger = logging.getLogger(__name__)

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
                    headers = list(STREAM_HEADERS + self._headers)
                    await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                    data = self._format.first_chunk() + data
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            logger.warning("turn over HTTP: the client has not read its stream for %g s, interrupting", SEND_LIMIT_S)
            self._slot.interrupt(CLIENT_GONE)


PLATFORM = "api_server"
"""Platform of the sessions and hooks, as in upstream."""
SESSION_HEADER = b"x-hermes-session-id"
CLOSE_REASON = "session_boundary"
"""A reason of `on_session_finalize` (plugin contract §3.5)."""


class EndpointFormat(NamedTuple):
    """Reader and writer of one API."""

    read: Callable[[bytes, Collection[str]], ChatRequest]
    answer: Callable[[ChatRequest], AnswerFormat]


CHAT = EndpointFormat(
    read_chat_request, lambda request: ChatCompletionFormat(request.model, include_usage=request.include_usage)
)
RESPONSES = EndpointFormat(
    read_responses_request, lambda request: ResponsesFormat(request.model, request.session_id, request.repeated_fields)
)


class ChatEndpoint:
    """ASGI application of the routes.

    Args:
        wire: the format of the API.
        models: names of the agent's model, the default first.
        slash: resolves slash commands in sessions; None: there are none.
        once: makes requests idempotent; None: the header is ignored.
    """

    def __init__(
        self,
        agent: AgentProtocol,
        settings: HttpSettings,
        turns: TurnSlots,
        models: Sequence[str],
        slash: CommandRouterProtocol | None = None,
        once: IdempotentRequests | None = None,
        wire: EndpointFormat = CHAT,
    ) -> None:
        self._format = wire
        self._once = once
        self._agent = agent
        self._settings = settings
        self._turns = turns
        self._models = tuple(models)
        self._slash = slash

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            self._turns.check_open()
            given = next((value for name, value in scope["headers"] if name == SESSION_HEADER), None)
            session_id = None if given is None else check_session_id(given.decode("latin-1"))
            body = await read_body(
                scope, receive, max_bytes=self._settings.max_body_bytes, timeout_s=self._settings.body_timeout_s
            )
            request = self._format.read(body, self._models)
            del body
            if session_id is None:
                session_id = request.session_id
            elif request.session_id is not None:  # the header wins, and the id of the answer contains it
                request = replace(request, session_id=session_id)
            _check_store(request, session_id)
        except ClientDisconnected:
            return
        except Exception as error:  # noqa: BLE001 - mapped to a status; unexpected errors are logged
            await http_error_of(error).reply()(scope, receive, send)
            return
        key = next((value for name, value in scope["headers"] if name == KEY_HEADER), b"").decode("latin-1")
        once = partial(self._once.source, key=key) if self._once is not None and key else None
        answer = self._format.answer(request)
        exchange = _Exchange(self._agent, self._settings, request, answer, TurnSlot(session_id), self._slash, once)
        await exchange.run(self._turns, scope, receive, send)


class _Exchange:
    """The processing of one valid request, until its answer is sent."""

    def __init__(
        self,
        agent: AgentProtocol,
        settings: HttpSettings,
        request: ChatRequest,
        written: AnswerFormat,
        slot: TurnSlot,
        slash: CommandRouterProtocol | None,
        once: Callable[[Any], AnswerSource] | None,
    ) -> None:
        self._once = once
        self._agent = agent
        self._settings = settings
        self._request = request
        self._format = written
        self._slot = slot
        self._slash = slash
        self._turn: TurnRun | None = None
        self._headers: Headers = ()

    async def run(self, turns: TurnSlots, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for a slot, run the turn and answer; a failure becomes an error reply."""
        slot = self._slot
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(_watch(receive, slot))
            try:
                command = await self._command()
                if command is not None:  # runs in parallel to a turn of the session
                    await self._run(command, group, scope, receive, send)
                    return
                async with turns.take(slot):
                    await self._run(await self._open(), group, scope, receive, send)
            except ClientLeft:
                await self._refuse(interrupted_error(slot.reason, RETRY_AFTER_S, acted=False), scope, receive, send)
            except Exception as error:  # noqa: BLE001 - mapped to a status; unexpected errors are logged
                acted = self._turn is not None and self._turn.has_acted
                refusal = http_error_of(error, acted=acted, options=self._request.options)
                refusal.param = self._request.names.get(refusal.param or "", refusal.param)
                await self._refuse(refusal, scope, receive, send)
            finally:
                watcher.cancel()

    async def _command(self) -> AnswerSource | None:
        """Return the command in the message, or None. The message of a skill replaces the message."""
        slash, session_id = self._slash, self._slot.session_id
        if slash is None or session_id is None or self._request.options.continuation:
            return None
        line = plain_text(self._request.content)
        meaning = await slash.resolve(line, where="http", session_id=session_id, platform=PLATFORM)
        if isinstance(meaning, RunSkill):
            self._request = replace(self._request, content=meaning.message)
        if not isinstance(meaning, CommandCall):
            return None
        await self._agent.load_if_allowed(
            session_id, API_SERVER
        )  # checks the owner, as a command does not open the session
        scope = slash.scope(session_id, PLATFORM, NoApprover("over HTTP"), principal=API_SERVER)
        return CommandAnswer(slash, meaning, scope, self._request.model)

    async def _run(
        self, source: AnswerSource, group: asyncio.TaskGroup, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._headers = ((SESSION_HEADER, source.session_id.encode("latin-1", "replace")),)
        began = time.monotonic()
        with log_context(session=source.session_id):
            try:
                if self._slot.reason:
                    raise ClientLeft(self._slot.reason)
                asked = (self._request.content, self._request.options)
                self._turn = TurnRun(source, *asked, self._slot, group, grace_s=self._settings.grace_s)
                await self._answer(self._turn, scope, receive, send)
            finally:
                self._slot.on_interrupt(lambda: None)
                logger.info("turn over HTTP: %s duration_ms=%d", self._outcome(), (time.monotonic() - began) * 1000)
                await _close(source)

    async def _open(self) -> AnswerSource:
        """Open the stored session of an id; without an id, use the client's transcript and store nothing."""
        request, session_id = self._request, self._slot.session_id
        conversation = await self._agent.open(
            session_id,
            platform=PLATFORM,
            approver=NoApprover("over HTTP"),
            history=request.history if session_id is None else None,
            instructions=request.instructions,
            keep=session_id is not None,
            principal=API_SERVER,
        )
        if self._once is not None and session_id is not None:
            return self._once(conversation)
        return TurnAnswer(conversation)

    async def _answer(self, turn: TurnRun, scope: Scope, receive: Receive, send: Send) -> None:
        if self._request.stream:
            stream = AnswerStream(send, self._format, self._slot, self._headers)
            await stream.run(turn, self._settings.keepalive_s)
            return
        end = await turn.wait_end()
        if not self._slot.is_client_gone:
            await json_reply(self._format.full_body(end), headers=self._headers)(scope, receive, send)

    async def _refuse(self, refusal: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
        if self._slot.is_client_gone:
            return
        logger.info("request over HTTP rejected: status=%d code=%s", refusal.status, refusal.code)
        refusal.headers += self._headers
        await refusal.reply()(scope, receive, send)

    def _outcome(self) -> str:
        if self._slot.reason:
            return f"interrupted ({self._slot.reason})"
        if self._turn is None or self._turn.end is None:
            return "failed"
        usage = self._turn.end.usage
        return f"{self._turn.end.reason} tokens={usage.input_tokens}+{usage.output_tokens}"


def _check_store(request: ChatRequest, session_id: str | None) -> None:
    """Reject a value of `store` that differs from what happens."""
    if request.store and session_id is None:
        raise unsupported_field("store", "a session is stored: send X-Hermes-Session-Id (Responses: and no history)")
    if request.store is False and session_id is not None:
        raise unsupported_field("store", "messages of a session are stored")


async def _watch(receive: Receive, slot: TurnSlot) -> None:
    await wait_disconnected(receive)
    slot.interrupt(CLIENT_GONE)


async def _close(source: AnswerSource) -> None:
    """Close the source; failures are logged, as the answer is sent already."""
    try:
        await source.close(CLOSE_REASON)
    except Exception:
        logger.exception("session %s: close failed", source.session_id)
