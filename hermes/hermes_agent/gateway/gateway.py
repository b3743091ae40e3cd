"""The gateway: adapters of the configured platforms, and what becomes of their messages. For the core loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
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
"""How long a reload waits for adapters, to say what became of them."""
NON_ADAPTERS = frozenset({"local", "api_server", "webhook"})
"""Names of platforms that other front doors are."""


class Gateway:
    """The platforms of one process; plugins know it as `gateway_runner`."""

    def __init__(self, works: GatewayDeps) -> None:
        self.deps = works
        self.config = GatewayConfig()
        self.pairing_store = PairingStore()
        self._bridge = works.agent.bridge
        self._access = AccessControl(works.platforms.get, self.pairing_store, works.environ)
        self._connections: dict[str, AdapterConnection] = {}
        self._events = EventHooks(self._bridge)
        self._ready = False
        """Chats can be served."""

    @cached_property
    def session_store(self) -> ChatSessions:
        """The chats; made when the first platform is wanted, since a daemon without one has none."""
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
        """The adapters that are connected."""
        return {Platform(name): link.adapter for name, link in self._connections.items() if link.is_connected}

    def states(self) -> list[dict[str, Any]]:
        """Return what is told of each platform: `name`, `state`, `reason`, `since`, `failures`."""
        return [link.state.to_json() for link in self._connections.values()]

    def counts(self) -> dict[str, int]:
        """Return how many platforms are connected, how many are not, and how many turns run in chats."""
        up = sum(link.is_connected for link in self._connections.values())
        down = len(self._connections) - up
        return {
            "platforms": up,
            "platforms_down": down,
            "chat_turns": len(self.session_store.running) if self._connections else 0,
        }

    def menu(self) -> list[tuple[str, str]]:
        """Return name and description of each command for a service's menu; for adapters (contract §7.3)."""
        menu: list[tuple[str, str]] = self.session_store.commands.menu()
        return menu

    def asker_of(self, value: str) -> str | None:
        """Return who alone may press a button that asks about a command; None for other buttons. For adapters."""
        asker: str | None = self.session_store.commands.confirmations.asker_of(value)
        return asker

    async def start(self) -> None:
        """Begin to connect what is configured; returns before it is."""
        inboxes, loop = self.deps.agent.injected, asyncio.get_running_loop()
        inboxes.on_push = lambda session: _on_loop(loop, self._start_injected_turn, session)
        self.deps.agent.context_engines.on_compacted = partial(self._events.emit, "session:compress")
        self._events.hooks = await self._bridge.run(load_hooks, self.deps.home / "hooks")
        await self.reload(wait_s=0)
        platforms = [name for name in self._connections]
        self._events.emit("gateway:startup", {"platforms": platforms})
        await self.deps.agent.subagents.recover()
        if self.deps.restarted_for:
            from hermes_agent.gateway.command_confirmation import restart_notice  # few starts were asked for in a chat

            await self.deps.delivery.send(restart_notice(self.deps.restarted_for))

    async def reload(self, *, wait_s: float = RELOAD_S) -> dict[str, str]:
        """Connect what is configured now, disconnect what is no more, and try again what had failed.

        Args:
            wait_s: how long to wait for adapters that connect.

        Returns: by platform, what changed: `connected`, `reconnected`, `disconnected`, or why it is not connected.
        """
        self.deps.settings = self.deps.read_settings()
        self.config = await self._bridge.run(gateway_config, self.deps.values(), self.deps.platforms)
        wanted = {
            platform.value: config
            for platform, config in self.config.platforms.items()
            if config.enabled and platform.value not in NON_ADAPTERS
        }
        gone = [
            link
            for name, link in self._connections.items()
            if wanted.get(name) != link.config or self.deps.platforms.get(name) is not link.entry
        ]
        were = {link.name for link in gone}
        await asyncio.gather(*(self._stop_connection(link) for link in gone))
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
        changed = dict.fromkeys(sorted(were - wanted.keys()), "disconnected")
        states = await asyncio.gather(*(self._connections[name].wait_connected(wait_s) for name in begun))
        for name, state in zip(begun, states, strict=True):
            changed[name] = "reconnected" if name in were else "connected"
            if state.state == "connecting":
                changed[name] = "is still connecting"
            elif state.state != "connected":
                changed[name] = f"not connected: {state.reason}"
        return changed

    async def send_text(self, to: str, text: str, reply_id: str = "", principal: str = "") -> str:
        """Have a text brought to a chat, and return the reply's id; the same id twice is one message.

        Args:
            to: `PLATFORM[:CHAT[:THREAD]]`.
            principal: whose text it is; files of others are not sent with it.

        Raises:
            UserError: there is no such platform or chat.
        """
        return await self.deps.delivery.send(await self.compose(to, text, reply_id, principal))

    async def compose(self, to: str, text: str, reply_id: str = "", principal: str = "") -> OutboundReply:
        """Return a text for a chat as the outbox takes it; arguments and errors as `say`."""
        from hermes_agent.delivery import OutboundReply
        from hermes_agent.gateway.chat_messages import (
            parse_target,  # only who says something needs these
            reply_parts,
        )

        entries = {entry.name: entry for entry in self.deps.platforms.all_entries()}
        target = parse_target(to, self.config, entries, self.deps.environ)
        link, entry = self._connections.get(target.platform), entries.get(target.platform)
        adapter = None if link is None else link.adapter
        longest = 0 if entry is None else entry.max_message_length
        is_open = self.deps.is_open(principal)
        parts = await self._bridge.run(reply_parts, text, adapter, longest, is_open=is_open)
        return OutboundReply(target, tuple(parts), id=reply_id)

    async def attach(self, session_key: str, job: str, text: str) -> None:
        """Make what a scheduled job told a chat part of its conversation, so that people can come back to it."""
        chats = self.session_store
        while True:
            route = await chats.route(session_key)
            if route is None or await self.deps.agent.call_transcript("title", route.session_id) is None:
                return  # nobody spoke there yet, or the session is gone
            if (running := chats.running.get(session_key)) is None:  # asked last: nothing comes between it and `append`
                break
            await running.ended.wait()
        said = [Message("user", ATTACHED_TEXT.format(job=job)), Message("assistant", text)]
        await self.deps.agent.call_transcript("append", route.session_id, said, principal=f"cron:{job}")

    async def drain(self, timeout_s: float) -> None:
        """Disconnect everything, each within its own deadline; the inbox has ended the turns before."""
        self.deps.agent.injected.on_push = None
        await asyncio.gather(*(self._stop_connection(link) for link in list(self._connections.values())))
        await self._events.aclose()
        if "session_store" in vars(self):  # it was made
            await self.session_store.aclose()

    def _start_injected_turn(self, session: str) -> None:
        if self._connections:
            self.session_store.start_injected_turn(session)

    def _start_connection(self, name: str, config: PlatformConfig) -> AdapterConnection:
        entry = self.deps.platforms.get(name)
        if entry is None:
            logger.warning("platforms.%s is enabled, and no plugin brings such a platform", name)
        link = AdapterConnection(
            name,
            entry,
            config,
            bridge=self._bridge,
            make=lambda: self.deps.platforms.create_adapter(name, config),
            prepare=lambda adapter: self._prepare(link, adapter),
            on_up=self._on_connected,
            on_down=self._on_disconnected,
            told=self.deps.on_state,
            pauses=self.deps.pauses,
        )
        link.start()
        return link

    async def _stop_connection(self, link: AdapterConnection) -> None:
        self._connections.pop(link.name, None)
        self.deps.delivery.serve(link.name, None)
        await link.stop()

    def _on_connected(self, link: AdapterConnection) -> None:
        from hermes_agent.gateway.chat_messages import PlatformDelivery  # imported by `_load`

        outlet = PlatformDelivery(link, self._bridge)
        self.deps.delivery.deliver(link.name, outlet.deliver, outlet.check)
        self.deps.delivery.serve(link.name, self.session_store.serve, abandon=self.session_store.abandon)

    def _on_disconnected(self, link: AdapterConnection) -> None:
        self.deps.delivery.deliver(link.name, None)

    def _prepare(self, link: AdapterConnection, adapter: Any) -> None:
        """Hand an adapter what it needs of us; on the plugin loop, where it calls back."""

        async def take(event: MessageEvent) -> None:
            await self._bridge.on_core(self._intake.take(link, event))

        async def lost(lost_adapter: Any) -> None:
            async def tell() -> None:
                link.handle_failure(lost_adapter)

            await self._bridge.on_core(tell())

        def authorised(user_id: str, chat_type: str | None = None, chat_id: str | None = None) -> bool:
            """Say whether somebody may use a button; what approves is one, so they must be allowed to approve."""
            source = SessionSource(Platform(link.name), chat_id or "", chat_type=chat_type or "dm", user_id=user_id)
            admission = self._access.admit(source, link.config, adapter)
            return admission.is_allowed and may_run_command("approve", "known", source, admission, link.config)

        adapter.gateway_runner = self
        adapter.set_message_handler(take)
        adapter.set_inbox(take)
        adapter.set_session_store(self.session_store)
        adapter.set_fatal_error_handler(lost)
        adapter.set_authorization_check(authorised)


def _load() -> None:
    """Import what chats need; in a worker, so that the loop goes on."""
    from hermes_agent.gateway import chat_messages  # noqa: F401


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[str], None], value: str) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has just ended
        loop.call_soon_threadsafe(function, value)
