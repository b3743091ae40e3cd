"""`POST /v1/chat/completions` and `POST /v1/responses`: one turn, as a whole reply or as a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.command_router import CommandCall, RunSkill
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.log_context import log_context
from hermes_agent.policy import NoApprover
from hermes_agent.server.answer_stream import AnswerStream, TurnRun
from hermes_agent.server.chat_format import (
    AnswerFormat,
    ChatCompletionFormat,
    ChatRequest,
    check_session_id,
    read_chat_request,
)
from hermes_agent.server.conversations import (
    AGENT_MODEL,
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
from hermes_agent.server.model_service import HostModelsProtocol, ModelEndpoints, SideTaskAnswer, is_web_client_task
from hermes_agent.server.request_fields import unsupported_field
from hermes_agent.server.responses_format import ResponsesFormat, read_responses_request
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.turn_slots import CLIENT_GONE, ClientLeft, TurnSlot, TurnSlots
from hermes_agent.service.shutdown import RETRY_AFTER_S
from hermes_agent.sessions import API_SERVER

if TYPE_CHECKING:
    from hermes_agent.server.http_types import Receive, Scope, Send


logger = logging.getLogger(__name__)

PLATFORM = "api_server"
"""Platform of the sessions and hooks, as in upstream."""
SESSION_HEADER = b"x-hermes-session-id"
CLOSE_REASON = "session_boundary"
"""A reason of `on_session_finalize` (plugin contract §3.5)."""


class EndpointFormat(LazyNamedTuple):
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
        listed: the models that a request may choose.
        service: answers side tasks of web clients; None: they are turns.
    """

    def __init__(
        self,
        agent: AgentProtocol,
        settings: HttpSettings,
        turns: TurnSlots,
        models: Sequence[str],
        slash: CommandRouterProtocol | None = None,
        once: IdempotentRequests | None = None,
        listed: ModelEndpoints | None = None,
        service: HostModelsProtocol | None = None,
        wire: EndpointFormat = CHAT,
    ) -> None:
        self._format = wire
        self._listed = listed
        self._service = service
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
            request = await self._read(body)
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
        if request.model not in (*self._models, AGENT_MODEL):
            exchange.model = request.model
        if self._service is not None and session_id is None and is_web_client_task(request):
            exchange.side_task = SideTaskAnswer(self._service, request)
        await exchange.run(self._turns, scope, receive, send)

    async def _read(self, body: bytes) -> ChatRequest:
        """Return the checked request; the list of models is read for a name that is not the agent's own."""
        try:
            return self._format.read(body, self._models)
        except HttpError as refusal:
            if refusal.code != "model_not_found" or self._listed is None:
                raise
            return self._format.read(body, (*self._models, *await self._listed.known()))


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
        self.model: str | None = None
        """Name of the model that the request chooses; None: the agent's."""
        self.side_task: AnswerSource | None = None
        """Answers in place of a turn."""

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
        if self.side_task is not None:
            return self.side_task
        conversation = await self._agent.open(
            session_id,
            platform=PLATFORM,
            approver=NoApprover("over HTTP"),
            history=request.history if session_id is None else None,
            instructions=request.instructions,
            model=self.model,
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
            headers = self._headers + turn.notice_headers()
            await json_reply(self._format.full_body(end), headers=headers)(scope, receive, send)

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
