"""Writing to the agent over a chat platform: one in memory, or the one that a plugin brings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from hermes_agent.contracts.platform.adapter import BasePlatformAdapter
from hermes_agent.contracts.platform.calling import call_connect
from hermes_agent.contracts.platform.messages import MessageEvent
from hermes_agent.contracts.platform.results import SendResult
from hermes_agent.contracts.platform.settings import PlatformConfig
from hermes_agent.core.errors import UserError
from hermes_agent.core.ids import new_id
from hermes_agent.host import Host

__all__ = ["Chat", "MemoryAdapter", "Sent", "memory_platform"]

Answer = Callable[[str], Awaitable[str | None]]
Wait = Callable[[Coroutine[Any, Any, Any]], Any]


class Sent(NamedTuple):
    """A message that the agent sent."""

    chat: str
    text: str
    reply_to: str | None = None


class MemoryAdapter(BasePlatformAdapter):
    """A chat service in memory."""

    def __init__(self, config: PlatformConfig) -> None:
        super().__init__(config)
        self.sent: list[Sent] = []

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Connect."""
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        """End the connection."""
        await self.cancel_background_tasks()
        self._mark_disconnected()

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SendResult:
        """Keep the message."""
        self.sent.append(Sent(chat_id, content, reply_to))
        return SendResult(success=True, message_id=str(len(self.sent)))


def memory_platform(ctx: Any) -> None:
    """A plugin for `plugin_host` that brings the platform `memory`."""
    ctx.register_platform("memory", "Memory", adapter_factory=MemoryAdapter, check_fn=lambda: True)


class Chat:
    """A connected adapter; what people write there is answered by the agent.

    Args:
        answer: runs on the core loop.
        wait: runs a coroutine on the plugin loop, with the core loop at work, and waits for it.

    Raises:
        UserError: the platform is not there, not available, or did not connect.
    """

    def __init__(self, host: Host, platform: str, extra: Mapping[str, Any], answer: Answer, wait: Wait) -> None:
        self.adapter = host.platforms.create_adapter(platform, PlatformConfig(enabled=True, extra=dict(extra)))
        if self.adapter is None:
            names = ", ".join(sorted(entry.name for entry in host.platforms.plugin_entries()))
            raise UserError(f"there is no adapter for {platform!r}: the log says why", hint=f"Plugins bring: {names}.")
        self._bridge, self._wait = host.bridge, wait
        self._answer = answer
        self._said: list[str] = []
        self._error: Exception | None = None
        self.adapter.set_message_handler(self._handle)
        if not self._wait(call_connect(self.adapter)):
            raise UserError(f"the adapter of {platform!r} did not connect: the log says why")

    def write(self, text: str, *, chat: str = "room", user: str = "ann") -> str:
        """Write `text` and wait until it was answered; return the answer, as the agent gave it to the adapter.

        Args:
            chat, user: ids, as the service has them.

        Raises:
            Exception: what the turn raised (ModelError, …); the adapter logs it and tells the chat.
        """
        self._said.clear()
        self._error = None
        source = self.adapter.build_source(chat_id=chat, user_id=user, user_name=user.title())
        event = MessageEvent(text=text, source=source, message_id=new_id("message"))
        self._wait(self._deliver(event))
        if self._error is not None:
            raise self._error
        return "\n".join(self._said)

    def close(self) -> None:
        """Disconnect."""
        self._wait(self.adapter.disconnect())

    async def _handle(self, event: MessageEvent) -> str | None:
        try:
            answer = await self._bridge.on_core(_as_coroutine(self._answer(event.text)))
        except Exception as error:
            self._error = error
            raise
        if answer:
            self._said.append(answer)
        return answer

    async def _deliver(self, event: MessageEvent) -> None:
        await self.adapter.handle_message(event)
        while self.adapter._session_tasks:
            await asyncio.wait(list(self.adapter._session_tasks.values()))


async def _as_coroutine(awaitable: Awaitable[str | None]) -> str | None:
    return await awaitable
