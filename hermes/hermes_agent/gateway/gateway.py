"""The gateway: connections of the configured platforms, and their messages; on the core loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.config import Platform, PlatformConfig
from hermes_agent.adapters.events import SessionSource
from hermes_agent.adapters.registry import GatewayConfig, gateway_config
from hermes_agent.core.messages import Message
from hermes_agent.gateway.access import AccessControl, PairingStore, may_run_command
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.dependencies import GatewayDeps
from hermes_agent.gateway.event_hooks import EventHooks, load_hooks

if TYPE_CHECKING:
    from hermes_agent.adapters.events import MessageEvent
    from hermes_agent.delivery import OutboundReply
    from hermes_agent.gateway.chat_sessions import ChatSessions
    from hermes_agent.gateway.intake import Intake


logger = logging.getLogger(__name__)

ATTACHED_TEXT = "[The scheduled job {job!r} has told this chat what follows.]"
RELOAD_S = 20.0
"""Seconds for which a reload waits for adapters, so that it can report their states."""
NON_ADAPTERS = frozenset({"local", "api_server", "webhook"})
"""Names of platforms that other front ends implement."""


class Gateway:
    """The platforms of a process; adapters know it as `gateway_runner`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self.deps = deps
        self.config = GatewayConfig()
        self.pairing_store = PairingStore()
        self._bridge = deps.agent.bridge
        self._access = AccessControl(deps.platforms.get, self.pairing_store, deps.environ)
        self._connections: dict[str, AdapterConnection] = {}
        self._events = EventHooks(self._bridge)
        self._ready = False
        """Whether chats can be served."""

    @cached_property
    def session_store(self) -> ChatSessions:
        """The chat sessions, created with the first platform, because a daemon without platforms needs none."""
        from hermes_agent.gateway.chat_commands import ChatCommands
        from hermes_agent.gateway.chat_sessions import ChatSessions

        chats = ChatSessions(self.deps, self._events, self._connections)
        chats.commands = ChatCommands(chats)
        return chats

    @cached_property
    def _intake(self) -> Intake:
        from hermes_agent.gateway.intake import Intake

        chats = self.session_store
        return Intake(chats, chats.commands, self._access, self.pairing_store, self)

    @property
    def adapters(self) -> dict[Platform, Any]:
        """The connected adapters."""
        return {
            Platform(name): connection.adapter
            for name, connection in self._connections.items()
            if connection.is_connected
        }

    def connected_adapter(self, platform: str) -> Any:
        """Return the connected adapter of a platform.

        Raises:
            LookupError: it is not configured (`adapter_not_registered`) or not connected (`adapter_disconnected`).
        """
        connection = self._connections.get(platform)
        if connection is None:
            raise LookupError("adapter_not_registered")
        if not connection.is_connected:
            raise LookupError("adapter_disconnected")
        return connection.adapter

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each platform: `name`, `state`, `reason`, `since`, `failures`."""
        return [connection.state.to_json() for connection in self._connections.values()]

    def counts(self) -> dict[str, int]:
        """Return the numbers of connected platforms, other platforms, and turns in chats."""
        up = sum(connection.is_connected for connection in self._connections.values())
        down = len(self._connections) - up
        return {
            "platforms": up,
            "platforms_down": down,
            "chat_turns": len(self.session_store.running) if self._connections else 0,
        }

    def menu(self) -> list[tuple[str, str]]:
        """Return name and description of each command for a menu; called by adapters (contract §7.3)."""
        menu: list[tuple[str, str]] = self.session_store.commands.menu()
        return menu

    def asker_of(self, value: str) -> str | None:
        """Return the only user who may press a button, or None for all users; called by adapters."""
        asker: str | None = self.session_store.commands.confirmations.asker_of(value)
        return asker

    async def start(self) -> None:
        """Start to connect the configured platforms; return before they are connected."""
        injected, loop = self.deps.agent.injected, asyncio.get_running_loop()
        injected.on_push = lambda session: _on_loop(loop, self._start_injected_turn, session)
        self.deps.agent.context_engines.on_compacted = partial(self._events.emit, "session:compress")
        self._events.hooks = await self._bridge.run(load_hooks, self.deps.home / "hooks")
        await self.reload(wait_s=0)
        platforms = [name for name in self._connections]
        self._events.emit("gateway:startup", {"platforms": platforms})
        await self.deps.agent.subagents.recover()
        if self.deps.restarted_for:
            from hermes_agent.gateway.command_confirmation import (
                restart_notice,
            )  # needed after a restart from a chat only

            await self.deps.delivery.send(restart_notice(self.deps.restarted_for))

    async def reload(self, *, wait_s: float = RELOAD_S) -> dict[str, str]:
        """Connect and disconnect platforms as configured now, and retry failed connections.

        Args:
            wait_s: how long to wait for adapters that connect, in seconds.

        Return the changes by platform: `connected`, `reconnected`, `disconnected`, or the reason of a failure.
        """
        self.deps.settings = self.deps.read_settings()
        self.config = await self._bridge.run(gateway_config, self.deps.values(), self.deps.platforms)
        wanted = {
            platform.value: config
            for platform, config in self.config.platforms.items()
            if config.enabled and platform.value not in NON_ADAPTERS
        }
        gone = [
            connection
            for name, connection in self._connections.items()
            if wanted.get(name) != connection.config or self.deps.platforms.get(name) is not connection.entry
        ]
        were = {connection.name for connection in gone}
        await asyncio.gather(*(self._stop_connection(connection) for connection in gone))
        if wanted and not self._ready:
            await self._bridge.run(_load)
            await self.session_store.commands.confirmations.restore()
            self._ready = True
        begun = []
        for name, config in wanted.items():
            if name not in self._connections:
                self._connections[name] = self._start_connection(name, config)
                begun.append(name)
            elif self._connections[name].retry():
                begun.append(name)
        for connection in self._connections.values():
            if connection.is_connected:
                await connection.rewire(connection.adapter)
        changed = dict.fromkeys(sorted(were - wanted.keys()), "disconnected")
        states = await asyncio.gather(*(self._connections[name].wait_connected(wait_s) for name in begun))
        for name, state in zip(begun, states, strict=True):
            changed[name] = "reconnected" if name in were else "connected"
            if state.state == "connecting":
                changed[name] = "still connecting"
            elif state.state != "connected":
                changed[name] = f"not connected: {state.reason}"
        return changed

    async def send_text(self, to: str, text: str, reply_id: str = "", principal: str = "") -> str:
        """Queue a text for a chat and return the id of the reply; the same id twice is one message.

        Args:
            to: `PLATFORM[:CHAT[:THREAD]]`.
            principal: owner of the text; files of other principals are not sent with it.

        Raises:
            UserError: there is no such platform or chat.
        """
        return await self.deps.delivery.send(await self.compose(to, text, reply_id, principal))

    async def compose(self, to: str, text: str, reply_id: str = "", principal: str = "") -> OutboundReply:
        """Return a text for a chat as a reply for the outbox; arguments and errors as in `send_text`."""
        from hermes_agent.delivery import OutboundReply
        from hermes_agent.gateway.chat_messages import (
            parse_target,  # needed to send a text only
            reply_parts,
        )

        entries = {entry.name: entry for entry in self.deps.platforms.all_entries()}
        target = parse_target(to, self.config, entries, self.deps.environ)
        connection, entry = self._connections.get(target.platform), entries.get(target.platform)
        adapter = None if connection is None else connection.adapter
        longest = 0 if entry is None else entry.max_message_length
        is_open = self.deps.is_open(principal)
        parts = await self._bridge.run(reply_parts, text, adapter, longest, is_open=is_open, chat=target.chat)
        return OutboundReply(target, tuple(parts), id=reply_id)

    async def inject(self, text: str, *, session_key: str | None, origin: Mapping[str, Any] | None) -> str:
        """Queue a message of a plugin as the next user message of a chat; return why it is not queued, or "".

        It runs no command and answers no question. The sender must have access now.

        Args:
            session_key: key of a chat with a session; the message is dropped if that session ends before it.
            origin: `SessionSource.to_dict()` of a chat; a session is started if it has none.
        """
        if not self._connections:
            return "no chat platform is connected"
        from hermes_agent.gateway.plugin_messages import queue_message  # few plugins write to chats

        return await queue_message(self.session_store, self._access, text, session_key, origin)

    async def attach(self, session_key: str, job: str, text: str) -> None:
        """Add the output of a scheduled job to the conversation of a chat, so that users can refer to it."""
        chats = self.session_store
        while True:
            route = await chats.route(session_key)
            if route is None or await self.deps.agent.call_transcript("title", route.session_id) is None:
                return  # the chat has no session, or it is empty
            if (
                running := chats.running.get(session_key)
            ) is None:  # checked last, so that no turn starts before `append`
                break
            await running.ended.wait()
        messages = [Message("user", ATTACHED_TEXT.format(job=job)), Message("assistant", text)]
        await self.deps.agent.call_transcript("append", route.session_id, messages, principal=f"cron:{job}")

    async def drain(self, timeout_s: float) -> None:
        """Disconnect all platforms, each within its deadline; the inbox has ended the turns before."""
        self.deps.agent.injected.on_push = None
        await asyncio.gather(*(self._stop_connection(connection) for connection in list(self._connections.values())))
        await self._events.aclose()
        if "session_store" in vars(self):  # it was created
            await self.session_store.aclose()

    def _start_injected_turn(self, session: str) -> None:
        if self._connections:
            self.session_store.start_injected_turn(session)

    def _start_connection(self, name: str, config: PlatformConfig) -> AdapterConnection:
        entry = self.deps.platforms.get(name)
        if entry is None:
            logger.warning("platforms.%s is enabled, but no plugin registers such a platform", name)
        connection = AdapterConnection(
            name,
            entry,
            config,
            bridge=self._bridge,
            make=lambda: self.deps.platforms.create_adapter(name, config),
            prepare=lambda adapter: self._prepare(connection, adapter),
            on_up=self._on_connected,
            on_down=self._on_disconnected,
            on_state=self.deps.on_state,
            pauses=self.deps.pauses,
        )
        connection.start()
        return connection

    async def _stop_connection(self, connection: AdapterConnection) -> None:
        self._connections.pop(connection.name, None)
        self.deps.delivery.serve(connection.name, None)
        await connection.stop()

    def _on_connected(self, connection: AdapterConnection) -> None:
        from hermes_agent.gateway.chat_messages import PlatformDelivery  # imported by `_load`

        outlet = PlatformDelivery(connection, self._bridge)
        self.deps.delivery.deliver(connection.name, outlet.deliver, outlet.check)
        self.deps.delivery.serve(connection.name, self.session_store.serve, abandon=self.session_store.abandon)

    def _on_disconnected(self, connection: AdapterConnection) -> None:
        self.deps.delivery.deliver(connection.name, None)

    def _prepare(self, connection: AdapterConnection, adapter: Any) -> None:
        """Give an adapter the callbacks of the gateway, on the plugin loop."""

        async def take(event: MessageEvent) -> None:
            await self._bridge.on_core(self._intake.take(connection, event))

        async def happened(event: dict[str, Any], source: SessionSource) -> None:
            await self._bridge.on_core(self._intake.take_platform_event(connection, event, source))

        async def lost(failed_adapter: Any) -> None:
            async def notify() -> None:
                connection.handle_failure(failed_adapter)

            await self._bridge.on_core(notify())

        async def reacted(event: dict[str, Any]) -> None:
            kind = "removed" if "removed" in str(event.get("event_type") or event.get("type") or "") else "added"

            async def emit() -> None:
                self._events.emit(f"reaction:{kind}", {"platform": connection.name, **event})

            await self._bridge.on_core(emit())

        def authorised(
            user_id: str, chat_type: str | None = None, chat_id: str | None = None, is_bot: bool = False
        ) -> bool:
            """Return whether a user may use a button; buttons approve, so the right to approve is needed."""
            source = SessionSource(
                Platform(connection.name),
                chat_id or "",
                chat_type=chat_type or "dm",
                user_id=user_id,
                is_bot=is_bot,
            )
            admission = self._access.admit(source, connection.config, adapter)
            return admission.is_allowed and may_run_command("approve", "known", source, admission, connection.config)

        adapter.gateway_runner = self
        if callable(set_handlers := getattr(adapter, "set_plugin_handlers", None)):
            set_handlers(lambda: self.deps.platform_handlers(connection.name))
        if callable(set_event_handler := getattr(adapter, "set_platform_event_handler", None)):
            set_event_handler(happened)
        if callable(set_reaction_handler := getattr(adapter, "set_reaction_handler", None)):
            set_reaction_handler(reacted)
        adapter.set_message_handler(take)
        adapter.set_inbox(take)
        adapter.set_session_store(self.session_store)
        adapter.set_fatal_error_handler(lost)
        adapter.set_authorization_check(authorised)


def _load() -> None:
    """Import the modules of chats, in a worker."""
    from hermes_agent.gateway import chat_messages  # noqa: F401


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[str], None], value: str) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(function, value)
