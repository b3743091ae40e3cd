"""`BasePlatformAdapter`, the base class of platform adapters.

An adapter implements `connect`, `disconnect` and `send`, passes incoming messages to `handle_message`, and overrides
what its service can do better. The gateway calls it through the functions of `events`, so that the shorter signatures
of the guide work. Source: plugin contract §8.2.2, §13 row 22.
"""

from __future__ import annotations

import abc
import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hermes_agent.adapters import adapter_state
from hermes_agent.adapters.config import NATIVE_ATTRIBUTES, Platform, PlatformConfig
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
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.tasks import end_task

__all__ = ["BasePlatformAdapter", "PlatformEvent", "run_callback", "set_direct_loop"]

logger = logging.getLogger(__name__)

MessageHandler = Callable[[MessageEvent], Awaitable[Any]]
Inbox = Callable[[MessageEvent], Awaitable[None]]
BusyHandler = Callable[[MessageEvent, str], Awaitable[bool]]
PostDelivery = Callable[[], Any]
DirectLoop = Callable[["BasePlatformAdapter", MessageEvent], Awaitable[None]]
EventHandler = Callable[[dict[str, Any], SessionSource], Awaitable[None]]
HandlerFactory = tuple[str, Callable[[Any], Any]]
"""A plugin, and its function that is given the native object of a platform."""


class PlatformEvent(LazyNamedTuple):
    """What happened in a chat besides messages: a reaction, an edit, a deletion, a new or renamed thread."""

    event_type: str
    payload: dict[str, Any]
    """Its fields; ids are texts, and None is unknown. Source: contract of 0.23 §7.4."""
    source: SessionSource
    """Where it happened, and the user with the right to it."""


_direct_loop: DirectLoop | None = None


def set_direct_loop(loop: DirectLoop | None) -> None:
    """Answer the messages of adapters without an inbox by `await loop(adapter, event)`."""
    global _direct_loop
    _direct_loop = loop


async def run_callback(adapter: BasePlatformAdapter, key: str) -> None:
    """Call the callback for the next reply of a session, once."""
    callback = adapter.pop_post_delivery_callback(key)
    if callback is None:
        return
    try:
        value = callback()
        if inspect.isawaitable(value):
            await value
    except Exception as exc:  # noqa: BLE001 - the reply is delivered already
        logger.warning("[%s] post-delivery callback failed: %r", adapter.name, exc)


class BasePlatformAdapter(MessageSender):
    """Base class of the adapter of a chat service.

    Args:
        platform: may be omitted while an `adapter_factory` runs.

    Raises:
        TypeError: `platform` is missing and no `adapter_factory` runs.
    """

    supports_inchannel_continuable: bool = False
    interactive_resume: bool = True
    serves_profile_prefix: bool = False
    gateway_runner: Any = None

    def __init__(self, config: PlatformConfig, platform: Platform | str | None = None) -> None:
        known = platform if platform is not None else platform_in_creation()
        if known is None:
            raise TypeError(f"{type(self).__name__}(config, platform): the argument `platform` is missing")
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
        self._platform_event_handler: EventHandler | None = None
        self._reaction_handler: Callable[[dict[str, Any]], Awaitable[None]] | None = None
        self._plugin_handlers: Callable[[], Sequence[HandlerFactory]] | None = None
        self._wired: tuple[Any, set[tuple[str, str]]] = (None, set())

    @property
    def is_connected(self) -> bool:
        """Whether the adapter is connected, as far as it knows."""
        return self._running

    @property
    def has_fatal_error(self) -> bool:
        """Whether the adapter stopped because of an error."""
        return self._fatal_error is not None

    @property
    def fatal_error_code(self) -> str | None:
        """Short code of that error."""
        return self._fatal_error[0] if self._fatal_error else None

    @property
    def fatal_error_message(self) -> str | None:
        """Message of that error, for users."""
        return self._fatal_error[1] if self._fatal_error else None

    @property
    def fatal_error_retryable(self) -> bool:
        """Whether a new connection may help."""
        return self._fatal_error is not None and self._fatal_error[2]

    @property
    def enforces_own_access_policy(self) -> bool:
        """Whether the adapter rejects users that its own settings do not allow."""
        return False

    @property
    def authorization_is_upstream(self) -> bool:
        """Whether the service itself decides who may use the agent."""
        return False

    @property
    def native_object(self) -> Any:
        """The object of the service's SDK that handlers of plugins are given; None without one."""
        names = NATIVE_ATTRIBUTES.get(self.platform.value, ())
        return next((found for name in names if (found := getattr(self, name, None)) is not None), None)

    # -- to implement --------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Connect; return False if that fails."""

    @abc.abstractmethod
    async def disconnect(self) -> None:
        """Disconnect."""

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """Return `name` and `type` of a chat."""
        return {"name": chat_id, "type": "dm"}

    # -- incoming messages ---------------------------------------------------------------------------------------------

    async def handle_message(self, event: MessageEvent) -> None:
        """Receive a message; return before it is answered. The adapter calls this for each message."""
        if event.source is not None and event.source.user_id is None and event.user_id is not None:
            event.source.user_id, event.source.user_name = str(event.user_id), event.user_name
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
        """Return the source of a message; ids become strings, and an empty topic becomes None."""
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
        """Set `handler(event)`, which returns the answer: a text, an `EphemeralReply`, or None for no answer.

        It is used by the message loop of `hermes_agent.testing` and of `compat`; the gateway sets an inbox instead.
        """
        self._message_handler = handler

    def set_inbox(self, inbox: Inbox | None) -> None:
        """Set `inbox(event)`, which stores messages; the gateway calls this.

        It returns when the message is on disk. It raises if the message cannot be stored; the adapter must not
        acknowledge the message to the service then.
        """
        self._inbox = inbox

    def set_busy_session_handler(self, handler: BusyHandler | None) -> None:
        """Set `handler(event, session_key)` for messages to a busy session; it returns True if it handled one."""
        self._busy_session_handler = handler

    def set_session_store(self, session_store: Any) -> None:
        """Set the session store, for adapters that read it."""
        self._session_store = session_store

    def set_fatal_error_handler(self, handler: Callable[[Any], Any] | None) -> None:
        """Call `handler(adapter)` when the adapter stops because of an error."""
        self._fatal_error_handler = handler

    def set_topic_recovery_fn(self, fn: Callable[[SessionSource], str | None] | None) -> None:
        """Set `fn(source)`, which returns the thread of a message; None keeps it."""
        self._topic_recovery_fn = fn

    def set_authorization_check(self, callback: Callable[[str, str | None, str | None], bool] | None) -> None:
        """Set `callback(user_id, chat_type, chat_id)`: whether a user may use a button."""
        self._authorization_check = callback

    def set_platform_event_handler(self, handler: EventHandler | None) -> None:
        """Set `handler(event, source)` for events that are no messages.

        The keys of `event` are `platform`, `event_type` and `payload`.
        """
        self._platform_event_handler = handler

    def set_reaction_handler(self, handler: Callable[[dict[str, Any]], Awaitable[None]] | None) -> None:
        """Set `self._reaction_handler`, which an adapter awaits with each reaction to a message."""
        self._reaction_handler = handler

    async def notify_platform_event(self, event: PlatformEvent) -> None:
        """Pass on an event that is no message; a failure is logged, and stops no message."""
        if self._platform_event_handler is None:
            return
        message = {"platform": self.platform.value, "event_type": event.event_type, "payload": event.payload}
        try:
            await self._platform_event_handler(message, event.source)
        except Exception as exc:  # noqa: BLE001 - what the gateway does with it is no matter of the connection
            logger.warning("[%s] event %s was not passed on: %r", self.name, event.event_type, exc)

    def set_plugin_handlers(self, handlers: Callable[[], Sequence[HandlerFactory]] | None) -> None:
        """Set the function that returns what plugins registered for this platform."""
        self._plugin_handlers = handlers

    @property
    def has_plugin_handlers(self) -> bool:
        """Whether a plugin registered a handler for this platform."""
        return bool(self._plugin_handlers and self._plugin_handlers())

    def rewire_plugin_handlers(self) -> None:
        """Call each factory of `ctx.register_platform_handler` with the native object, once for each object.

        The gateway calls it after `connect`; an adapter may call it earlier, before it adds its own handlers.
        """
        native = self.native_object
        if self._plugin_handlers is None or native is None:
            return
        if self._wired[0] is not native:
            self._wired = (native, set())
        for plugin, factory in self._plugin_handlers():
            key = (plugin, getattr(factory, "__qualname__", repr(factory)))
            if key in self._wired[1]:
                continue
            self._wired[1].add(key)
            try:
                value = factory(native)
                if inspect.isawaitable(value):
                    self._background_tasks.add(task := asyncio.ensure_future(value))
                    task.add_done_callback(self._background_tasks.discard)
            except (Exception, SystemExit) as exc:
                logger.warning(
                    "[%s] platform handler %s of plugin %s raised %s: %s",
                    *(self.name, key[1], plugin, type(exc).__name__, exc),
                    exc_info=True,
                    extra={"plugin": plugin},
                )

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def on_processing_start(self, event: MessageEvent) -> None:
        """Handle the start of the work on a message."""

    async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
        """Handle the end of the work on a message."""

    def register_post_delivery_callback(
        self, session_key: str, callback: PostDelivery, *, generation: int | None = None
    ) -> None:
        """Call `callback()` once, after the next reply of the session.

        Args:
            generation: number of the run of the session; a callback of another run is not called.
        """
        self._post_delivery_callbacks[session_key] = (generation, callback)

    def pop_post_delivery_callback(self, session_key: str, *, generation: int | None = None) -> PostDelivery | None:
        """Remove and return the callback; None if there is none or it belongs to another run."""
        entry = self._post_delivery_callbacks.get(session_key)
        if entry is None or (generation is not None and entry[0] is not None and entry[0] != generation):
            return None
        return self._post_delivery_callbacks.pop(session_key)[1]

    def pause_typing_for_chat(self, chat_id: str) -> None:
        """Show no typing indicator in this chat for now, as a question is pending there."""
        self._typing_paused.add(chat_id)

    def resume_typing_for_chat(self, chat_id: str) -> None:
        """Show the typing indicator again."""
        self._typing_paused.discard(chat_id)

    async def interrupt_session_activity(
        self, session_key: str, chat_id: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Interrupt the work on a message of a session, and hide the typing indicator.

        Args:
            metadata: accepted and ignored.
        """
        if session_key in self._active_sessions:
            self._active_sessions[session_key].set()
        await call_optional(self, "stop_typing", chat_id)

    def has_pending_interrupt(self, session_key: str) -> bool:
        """Return whether the work on a message of a session is interrupted."""
        event = self._active_sessions.get(session_key)
        return event is not None and event.is_set()

    def get_pending_message(self, session_key: str) -> MessageEvent | None:
        """Remove and return the pending message of a session, or None."""
        return self._pending_messages.pop(session_key, None)

    async def cancel_session_processing(
        self, session_key: str, *, release_guard: bool = True, discard_pending: bool = True
    ) -> None:
        """Cancel the work on a message of a session.

        Args:
            release_guard: whether the session is free afterwards.
            discard_pending: whether the pending message is dropped.
        """
        if discard_pending:
            self._pending_messages.pop(session_key, None)
        await end_task(self._session_tasks.get(session_key))
        if release_guard and session_key not in self._session_tasks:
            self._active_sessions.pop(session_key, None)

    async def cancel_background_tasks(self) -> None:
        """Cancel all background tasks."""
        self._pending_messages.clear()
        tasks = [task for task in self._background_tasks if task is not asyncio.current_task() and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._background_tasks.clear()
        self._session_tasks.clear()
        self._active_sessions.clear()

    # -- for adapters --------------------------------------------------------------------------------------------------

    def _mark_connected(self, *, listener_base: str | None = None) -> None:
        """Record that the adapter is connected; `listener_base` is the address of its own server, for the log."""
        if listener_base:
            logger.info("[%s] listens at %s", self.name, listener_base)
        self._running, self._fatal_error = True, None

    def _mark_disconnected(self) -> None:
        self._running = False

    def _set_fatal_error(self, code: str, message: str, *, retryable: bool) -> None:
        self._running, self._fatal_error = False, (code, message, retryable)
        logger.error("[%s] %s: %s", self.name, code, message)

    async def _notify_fatal_error(self) -> None:
        """Notify the gateway that the adapter stopped because of an error."""
        if self._fatal_error_handler is not None:
            value = self._fatal_error_handler(self)
            if inspect.isawaitable(value):
                await value

    def _acquire_platform_lock(self, scope: str, identity: str, resource_desc: str) -> bool:
        """Lock the token for this process; return False and set a fatal error if another process has it."""
        metadata = {"platform": self.platform.value}
        try:
            ours, holder = adapter_state.acquire_scoped_lock(scope, identity, metadata)
        except OSError as exc:
            logger.warning("[%s] %s is not locked: %s", self.name, resource_desc, exc)
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
        self, user_id: str, chat_type: str | None = None, chat_id: str | None = None, *, is_bot: bool = False, **_: Any
    ) -> bool | None:
        """Return whether a user or a bot may do more than send messages; None: no check.

        `thread_id` may be given as well: the rights are those of the chat, a thread has none of its own.
        """
        check: Callable[..., bool] | None = self._authorization_check
        bot = {"is_bot": True} if is_bot else {}
        return None if check is None else bool(check(user_id, chat_type, chat_id, **bot))

    async def _keep_typing(self, chat_id: str, interval: float = 2.0, metadata: Metadata = None) -> None:
        """Show the typing indicator until this task is cancelled."""
        try:
            while True:
                if chat_id not in self._typing_paused:
                    await call_optional(self, "send_typing", chat_id, metadata=metadata)
                await asyncio.sleep(interval)
        finally:
            await call_optional(self, "stop_typing", chat_id)

    def _event_session_key(self, event: MessageEvent) -> str:
        assert event.source is not None
        extra = getattr(self.config, "extra", None) or {}  # some adapters use another config class
        return build_session_key(
            event.source,
            group_sessions_per_user=bool(extra.get("group_sessions_per_user", True)),
            thread_sessions_per_user=bool(extra.get("thread_sessions_per_user", False)),
            profile=event.source.profile,
        )

    def _apply_topic_recovery(self, event: MessageEvent) -> None:
        """Set the thread of a message by the function of `set_topic_recovery_fn`."""
        if self._topic_recovery_fn is None or event.source is None:
            return
        try:
            thread = self._topic_recovery_fn(event.source)
        except Exception as exc:  # noqa: BLE001 - the message keeps its thread
            logger.warning("[%s] topic recovery of a message failed: %r", self.name, exc)
            return
        if thread is not None:
            event.source.thread_id = str(thread)

    @staticmethod
    def _merge_caption(existing: str | None, new: str) -> str:
        return join_texts(existing or "", new)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
