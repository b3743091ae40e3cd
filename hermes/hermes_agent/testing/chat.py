"""In-memory chat platform: a test writes as a user, the gateway runs, sent messages are recorded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.config import Platform
from hermes_agent.adapters.events import MessageEvent, ProcessingOutcome, SendResult
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.delivery import DeliveryService, Mailbox
from hermes_agent.gateway.adapter_connection import ConnectionState
from hermes_agent.gateway.gateway import Gateway
from hermes_agent.gateway.scheduled_jobs import SchedulerFactory
from hermes_agent.testing.host import PluginHost
from hermes_agent.testing.open_host import Plugin, plugin_host
from hermes_agent.testing.scripted_model import ScriptedAnswer, ScriptedModel

__all__ = ["Chat", "MemoryAdapter", "Sent", "chat_host", "chatting", "memory_platform"]

PLATFORM = "memorychat"
WAIT_LIMIT_S = 60.0
"""Longest wait for an expected event, in seconds; after it the test fails."""
POLL_INTERVAL_S = 0.2


class Sent(LazyNamedTuple):
    """One message that the agent sent, in its current form."""

    chat: str
    text: str
    reply_to: str | None
    metadata: Mapping[str, Any]


class MemoryAdapter(BasePlatformAdapter):
    """Adapter of a chat service that is a list in memory; a test puts failures of `send` into `failures`."""

    MAX_MESSAGE_LENGTH = 200

    def __init__(self, config: Any) -> None:
        super().__init__(config, Platform(PLATFORM))
        self.sent: list[Sent] = []
        self.edits: list[tuple[str, str]] = []
        self.files: list[tuple[str, str]] = []
        self.outcomes: list[tuple[str, ProcessingOutcome]] = []
        self.typing = 0
        self.failures: list[SendResult | Exception] = []
        """Outcomes of the next calls of `send`, in order: results to return or exceptions to raise."""
        self.changed = threading.Condition()

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        self._mark_disconnected()

    async def send(self, chat_id: str, content: str, reply_to: str | None = None, metadata: Any = None) -> SendResult:
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        with self.changed:
            self.sent.append(Sent(chat_id, content, reply_to, metadata or {}))
            self.changed.notify_all()
            return SendResult(True, message_id=f"s{len(self.sent)}")

    async def send_document(self, chat_id: str, file_path: str, *args: Any, **kwargs: Any) -> SendResult:
        with self.changed:
            self.files.append((chat_id, file_path))
            self.changed.notify_all()
        return SendResult(True, message_id=f"f{len(self.files)}")

    async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
        self.typing += 1

    async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
        with self.changed:
            self.outcomes.append((event.text, outcome))
            self.changed.notify_all()


def memory_platform(adapter: Callable[[Any], Any] = MemoryAdapter, **fields: Any) -> Callable[[Any], None]:
    """Return a plugin's `register` function that registers the platform `memorychat`.

    Args:
        adapter: factory of the adapter.
        fields: additional keywords of `ctx.register_platform`.
    """

    def register(ctx: Any) -> None:
        ctx.register_platform(PLATFORM, "Memory", adapter, lambda: True, **fields)

    return register


class Chat:
    """A running gateway with one platform; the methods block, and may be called from any thread."""

    def __init__(self, host: PluginHost, works: Mapping[str, Any], platform: str = PLATFORM) -> None:
        self.host = host
        self.platform = platform
        self._works = works
        self._states: list[str] = []
        self._heard = threading.Condition()
        self.gateway: Gateway
        self._count = 0
        self._last: Any = None
        self._stopped = False

    def start(self) -> None:
        """Start the gateway, or start it again after `stop`; return when the platform is connected."""
        self._states.clear()
        host = self.host.host
        if self._stopped:  # a restarted daemon would have a new service
            host.delivery = DeliveryService(
                lambda: Mailbox(host.home / "state.db"), host.bridge.serial_executor("delivery")
            )
        self.gateway = host.gateway(on_state=self._hear, **self._works)
        self.host._run(self.gateway.start())
        self.host._run(host.delivery.start())
        self.clock = host.service(SchedulerFactory).make(self.gateway.send_text, self.gateway.attach)
        self.host._run(self.clock.start())
        self.until("connected")

    def until(self, state: str, *, times: int = 1) -> None:
        """Wait until the platform has entered a state (`connected`, `failed`, …) `times` times.

        Raises:
            AssertionError: it does not within `WAIT_LIMIT_S`.
        """
        with self._heard:
            if not self._heard.wait_for(lambda: self._states.count(state) >= times, WAIT_LIMIT_S):
                raise AssertionError(f"the platform is not {state}: {self.gateway.states()}")

    def _hear(self, state: ConnectionState) -> None:
        with self._heard:
            self._states += [state.state] if state.name == self.platform else []
            self._heard.notify_all()

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the gateway; running work may finish within 5 s or, with `at_once`, is left to the next start."""
        self.host._run(self.clock.drain(0.0 if at_once else 5.0))
        self.host._run(self.host.host.delivery.drain(0.0 if at_once else 5.0))
        self.host._run(self.gateway.drain(5.0))
        self._stopped = True

    @property
    def adapter(self) -> Any:
        """Return the connected adapter, or the last one that was connected."""
        link = self.gateway.session_store.connections.get(self.platform)
        self._last = link.adapter if link is not None else self._last
        return self._last

    @property
    def texts(self) -> list[str]:
        """Return the texts of the sent messages, in their current form."""
        return [one.text for one in self.adapter.sent]

    def write(
        self, text: str, *, user: str = "ann", chat: str = "room", message_id: str | None = None, **more: Any
    ) -> str:
        """Write a message as a user; return its id as soon as the gateway has stored it.

        Args:
            more: additional arguments of `build_source`, and fields of `MessageEvent`.
        """
        self._count += 1
        number = message_id if message_id is not None else f"m{self._count}"
        of_source = {k: more.pop(k) for k in ("chat_type", "user_name", "thread_id", "is_bot") if k in more}
        adapter = self.adapter
        source = adapter.build_source(chat_id=chat, user_id=user, **of_source)
        event = MessageEvent(text, source=source, message_id=number, **more)
        self.host.host.bridge.wait_plugin(adapter.handle_message(event))
        return number

    def wait(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Wait until `condition` returns a true value, and return that value.

        The condition is checked when the adapter changes, and every `POLL_INTERVAL_S`.

        Raises:
            AssertionError: it stays false for `WAIT_LIMIT_S`.
        """
        changed, end = self.adapter.changed, time.monotonic() + WAIT_LIMIT_S
        with changed:
            while not changed.wait_for(condition, POLL_INTERVAL_S):
                if time.monotonic() >= end:
                    raise AssertionError(
                        f"{what or 'it'} did not happen; sent: {self.texts}; log:\n{self.host.log_text[-3000:]}"
                    )
        return condition()

    def answers(self, count: int) -> list[str]:
        """Wait until `count` messages were sent, and return the texts of all sent messages."""
        self.wait(lambda: len(self.adapter.sent) >= count, f"{count} messages")
        return self.texts

    def ask(self, text: str, **more: Any) -> str:
        """Write a message, and return the text of the next message that the agent sends."""
        before = len(self.adapter.sent)
        self.write(text, **more)
        return self.answers(before + 1)[before]


@contextlib.contextmanager
def chat_host(
    *plugins: Plugin,
    model: ScriptedModel | list[ScriptedAnswer] | tuple[ScriptedAnswer, ...] = (),
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    platform: Callable[[Any], None] | None = None,
    allow: str = "ann,bob",
    hooks: Mapping[str, tuple[str, str]] | None = None,
    **works: Any,
) -> Iterator[Chat]:
    """Run the gateway with the platform `memorychat` and other plugins; restore the process at the end.

    Args:
        platform: `register` function of the platform; None means `memory_platform()`.
        allow: users that may use the agent, as in `MEMORYCHAT_ALLOWED_USERS`.
        hooks: texts of `HOOK.yaml` and `handler.py`, by the name of their folder in `hooks/`.
        works: see `chatting`.
    """
    settings: dict[str, Any] = {"display": {"tool_progress": "off"}, **(config or {})}
    environment = {"MEMORYCHAT_ALLOWED_USERS": allow, **(env or {})}
    with plugin_host(
        platform or memory_platform(), *plugins, config=settings, env=environment, model=model, platform=PLATFORM
    ) as host:
        for name, (manifest, handler) in (hooks or {}).items():
            folder = host.home / "hooks" / name
            folder.mkdir(parents=True)
            (folder / "HOOK.yaml").write_text(manifest, encoding="utf-8")
            (folder / "handler.py").write_text(handler, encoding="utf-8")
        with chatting(host, **works) as chat:
            yield chat


@contextlib.contextmanager
def chatting(host: PluginHost, platform: str = PLATFORM, **works: Any) -> Iterator[Chat]:
    """Run the gateway of a host during the block.

    Args:
        platform: platform on which the test writes; a plugin of `host` must register it.
        works: fields of `gateway.dependencies.GatewayDeps` that differ from the host's, such as `clock` or `pauses`.
    """
    chat = Chat(host, works, platform)
    chat.start()
    try:
        yield chat
    finally:
        chat.stop()
