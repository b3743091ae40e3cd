"""`BasePlatformAdapter`: what an adapter inherits from. Source: plugin contract §8.2.2, §13 row 22.

An adapter brings `connect`, `disconnect` and `send`, hands what comes in to `handle_message`, and overrides what its
service can do better. It is called through `calling`, so that the guide's shorter signatures work.
"""

from __future__ import annotations

import abc
import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from hermes_agent.adapters import adapter_state
from hermes_agent.adapters.config import Platform, PlatformConfig
from hermes_agent.adapters.events import (
    MessageEvent,
    ProcessingOutcome,
    SessionSource,
    build_session_key,
    call_optional,
    join_texts,
)
from hermes_agent.adapters.registry import platform_in_creation
from hermes_agent.adapters.sender import MessageSender, Metadata

__all__ = ["BasePlatformAdapter", "run_callback", "set_direct_loop"]

logger = logging.getLogger(__name__)

MessageHandler = Callable[[MessageEvent], Awaitable[Any]]
Inbox = Callable[[MessageEvent], Awaitable[None]]
BusyHandler = Callable[[MessageEvent, str], Awaitable[bool]]
PostDelivery = Callable[[], Any]
DirectLoop = Callable[["BasePlatformAdapter", MessageEvent], Awaitable[None]]

_direct_loop: DirectLoop | None = None


def set_direct_loop(loop: DirectLoop | None) -> None:
    """Let `await loop(adapter, event)` answer the messages of adapters that have a handler and no inbox."""
    global _direct_loop
    _direct_loop = loop


async def run_callback(adapter: BasePlatformAdapter, key: str) -> None:
    """Call, once, the callback that was registered for a session's next reply."""
    callback = adapter.pop_post_delivery_callback(key)
    if callback is None:
        return
    try:
        value = callback()
        if inspect.isawaitable(value):
            await value
    except Exception as exc:  # noqa: BLE001 - the reply is delivered, the adapter goes on
        logger.warning("[%s] a callback after the reply failed: %r", adapter.name, exc)


class BasePlatformAdapter(MessageSender):
    """Connects the agent with one chat service.

    Args:
        platform: optional in an `adapter_factory`.

    Raises:
        TypeError: no platform was given, and no `adapter_factory` is running.
    """

    supports_inchannel_continuable: bool = False
    interactive_resume: bool = True
    gateway_runner: Any = None

    def __init__(self, config: PlatformConfig, platform: Platform | str | None = None) -> None:
        known = platform if platform is not None else platform_in_creation()
        if known is None:
            raise TypeError(f"{type(self).__name__}(config, platform): tell it which Platform it is")
        self.config = config
        self.platform = Platform(known)
        self._running = False
        self._message_handler: MessageHandler | None = None
        self._inbox: Inbox | None = None
        self._busy_session_handler: BusyHandler | None = None
        self._fatal_error_handler: Callable[[Any], Any] | None = None
        self._topic_recovery_fn: Callable[[SessionSource], str | None] | None = None
        self._authorization_check: Callable[[str, str | None, str | None], bool] | None = None
        self._session_store: Any = None
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._session_tasks: dict[str, asyncio.Task[Any]] = {}
        self._active_sessions: dict[str, asyncio.Event] = {}
        self._pending_messages: dict[str, MessageEvent] = {}
        self._typing_paused: set[str] = set()
        self._post_delivery_callbacks: dict[str, tuple[int | None, PostDelivery]] = {}
        self._fatal_error: tuple[str, str, bool] | None = None
        self._platform_lock: tuple[str, str] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether it is connected, as far as it knows."""
        return self._running

    @property
    def has_fatal_error(self) -> bool:
        """Whether it gave up."""
        return self._fatal_error is not None

    @property
    def fatal_error_code(self) -> str | None:
        """A short word for why it gave up."""
        return self._fatal_error[0] if self._fatal_error else None

    @property
    def fatal_error_message(self) -> str | None:
        """Why it gave up, for people."""
        return self._fatal_error[1] if self._fatal_error else None

    @property
    def fatal_error_retryable(self) -> bool:
        """Whether connecting again may help."""
        return self._fatal_error is not None and self._fatal_error[2]

    @property
    def enforces_own_access_policy(self) -> bool:
        """Whether it lets in nobody whom its own settings do not allow."""
        return False

    @property
    def authorization_is_upstream(self) -> bool:
        """Whether the service itself decides who may talk to the agent."""
        return False

    # -- what an adapter brings ----------------------------------------------------------------------------------

    @abc.abstractmethod
    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Connect; false when it cannot."""

    @abc.abstractmethod
    async def disconnect(self) -> None:
        """End the connection."""

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """Return `name` and `type` of a chat."""
        return {"name": chat_id, "type": "dm"}

    # -- what comes in -------------------------------------------------------------------------------------------

    async def handle_message(self, event: MessageEvent) -> None:
        """Take a message in: an adapter calls this for each; it returns before the message is answered."""
        if event.source is not None and self._inbox is not None:
            self._apply_topic_recovery(event)
            await self._inbox(event)
        elif event.source is not None and self._message_handler is not None and _direct_loop is not None:
            self._apply_topic_recovery(event)
            await _direct_loop(self, event)
        else:
            missing = "no gateway receives messages" if event.source is not None else "it has no source"
            logger.warning("[%s] a message was dropped: %s", self.name, missing)

    def build_source(
        self,
        chat_id: str,
        chat_name: str | None = None,
        chat_type: str = "dm",
        user_id: str | None = None,
        user_name: str | None = None,
        thread_id: str | None = None,
        chat_topic: str | None = None,
        user_id_alt: str | None = None,
        chat_id_alt: str | None = None,
        is_bot: bool = False,
        scope_id: str | None = None,
        guild_id: str | None = None,
        parent_chat_id: str | None = None,
        message_id: str | None = None,
        role_authorized: bool = False,
        auto_thread_created: bool = False,
        auto_thread_initial_name: str | None = None,
    ) -> SessionSource:
        """Return where a message comes from; ids become texts, and a blank topic none."""
        return SessionSource(
            platform=self.platform,
            chat_id=str(chat_id),
            chat_name=chat_name,
            chat_type=chat_type,
            user_id=_text(user_id),
            user_name=user_name,
            thread_id=_text(thread_id),
            chat_topic=(chat_topic or "").strip() or None,
            user_id_alt=_text(user_id_alt),
            chat_id_alt=_text(chat_id_alt),
            is_bot=is_bot,
            scope_id=_text(scope_id),
            guild_id=_text(guild_id),
            parent_chat_id=_text(parent_chat_id),
            message_id=_text(message_id),
            role_authorized=role_authorized,
            auto_thread_created=auto_thread_created,
            auto_thread_initial_name=auto_thread_initial_name,
        )

    def set_message_handler(self, handler: MessageHandler | None) -> None:
        """Let `await handler(event)` answer messages: a text, an `EphemeralReply`, or None for no answer."""
        self._message_handler = handler

    def set_inbox(self, inbox: Inbox | None) -> None:
        """Let `await inbox(event)` keep messages, in place of answering them here; the gateway calls it.

        It returns once the message is on disk, and raises where it could not be kept: then the service is not to be
        told that it arrived.
        """
        self._inbox = inbox

    def set_busy_session_handler(self, handler: BusyHandler | None) -> None:
        """Ask `await handler(event, session_key)` first when a session is busy; true means that it is dealt with."""
        self._busy_session_handler = handler

    def set_session_store(self, store: Any) -> None:
        """Hand over the sessions, for adapters that look into them."""
        self._session_store = store

    def set_fatal_error_handler(self, handler: Callable[[Any], Any] | None) -> None:
        """Call `handler(adapter)` when it gives up."""
        self._fatal_error_handler = handler

    def set_topic_recovery_fn(self, function: Callable[[SessionSource], str | None] | None) -> None:
        """Ask `function(source)` for the thread of each message; None leaves it."""
        self._topic_recovery_fn = function

    def set_authorization_check(self, check: Callable[[str, str | None, str | None], bool] | None) -> None:
        """Ask `check(user_id, chat_type, chat_id)` whether somebody may use a button."""
        self._authorization_check = check

    # -- sessions ------------------------------------------------------------------------------------------------

    async def on_processing_start(self, event: MessageEvent) -> None:
        """The work on a message begins."""

    async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
        """The work on a message has ended."""

    def register_post_delivery_callback(
        self, session_key: str, callback: PostDelivery, *, generation: int | None = None
    ) -> None:
        """Call `callback()` once, after the session's next reply.

        Args:
            generation: which run of the session it is of; one of another run does not call it.
        """
        self._post_delivery_callbacks[session_key] = (generation, callback)

    def pop_post_delivery_callback(self, session_key: str, *, generation: int | None = None) -> PostDelivery | None:
        """Take the callback away and return it; None when there is none, or it is of another run."""
        entry = self._post_delivery_callbacks.get(session_key)
        if entry is None or (generation is not None and entry[0] is not None and entry[0] != generation):
            return None
        return self._post_delivery_callbacks.pop(session_key)[1]

    def pause_typing_for_chat(self, chat_id: str) -> None:
        """Show nothing in this chat for now: somebody is asked something there."""
        self._typing_paused.add(chat_id)

    def resume_typing_for_chat(self, chat_id: str) -> None:
        """Show it again."""
        self._typing_paused.discard(chat_id)

    async def interrupt_session_activity(self, session_key: str, chat_id: str) -> None:
        """Tell the work on a session's message that it is to end, and show no typing."""
        if session_key in self._active_sessions:
            self._active_sessions[session_key].set()
        await call_optional(self, "stop_typing", chat_id)

    def has_pending_interrupt(self, session_key: str) -> bool:
        """Say whether the work on a session's message is to end."""
        event = self._active_sessions.get(session_key)
        return event is not None and event.is_set()

    def get_pending_message(self, session_key: str) -> MessageEvent | None:
        """Take the message that waits for a session; None when there is none."""
        return self._pending_messages.pop(session_key, None)

    async def cancel_session_processing(
        self, session_key: str, *, release_guard: bool = True, discard_pending: bool = True
    ) -> None:
        """Stop the work on a session's message.

        Args:
            release_guard: the session is free afterwards.
            discard_pending: what waits is forgotten.
        """
        if discard_pending:
            self._pending_messages.pop(session_key, None)
        task = self._session_tasks.get(session_key)
        if task is not None and task is not asyncio.current_task() and not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if release_guard and session_key not in self._session_tasks:
            self._active_sessions.pop(session_key, None)

    async def cancel_background_tasks(self) -> None:
        """Stop everything that goes on."""
        self._pending_messages.clear()
        tasks = [task for task in self._background_tasks if task is not asyncio.current_task() and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._background_tasks.clear()
        self._session_tasks.clear()
        self._active_sessions.clear()

    # -- for adapters --------------------------------------------------------------------------------------------

    def _mark_connected(self) -> None:
        self._running, self._fatal_error = True, None

    def _mark_disconnected(self) -> None:
        self._running = False

    def _set_fatal_error(self, code: str, message: str, *, retryable: bool) -> None:
        self._running, self._fatal_error = False, (code, message, retryable)
        logger.error("[%s] %s: %s", self.name, code, message)

    async def _notify_fatal_error(self) -> None:
        """Tell the runner that it gave up."""
        if self._fatal_error_handler is not None:
            value = self._fatal_error_handler(self)
            if inspect.isawaitable(value):
                await value

    def _acquire_platform_lock(self, scope: str, identity: str, resource_desc: str) -> bool:
        """Make sure that no other process uses the same token; false sets a fatal error that names it."""
        metadata = {"platform": self.platform.value}
        try:
            ours, holder = adapter_state.acquire_scoped_lock(scope, identity, metadata)
        except OSError as exc:
            logger.warning("[%s] no lock for %s, going on without: %s", self.name, resource_desc, exc)
            return True
        if not ours:
            pid = (holder or {}).get("pid")
            text = f"{resource_desc} is already in use by process {pid}. Stop that one first."
            self._set_fatal_error(f"{scope}_lock", text, retryable=False)
            return False
        self._platform_lock = (scope, identity)
        return True

    def _release_platform_lock(self) -> None:
        if self._platform_lock is not None:
            adapter_state.release_scoped_lock(*self._platform_lock)
            self._platform_lock = None

    def _is_sender_authorized(
        self, user_id: str, chat_type: str | None = None, chat_id: str | None = None
    ) -> bool | None:
        """Say whether somebody may do something beside messages; None when nobody can tell."""
        check = self._authorization_check
        return None if check is None else bool(check(user_id, chat_type, chat_id))

    async def _keep_typing(self, chat_id: str, interval: float = 2.0, metadata: Metadata = None) -> None:
        """Show that an answer is being written, until this is cancelled."""
        try:
            while True:
                if chat_id not in self._typing_paused:
                    await call_optional(self, "send_typing", chat_id, metadata=metadata)
                await asyncio.sleep(interval)
        finally:
            await call_optional(self, "stop_typing", chat_id)

    def _event_session_key(self, event: MessageEvent) -> str:
        assert event.source is not None
        extra = getattr(self.config, "extra", None) or {}  # some adapters have a config of their own
        return build_session_key(
            event.source,
            group_sessions_per_user=bool(extra.get("group_sessions_per_user", True)),
            thread_sessions_per_user=bool(extra.get("thread_sessions_per_user", False)),
            profile=event.source.profile,
        )

    def _apply_topic_recovery(self, event: MessageEvent) -> None:
        """Put a message into the thread that the runner says it belongs to."""
        if self._topic_recovery_fn is None or event.source is None:
            return
        try:
            thread = self._topic_recovery_fn(event.source)
        except Exception as exc:  # noqa: BLE001 - the message goes on where it came in
            logger.warning("[%s] the thread of a message could not be told: %r", self.name, exc)
            return
        if thread is not None:
            event.source.thread_id = str(thread)

    @staticmethod
    def _merge_caption(existing: str | None, new: str) -> str:
        return join_texts(existing or "", new)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
