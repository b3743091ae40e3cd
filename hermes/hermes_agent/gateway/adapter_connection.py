"""Life cycle of one adapter: create, connect, retry, disconnect.

The adapter runs on the plugin loop. This module runs on the core loop and waits for the adapter with deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any, Literal

from hermes_agent.adapters.config import PlatformConfig, PlatformEntry
from hermes_agent.adapters.events import call_connect
from hermes_agent.core.backoff import Backoff
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.tasks import end_task
from hermes_agent.runtime.bridge import Bridge

logger = logging.getLogger(__name__)

CONNECT_S = 60.0
DISCONNECT_S = 10.0

State = Literal["waiting", "connecting", "connected", "retrying", "paused", "failed", "stopped"]


class ConnectionState(LazyNamedTuple):
    """State of a platform, for the operator."""

    name: str
    state: State
    """`failed`: not retried before a reload. `paused`: retried rarely."""
    reason: str
    """The reason why it is not connected."""
    since: float
    """Seconds since the epoch."""
    failures: int
    """Failed attempts in a row."""

    def to_json(self) -> dict[str, Any]:
        """Return a dict of JSON types."""
        return self._asdict()


@lazy_dataclass(frozen=True, slots=True)
class ConnectionPauses:
    """Delays before the next attempt, in seconds."""

    first: float = 2.0
    """After the first failure; doubled for each."""
    longest: float = 300.0
    paused: float = 900.0
    """After `breaks_after` failures."""
    breaks_after: int = 10
    """Failures in a row after which the connection pauses."""

    def after(self, failures: int) -> float:
        """Return the delay after a number of failures in a row."""
        if failures >= self.breaks_after:
            return self.paused
        return Backoff(self.first, self.longest, jitter=0.2).after(failures)


class AdapterConnection:
    """The connection of one platform.

    Args:
        make: creates an adapter on the plugin loop; None: not possible, the reason is logged.
        prepare: gives the adapter the callbacks of the gateway, on the plugin loop, before it connects.
        on_up, on_down: called on the core loop when the adapter is connected, and disconnected.
        on_state: called for each change of `state`.
    """

    def __init__(
        self,
        name: str,
        entry: PlatformEntry | None,
        config: PlatformConfig,
        *,
        bridge: Bridge,
        make: Callable[[], Any],
        prepare: Callable[[Any], None],
        on_up: Callable[[AdapterConnection], None],
        on_down: Callable[[AdapterConnection], None],
        on_state: Callable[[ConnectionState], None],
        pauses: ConnectionPauses,
    ) -> None:
        self.name = name
        self.entry = entry
        self.config = config
        self.adapter: Any = None
        """The last adapter that was connected; it stays after the connection is lost."""
        self.state = ConnectionState(name, "waiting", "", time.time(), 0)
        self._bridge = bridge
        self._make, self._prepare = make, prepare
        self._on_up, self._on_down = on_up, on_down
        self._on_state, self._pauses = on_state, pauses
        self._lost = asyncio.Event()
        self._retry_event = asyncio.Event()
        self._settled = asyncio.Event()
        """Set unless it connects, or is about to."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether messages can be sent."""
        return self.state.state == "connected"

    def start(self) -> None:
        """Start to connect."""
        self._task = asyncio.create_task(self._run(), name=f"platform {self.name}")

    def retry(self) -> bool:
        """Connect now, also after a permanent failure; return whether that was needed.

        A connected adapter stays connected.
        """
        self._retry_event.set()
        if self.state.state not in ("retrying", "paused", "failed"):
            return False
        self._settled.clear()
        return True

    async def wait_connected(self, timeout_s: float) -> ConnectionState:
        """Wait until the adapter is connected or has failed, at most `timeout_s` seconds; return the state."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), timeout_s)
        return self.state

    def handle_failure(self, adapter: Any) -> None:
        """Handle a fatal error of the adapter (`_notify_fatal_error`); previous adapters are ignored."""
        if adapter is self.adapter:
            self._lost.set()

    async def stop(self) -> None:
        """Disconnect, within `DISCONNECT_S` seconds."""
        await end_task(self._task)
        self._task = None
        if self.is_connected:
            self._down("stopped", "")
            await self._disconnect(self.adapter)
        else:
            self._notify("stopped", "")

    async def _run(self) -> None:
        failures = 0
        while True:
            self._retry_event.clear()
            self._notify("connecting", self.state.reason, failures)
            reason, again = await self._connect(is_reconnect=self.adapter is not None)
            if not reason:
                failures = 0
                await self._lost.wait()
                reason, again = _fatal_error(self.adapter, "connection lost")
                self._down("retrying", reason)
                await self._disconnect(self.adapter)
            failures += 1
            if not again:
                logger.error("platform %s: not connected: %s", self.name, reason)
                self._notify("failed", reason, failures)
                await self._retry_event.wait()
                continue
            pause = self._pauses.after(failures)
            paused = failures >= self._pauses.breaks_after
            level = logging.ERROR if failures == self._pauses.breaks_after else logging.WARNING
            logger.log(level, "platform %s: %s; retry in %.0f s", self.name, reason, pause)
            self._notify("paused" if paused else "retrying", reason, failures)
            await self._wait_retry(pause)

    async def _connect(self, *, is_reconnect: bool) -> tuple[str, bool]:
        """Create and connect an adapter. Return the reason of a failure or "", and whether to retry."""
        adapter = None
        try:
            adapter = await self._bridge.on_plugin(self._make_adapter(), deadline_s=CONNECT_S)
            if adapter is None:
                return "the adapter cannot be created (see the log)", False
            self._lost = asyncio.Event()
            connecting = call_connect(adapter, is_reconnect=is_reconnect)
            if not await self._bridge.on_plugin(connecting, deadline_s=CONNECT_S):
                reason = _fatal_error(adapter, "connect() returned False")
                await self._disconnect(adapter)
                return reason
            await self.rewire(adapter)
        except asyncio.CancelledError:
            if adapter is not None:
                await self._disconnect(adapter)
            raise
        except TimeoutError as exc:
            await self._disconnect(adapter)
            return str(exc) or f"no connection within {CONNECT_S:g} s", True
        except Exception as exc:
            logger.debug("platform %s: connect failed", self.name, exc_info=True)
            await self._disconnect(adapter)
            return f"{type(exc).__name__}: {exc}", True
        self.adapter = adapter
        self._on_up(self)
        self._notify("connected", "")
        logger.info("platform %s: connected", self.name)
        if getattr(adapter, "has_fatal_error", False):  # it failed before its handler was set
            self._lost.set()
        return "", True

    async def rewire(self, adapter: Any) -> None:
        """Let plugins add handlers to the native object of the adapter; a failure is logged."""
        rewire = getattr(adapter, "rewire_plugin_handlers", None)
        if not callable(rewire):
            return

        async def call() -> None:
            if inspect.isawaitable(value := rewire()):
                await value

        try:
            await self._bridge.on_plugin(call(), deadline_s=DISCONNECT_S)
        except Exception as exc:  # noqa: BLE001 - plugin code; the platform works without these handlers
            logger.warning("platform %s: handlers of plugins: %s: %s", self.name, type(exc).__name__, exc)

    async def _make_adapter(self) -> Any:
        adapter = self._make()
        if adapter is not None:
            self._prepare(adapter)
        return adapter

    async def _disconnect(self, adapter: Any) -> None:
        if adapter is None:
            return

        async def end() -> None:
            await adapter.disconnect()

        try:
            await self._bridge.on_plugin(end(), deadline_s=DISCONNECT_S)
        except Exception as exc:  # noqa: BLE001 - plugin code; the adapter is abandoned
            logger.warning("platform %s: disconnect failed: %s: %s", self.name, type(exc).__name__, exc)

    def _down(self, state: State, reason: str) -> None:
        self._notify(state, reason)
        self._on_down(self)

    def _notify(self, state: State, reason: str, failures: int = 0) -> None:
        self.state = ConnectionState(self.name, state, reason, time.time(), failures)
        if state in ("waiting", "connecting"):
            self._settled.clear()
        else:
            self._settled.set()
        self._on_state(self.state)

    async def _wait_retry(self, pause_s: float) -> None:
        try:
            await asyncio.wait_for(self._retry_event.wait(), pause_s)
        except TimeoutError:
            return  # the delay is over


def _fatal_error(adapter: Any, otherwise: str) -> tuple[str, bool]:
    """Return the fatal error of an adapter, and whether a new connection may help."""
    if getattr(adapter, "has_fatal_error", False):
        return str(adapter.fatal_error_message or adapter.fatal_error_code), bool(adapter.fatal_error_retryable)
    return otherwise, True
