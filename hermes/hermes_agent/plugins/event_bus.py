"""Events between plugins: `ctx.emit` and `ctx.subscribe`.

A worker thread delivers the events one after another, in order. Each subscriber gets a copy of the payload and the
context variables of the emitter. Nothing is stored: a plugin that subscribes later does not get earlier events. Source:
plugin contract of 0.23 §6.8.
"""

from __future__ import annotations

import contextvars
import copy
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Protocol

from hermes_agent.core.lazy_types import LazyNamedTuple

logger = logging.getLogger(__name__)

MAX_PENDING = 64
MAX_DEPTH = 8
CALL_LIMIT_S = 30.0

_depth: ContextVar[int] = ContextVar("hermes_plugin_event_depth", default=0)


class Runner(Protocol):
    """Runner of work in threads and of coroutines of plugins: the bridge."""

    def spawn(self, work: Callable[[], None]) -> None: ...
    def wait_plugin(self, coroutine: Coroutine[Any, Any, Any], *, deadline_s: float | None) -> Any: ...


class _Subscription(LazyNamedTuple):
    plugin: str
    callback: Callable[..., Any]


class _Delivery(LazyNamedTuple):
    event: str
    subscriptions: tuple[_Subscription, ...]
    payload: dict[str, Any]
    context: contextvars.Context


class PluginEventBus:
    """The events of the plugins of one host."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._subscriptions: dict[str, tuple[_Subscription, ...]] = {}
        self._pending: deque[_Delivery] = deque()
        self._is_running = False
        self._reported: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()

    def subscribe(self, plugin: str, event: str, callback: Callable[..., Any]) -> Callable[[], None]:
        """Call `callback` with the payload as keywords for each `PLUGIN:NAME` event.

        Returns:
            A function that ends the subscription.

        Raises:
            ValueError: the event has no such name.
            TypeError: the callback is not callable.
        """
        owner, colon, name = event.partition(":") if isinstance(event, str) else ("", "", "")
        if not (owner and colon and name) or ":" in name:
            raise ValueError(f"event {event!r} is not usable: expected `PLUGIN:NAME`")
        if not callable(callback):
            raise TypeError(f"the callback for event {event!r} is not callable: {callback!r}")
        subscription = _Subscription(plugin, callback)
        with self._lock:
            self._subscriptions[event] = (*self._subscriptions.get(event, ()), subscription)
        return lambda: self._remove(event, subscription)

    def _remove(self, event: str, subscription: _Subscription) -> None:
        with self._lock:
            present = self._subscriptions.get(event, ())
            self._subscriptions[event] = tuple(each for each in present if each is not subscription)

    def emit(self, plugin: str, event: str, payload: dict[str, Any] | None = None) -> int:
        """Publish `PLUGIN:EVENT` and return the number of subscribers that will be called.

        Raises:
            ValueError: the event's name is empty or has a `:`.
            TypeError: the payload is neither a dict nor None.
        """
        if not isinstance(event, str) or not event or ":" in event:
            raise ValueError(f"event {event!r} is not usable: expected a name without `:`, the plugin's id is added")
        if payload is not None and not isinstance(payload, dict):
            raise TypeError(f"the payload of event {event!r} is {type(payload).__name__}: expected a dict or None")
        name = f"{plugin}:{event}"
        depth = _depth.get() + 1
        if depth > MAX_DEPTH:
            logger.warning("plugin event %s: dropped: it was emitted %d subscribers deep", name, depth)
            return 0
        subscriptions = self._subscriptions.get(name, ())
        if not subscriptions:
            return 0
        context = contextvars.copy_context()
        context.run(_depth.set, depth)
        delivery = _Delivery(name, subscriptions, copy.deepcopy(payload or {}), context)
        with self._lock:
            if len(self._pending) >= MAX_PENDING:
                logger.warning("plugin event %s: dropped: %d events are pending", name, MAX_PENDING)
                return 0
            self._pending.append(delivery)
            starts, self._is_running = not self._is_running, True
        if starts:
            self._runner.spawn(self._deliver_pending)
        return len(subscriptions)

    def _deliver_pending(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._is_running = False
                    return
                delivery = self._pending.popleft()
            for subscription in delivery.subscriptions:
                if subscription in self._subscriptions.get(delivery.event, ()):
                    delivery.context.copy().run(self._call, subscription, delivery)

    def _call(self, subscription: _Subscription, delivery: _Delivery) -> None:
        try:
            result = subscription.callback(**copy.deepcopy(delivery.payload))
            if inspect.iscoroutine(result):
                self._runner.wait_plugin(result, deadline_s=CALL_LIMIT_S)
        except (Exception, SystemExit) as exc:
            failure = (subscription.plugin, delivery.event, type(exc).__name__)
            level = logging.DEBUG if failure in self._reported else logging.WARNING
            self._reported.add(failure)
            logger.log(
                level,
                "plugin event %s: subscriber of plugin %s raised %s: %s",
                *(delivery.event, subscription.plugin, type(exc).__name__, exc),
                exc_info=True,
                extra={"plugin": subscription.plugin},
            )
