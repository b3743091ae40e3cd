"""Sessions in chats: a message of the inbox becomes a turn or command; its answer, a reply.

Source: plugin contract §8.2.2, §8.2.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from hermes_agent.adapters.base import run_callback
from hermes_agent.adapters.events import (
    MessageEvent,
    MessageType,
    ProcessingOutcome,
    SessionSource,
    bind_session,
    call_optional,
)
from hermes_agent.adapters.sender import reply_metadata
from hermes_agent.agent.command_router import CommandCall, RunSkill, UnknownCommand
from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import new_session_id
from hermes_agent.delivery import ClaimedMessage, InboundMessage, OutboundReply, ReplyTarget
from hermes_agent.gateway.access import principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_approver import ChatApprover
from hermes_agent.gateway.chat_messages import (
    Part,
    audio_part,
    begin_spoken_reply,
    can_play_audio,
    from_payload,
    model_content,
    reply_parts,
    to_payload,
)
from hermes_agent.gateway.chat_routes import ChatRoute, ChatRouteStore
from hermes_agent.gateway.chat_turn import ProgressDisplay, RunningTurn, run_chat_turn
from hermes_agent.gateway.dependencies import GatewayDeps
from hermes_agent.gateway.event_hooks import EventHooks
from hermes_agent.models.request_options import change_model_text
from hermes_agent.policy import ApprovalHooks, Approvals
from hermes_agent.tools.results import adopt_file

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


logger = logging.getLogger(__name__)

COMMAND_KEY = "!"
"""Suffix of a session key, for commands that run during a turn."""
BACKGROUND_KEY = "&"
"""Suffix of a session key, before a number: background work in a session of its own."""
SILENT = "[SILENT]"
"""An answer that consists of this text only is not sent."""
CALLBACK_S = 10.0
SPEECH_S = 60.0
"""Time limit of speech synthesis; after it, the answer is sent as text only."""
COMPLETION_S = 3600.0
"""Time limit for reporting a processed message to an adapter, if its answer does not arrive."""
MAX_REMEMBERED = 512
"""Limit of sessions with approvals, and of events, in memory."""


P = ParamSpec("P")
R = TypeVar("R")


class ChatSessions:
    """Serves the inbox for all platforms (`delivery.Serve`), on the core loop."""

    def __init__(self, deps: GatewayDeps, events: EventHooks, connections: dict[str, AdapterConnection]) -> None:
        self.deps = deps
        self.events = events
        self.connections = connections
        self.running: dict[str, RunningTurn] = {}
        self.commands: Any = None
        """The `chat_commands.ChatCommands` that uses this object."""
        self._bridge = deps.agent.bridge
        self._executor = self._bridge.serial_executor("gateway")
        self._routes: ChatRouteStore | None = None
        self._slots = asyncio.Semaphore(deps.settings.turns)
        self._fresh: LruDict[int, MessageEvent] = LruDict(MAX_REMEMBERED)
        self._approvals: LruDict[str, Approvals] = LruDict(MAX_REMEMBERED)
        self._after: set[asyncio.Task[None]] = set()

    # -- incoming messages ---------------------------------------------------------------------------------------------

    def remember(self, receipt: int, event: MessageEvent) -> None:
        """Keep an event as the adapter created it; the stored event lacks values that are no JSON."""
        self._fresh[receipt] = event

    async def serve(self, message: ClaimedMessage) -> Sequence[OutboundReply]:
        """Process a message and return its replies."""
        event = self._fresh.pop(message.id, None) or from_payload(message.payload)
        connection = self.connections[message.platform]
        assert event.source is not None
        key = _session_key_of(message.conversation)
        with bind_session(event.source, key):
            if message.conversation.endswith(COMMAND_KEY):
                return await self._reply(
                    connection, event, key, await self.commands.run(message, event, connection, key)
                )
            async with self._slots:
                return await self._process(message, event, connection, key)

    def background_turns(self, key: str) -> list[RunningTurn]:
        """Return the background turns of a session key."""
        return [running for name, running in self.running.items() if name.startswith(key + BACKGROUND_KEY)]

    async def abandon(self, message: ClaimedMessage, error: BaseException) -> Sequence[OutboundReply]:
        """Return the reply that a message could not be processed."""
        event = from_payload(message.payload)
        key = _session_key_of(message.conversation)
        notice = self.deps.translate("gateway.failure", what=type(error).__name__)
        return await self._reply(self.connections[message.platform], event, key, notice)

    async def _process(
        self, message: ClaimedMessage, event: MessageEvent, connection: AdapterConnection, key: str
    ) -> Sequence[OutboundReply]:
        running = RunningTurn(message, event)
        in_background = BACKGROUND_KEY in message.conversation
        self.running[message.conversation] = running
        metadata = reply_metadata(event)
        await self._call_adapter(connection, call_optional(connection.adapter, "on_processing_start", event))
        outcome = ProcessingOutcome.FAILURE
        replies: Sequence[OutboundReply] = ()
        try:
            display = ProgressDisplay(
                connection,
                self._bridge,
                self.deps.settings,
                _source(event).chat_id,
                metadata,
                reply_to=event.anchor,
                keep=lambda preview: message.save_notes(preview=preview),
                preview=str(message.notes.get("preview") or ""),
                emoji=self._emoji,
            )
            async with display:
                text = await self._answer(running, connection, key, display, in_background=in_background)
            replies = await self._reply(connection, event, key, text, edit=display.preview)
            outcome = ProcessingOutcome.SUCCESS
            return replies
        except asyncio.CancelledError:
            outcome = ProcessingOutcome.CANCELLED
            raise
        finally:
            if self.running.get(message.conversation) is running:
                del self.running[message.conversation]
                self.start_injected_turn(running.session_id)
            running.ended.set()
            reply = f"in-{message.id}-0" if replies else ""
            task = asyncio.create_task(self._notify_completed(connection, event, key, reply, outcome))
            self._after.add(task)
            task.add_done_callback(self._after.discard)

    async def _answer(
        self,
        running: RunningTurn,
        connection: AdapterConnection,
        key: str,
        display: ProgressDisplay,
        *,
        in_background: bool,
    ) -> str:
        """Return the answer; "" for none."""
        event, source = running.event, _source(running.event)
        text, reply = event.text or "", None
        if event.is_command() and not event.internal and not in_background:
            text, reply = await self._turn_input(running.message, event, connection, key)
            if reply is not None:
                return reply
        try:
            conversation, is_new = await self._open(running, connection, key, in_background=in_background)
        except UserError as error:
            return f"⚠️ {error}"
        running.conversation, running.session_id = conversation, conversation.session_id
        if (wanted := event.metadata.get("for_session")) and wanted != conversation.session_id:
            logger.warning("a message of a plugin is dropped: its session %s has ended", wanted)
            await conversation.close("session_boundary")
            running.conversation = None
            return ""
        conversation.is_cancelled_early = lambda: bool(running.interrupt_reason)
        try:
            if is_new and event.auto_skill:
                text = await self._with_skills(event, text, conversation)
            event.media_urls = await self._bridge.run(self._move_files, event.media_urls, conversation.principal)
            supports_images = self.deps.settings.pictures == "always" or (
                self.deps.settings.pictures == "auto" and self.deps.supports_images(conversation.provider)
            )
            shared = source.chat_type != "dm" and _is_shared(source, key)
            content = await self._bridge.run(
                model_content,
                event,
                text,
                shared=shared,
                supports_images=supports_images,
                transcribe=self.deps.transcribe,
            )
            context = self.hook_context(event, conversation.session_id)
            return await run_chat_turn(
                running, conversation, content, display, self.events, context, self.deps.settings.idle_turn_s
            )
        except UserError as error:
            logger.info("a turn of %s failed: %s", key, error)
            return f"⚠️ {error}"
        finally:
            running.conversation = None
            await conversation.close("session_boundary")

    def _move_files(self, paths: Sequence[str], owner: str) -> list[str]:
        """Return the paths of received files in the folder of the session's principal."""
        return [adopt_file(path, self.deps.home, owner) for path in paths]

    async def _turn_input(
        self, message: ClaimedMessage, event: MessageEvent, connection: AdapterConnection, key: str
    ) -> tuple[str, str | None]:
        """Return the text of the turn, and the answer if no turn is needed."""
        answered = await self.commands.run(message, event, connection, key)
        if isinstance(answered, RunSkill):
            return answered.message, None
        if answered is not None:
            return "", answered
        route = await self.route(key)
        meaning = await self.deps.slash.resolve(
            event.text, where="chat", session_id=route.session_id if route else key, platform=message.platform
        )
        match meaning:
            case RunSkill(answer):
                return answer, None
            case CommandCall():
                return "", await self.commands.call(meaning, event, connection, key)
            case UnknownCommand():
                return "", meaning.reply(getattr(connection.adapter, "typed_command_prefix", "/"))
        return event.text, None

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def route(self, key: str) -> ChatRoute | None:
        """Return the session of a chat, or None."""
        return await self.store(ChatRouteStore.get, key)

    async def store(self, method: Callable[Concatenate[ChatRouteStore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a method of the route store in its thread."""

        def call() -> R:
            if self._routes is None:
                self._routes = ChatRouteStore(self.deps.home / "state.db")
            return method(self._routes, *args, **kwargs)

        return await self._executor.run(call)

    async def start_session(
        self, source: SessionSource, key: str, previous: ChatRoute | None, reason: str = ""
    ) -> ChatRoute:
        """Start a session in a chat, and call the hooks.

        Args:
            reason: why the previous session ended: `new_session`, `idle`, `daily`.
        """
        now = self.deps.clock()
        model = previous.model if previous is not None and reason != "resumed" else ""
        route = ChatRoute(key, new_session_id(), _session_owner(source, key), source.to_dict(), model, now, now)
        await self.store(ChatRouteStore.put, route)
        about = {"platform": source.platform.value, "user_id": source.user_id, "session_key": key}
        if previous is not None:
            visits = self.deps.agent.visits
            await visits.finalize(previous.session_id, source.platform.value, reason, route.session_id)
            await visits.reset(route.session_id, source.platform.value, previous.session_id)
            self.events.emit("session:end", {**about, "session_id": previous.session_id})
            self.events.emit("session:reset", {**about, "session_id": route.session_id})
        self.events.emit("session:start", {**about, "session_id": route.session_id})
        return route

    async def resume(self, route: ChatRoute, previous: ChatRoute | None) -> None:
        """Set the chat to a previous session."""
        await self.store(ChatRouteStore.put, route)
        if previous is not None and previous.session_id != route.session_id:
            platform = str(route.source["platform"])
            await self.deps.agent.visits.finalize(previous.session_id, platform, "resumed_other", route.session_id)

    async def _open(
        self, running: RunningTurn, connection: AdapterConnection, key: str, *, in_background: bool
    ) -> tuple[Conversation, bool]:
        """Open the session of a chat; return it, and whether it is new.

        Raises:
            UserError: no model is available, or the session belongs to another principal.
        """
        event, source, now = running.event, _source(running.event), self.deps.clock()
        route = await self.route(key)
        over = self.deps.settings.reset.reset_reason(route.used_at, now) if route is not None else ""
        is_new = in_background or route is None or bool(over)
        if in_background:
            route = ChatRoute(key, new_session_id(), _session_owner(source, key), source.to_dict(), "", now, now)
        elif route is None or over:
            route = await self.start_session(source, key, route, over)
        else:
            await self.store(ChatRouteStore.record_use, key, route.session_id, source.to_dict(), now)
        approvals = self._approvals_of(route.session_id, connection, event, key)
        own = connection.config.channel_overrides.get(source.chat_id)
        own = own if isinstance(own, Mapping) else {}
        prompts = (event.channel_prompt, own.get("system_prompt"))
        conversation = await self.deps.agent.open(
            route.session_id,
            platform=source.platform.value,
            approver=approvals.approver,
            principal=route.owner,
            model=change_model_text(own.get("model") or "", route.model) or None,
            instructions="\n\n".join(str(prompt) for prompt in prompts if prompt),
        )
        conversation.approvals = approvals
        return conversation, is_new

    def _approvals_of(self, session_id: str, connection: AdapterConnection, event: MessageEvent, key: str) -> Approvals:
        """Return the approvals of a session, which ask in the present chat and keep the answers `session`."""

        def count_question(begins: bool) -> None:
            if key in self.running:
                self.running[key].is_asking += 1 if begins else -1

        agent, chat = self.deps.agent, _source(event).chat_id
        waiting, questions = self.deps.pending_approvals, self.deps.pending_questions
        metadata, keep = reply_metadata(event), partial(self.save_question, key)
        approver = ChatApprover(connection, self._bridge, waiting, questions, key, chat, metadata, count_question, keep)
        approval_hooks = ApprovalHooks(
            agent.hooks,
            self._bridge,
            surface="gateway",
            session_key=key,
            session_id=session_id,
            platform=connection.name,
        )
        known = self._approvals.get(session_id)
        if known is None:
            off, smart = agent.settings.approvals_off, agent.settings.smart
            transport = agent.settings.transport
            known = Approvals(
                approver, timeout_s=self.deps.settings.approval_s, off=off, smart=smart, transport=transport
            )
        known.set_approver(approver, approval_hooks)
        self._approvals[session_id] = known
        return known

    async def save_question(self, key: str) -> None:
        """Store whether a question of a session is pending or expired, so that it is handled after a restart."""
        waiting = self.deps.pending_approvals
        await self.store(
            ChatRouteStore.mark_question, key, bool(waiting.questions_for(key)) or waiting.has_unanswered(key)
        )

    async def _with_skills(self, event: MessageEvent, text: str, conversation: Conversation) -> str:
        """Return the text with the skills of the channel."""
        names = [event.auto_skill] if isinstance(event.auto_skill, str) else list(event.auto_skill or ())
        line = " ".join(f"/{name}" for name in names[1:])

        def message() -> str | None:
            skills = self.deps.slash.skills
            return skills.message(
                names[0], f"{line} {text}".strip(), session_id=conversation.session_id, platform=conversation.platform
            )

        return await self._bridge.run(message) or text

    def start_injected_turn(self, session_id: str) -> None:
        """Start a turn for the injected messages of a session, unless one is running."""
        if session_id and self.deps.agent.injected.has_pending(session_id):
            task = asyncio.ensure_future(self._run_injected_turn(session_id))
            self._after.add(task)
            task.add_done_callback(self._after.discard)

    async def _run_injected_turn(self, session_id: str) -> None:
        route = await self.store(ChatRouteStore.of_session, session_id)
        if route is None or route.session_key in self.running or not self.deps.agent.injected.has_pending(session_id):
            return
        source = SessionSource.from_dict(route.source)
        event = MessageEvent("", source=source, internal=True, metadata={"injected": True})
        platform, owner = source.platform.value, route.owner
        await self.deps.delivery.receive(
            InboundMessage(platform, source.chat_id, "", route.session_key, owner, to_payload(event))
        )

    # -- replies -------------------------------------------------------------------------------------------------------

    async def _reply(
        self, connection: AdapterConnection, event: MessageEvent, key: str, text: Any, *, edit: str = ""
    ) -> list[OutboundReply]:
        """Return a text as a reply to a message; [] for an empty text."""
        answer = str(text) if text is not None else ""
        if not answer.strip() or answer.strip() == SILENT:
            return []
        length = connection.entry.max_message_length if connection.entry else 0
        source = _source(event)
        given: dict[str, Any] = {"edit": edit, "chat": source.chat_id}
        given["is_open"] = self.deps.is_open(_session_owner(source, key))
        parts = await self._bridge.run(reply_parts, answer, connection.adapter, length, **given)
        parts += await self._synthesize_reply(connection, event, answer)
        target = ReplyTarget(source.platform.value, source.chat_id, source.thread_id or "")
        return [OutboundReply(target, tuple(parts), reply_to=event.anchor)] if parts else []

    async def _synthesize_reply(self, connection: AdapterConnection, event: MessageEvent, answer: str) -> list[Part]:
        """Return the answer as speech, if that is configured."""
        which, synthesize = self.deps.settings.voice_replies, self.deps.synthesize
        wanted = which == "all" or (which == "voice" and event.message_type is MessageType.VOICE)
        if not wanted or event.is_command():
            return []
        try:
            if await self._begin_speech(connection, event, answer):
                return []
            if synthesize is None or not can_play_audio(connection.adapter):
                return []
            return await self._bridge.run(audio_part, answer, synthesize, deadline_s=SPEECH_S)
        except Exception as exc:  # noqa: BLE001 - plugin code: the text is sent anyway
            logger.warning("speech synthesis failed: %s: %s", type(exc).__name__, exc)
            return []

    async def _begin_speech(self, connection: AdapterConnection, event: MessageEvent, answer: str) -> bool:
        """Begin to play an answer while its speech is made; return whether the platform does that."""
        source, speak = _source(event), self.deps.stream_speech
        begun = await begin_spoken_reply(self._bridge, connection.adapter, source, answer, speak, SPEECH_S)
        if begun is not None:
            self._after.add(task := asyncio.create_task(begun.play(self._bridge, SPEECH_S)))
            task.add_done_callback(self._after.discard)
        return begun is not None

    async def _notify_completed(
        self, connection: AdapterConnection, event: MessageEvent, key: str, reply: str, outcome: ProcessingOutcome
    ) -> None:
        """Notify the adapter that a message is processed, once its answer has arrived."""
        if reply:
            with contextlib.suppress(TimeoutError):
                state = await self.deps.delivery.wait_settled(reply, COMPLETION_S)
                outcome = outcome if state == "sent" else ProcessingOutcome.FAILURE
        if outcome is not ProcessingOutcome.CANCELLED:
            await self._call_adapter(connection, run_callback(connection.adapter, key))
        await self._call_adapter(
            connection, call_optional(connection.adapter, "on_processing_complete", event, outcome)
        )

    async def _call_adapter(self, connection: AdapterConnection, work: Coroutine[Any, Any, Any]) -> None:
        """Run a callback of the adapter that is not part of the answer."""
        try:
            await self._bridge.on_plugin(work, deadline_s=CALLBACK_S)
        except Exception as exc:  # noqa: BLE001 - plugin code: the message is processed anyway
            logger.warning("platform %s: callback failed: %r", connection.name, exc)

    async def aclose(self) -> None:
        """Cancel the tasks and close the store."""
        for task in self._after:
            task.cancel()
        await asyncio.gather(*self._after, return_exceptions=True)
        if self._routes is not None:
            await self.store(ChatRouteStore.close)
            self._routes = None

    def hook_context(self, event: MessageEvent, session_id: str) -> dict[str, Any]:
        """Return the keywords of a message for event hooks."""
        source = _source(event)
        return {
            "platform": source.platform.value,
            "user_id": source.user_id,
            "chat_id": source.chat_id,
            "thread_id": source.thread_id,
            "chat_type": source.chat_type,
            "session_id": session_id,
            "message": (event.text or "")[:500],
        }

    def _emoji(self, tool: str) -> str:
        entry = self.deps.agent.tools.get(tool)
        return str(entry.emoji) if entry is not None else ""


def _session_key_of(conversation: str) -> str:
    """Return the session key of a conversation of the inbox."""
    return conversation.removesuffix(COMMAND_KEY).partition(BACKGROUND_KEY)[0]


def _session_owner(source: SessionSource, key: str) -> str:
    """Return the principal of a chat's session: of the user, or of the chat if users share the session."""
    shared = source.chat_type != "dm" and _is_shared(source, key)
    return f"{source.platform.value}:chat:{source.chat_id}" if shared else principal(source)


def _is_shared(source: SessionSource, key: str) -> bool:
    return not key.endswith(f":{source.user_id_alt or source.user_id}")


def _source(event: MessageEvent) -> SessionSource:
    assert event.source is not None
    return event.source
