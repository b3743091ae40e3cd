"""Listeners: callbacks of plugins, their calls within a deadline, and suspensions.

Callbacks get copies of the dicts and lists, so that changes that they make later have no effect. After a call that
exceeded its deadline the callback rests; after several such calls its plugin is suspended.
Source: plugin contract §3.1; contract of 0.23 §7.1.
"""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, Protocol

from hermes_agent.core.calls import keywords_of
from hermes_agent.core.errors import PluginError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.registry import ListenerStore, StoreGroup
from hermes_agent.runtime.steps import OVERRUN, DeadlineStep, Steps

logger = logging.getLogger(__name__)


def copy_value(value: Any) -> Any:
    """Return a deep copy; a value that cannot be copied is returned as it is, with a line in the log."""
    try:
        return copy.deepcopy(value)
    except Exception as exc:  # noqa: BLE001 - any object may be in there, or a callback changes it right now
        logger.warning("argument of a plugin cannot be copied and may still change: %r", exc)
        return value


def copy_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload with copies of its dicts and lists."""
    return {k: copy_value(v) if isinstance(v, dict | list) else v for k, v in payload.items()}


MAX_OVERRUNS = 3
"""Calls over the deadline until a plugin is suspended: each may have cost a thread permanently."""
REST_S = 60.0
"""Seconds for which a host does not call a callback after it missed its deadline."""


@lazy_dataclass(frozen=True, slots=True)
class HookDeadlines:
    """Time limits of hooks, as the operator set them."""

    default_s: float = 10.0
    """`plugins.hook_timeout_s`."""
    by_plugin: Mapping[str, float] = field(default_factory=dict)
    """`plugins.entries.<id>.hook_timeout_s`, seconds by plugin."""
    rest_s: float = 0.0
    """Seconds for which a callback is not called after it missed its deadline."""

    def limit_of(self, plugin: str) -> float:
        """Return the longest call of a hook of the plugin, in seconds."""
        return self.by_plugin.get(plugin, self.default_s)

    @property
    def shortest_s(self) -> float:
        """The shortest limit of all."""
        return min(self.default_s, *self.by_plugin.values()) if self.by_plugin else self.default_s


class HookSuspensions:
    """Counter of calls over their deadline, by plugin."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self.suspended: dict[str, str] = {}
        """Reason by plugin."""

    def forget(self, plugin: str) -> None:
        """Forget the count of a plugin that was loaded again."""
        with self._lock:
            self._counts.pop(plugin, None)
            self.suspended.pop(plugin, None)

    def count(self, plugin: str, word: str, name: str, callback: str, limit_s: float) -> None:
        """Count a call over its deadline; the third one suspends the plugin until the process ends."""
        extra = {"plugin": plugin}
        text = "%s '%s' callback %s of plugin %s gave no answer within %g s; it is abandoned"
        logger.warning(text, word, name, callback, plugin, limit_s, extra=extra)
        with self._lock:
            self._counts[plugin] = self._counts.get(plugin, 0) + 1
            if self._counts[plugin] < MAX_OVERRUNS or plugin in self.suspended:
                return
            self.suspended[plugin] = (
                f"{MAX_OVERRUNS} calls of its hooks ran over their deadline, the last one was {name} ({limit_s:g} s)"
            )
        logger.warning(
            "Plugin %s is suspended until the next start: %s. Its guards block, its other hooks and its request "
            "middleware are not called. "
            "If it may take longer, raise plugins.entries.%s.hook_timeout_s",
            plugin,
            self.suspended[plugin],
            plugin,
            extra=extra,
        )


FAST_S = 0.001
"""Seconds of a call that counts as fast."""
Await = Callable[..., Any]
"""Runs a plugin's coroutine to its end from a worker thread; cancels it after `deadline_s` (None: never)."""


@lazy_dataclass(slots=True, eq=False)
class Listener:
    """A callback for a hook or for a kind of middleware."""

    callback: Callable[..., Any]
    plugin: str
    keywords: frozenset[str] | None
    """Keywords that the callback names; None if it takes all."""
    what: str
    """Its description for the log: `hook pre_tool_call of plugin x`."""
    is_fast: bool = False
    """Whether its last call was fast; False before the first call."""
    rests_until: float = 0.0
    """Monotonic time until which it is not called, after it missed its deadline."""

    @classmethod
    def of(cls, callback: Callable[..., Any], plugin: str, label: str, name: str) -> Listener:
        """Return the listener of a callback.

        Args:
            label: `hook` or `middleware`.
            name: name of the hook, or kind of middleware.

        Raises:
            TypeError: the callback is not callable.
        """
        if not callable(callback):
            text = f"the callback for {label} {name!r} is {callback!r}: expected something that can be called"
            raise TypeError(text)
        return cls(callback, plugin, named_keywords(callback), f"{label} {name} of plugin {plugin}")

    @property
    def owner(self) -> str:
        """The plugin, as a `ListenerStore` calls it."""
        return self.plugin

    @property
    def name(self) -> str:
        """The callback's name, for the log."""
        return getattr(self.callback, "__name__", None) or repr(self.callback)

    def keywords_for(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the part of the payload that the callback takes, in a separate dict: a call may begin late."""
        wanted = self.keywords
        return dict(payload) if wanted is None else {k: v for k, v in payload.items() if k in wanted}


class ListenerGroup(StoreGroup):
    """Base of what has listeners by name: of hooks, of kinds of middleware."""

    _label: ClassVar[str]
    """What a name stands for, in messages."""

    def __init__(self) -> None:
        self.store: ListenerStore[Listener] = ListenerStore()
        """The listeners by name."""

    def add(self, name: str, callback: Callable[..., Any], plugin: str) -> Listener:
        """Append `callback` and return its listener; a callback that is added twice is called twice.

        Raises:
            TypeError: `callback` is not callable.
        """
        listener = Listener.of(callback, plugin, self._label, name)
        self.store.add(name, listener)
        return listener

    def has(self, name: str) -> bool:
        """Return whether a name has a listener; costs a dictionary look-up."""
        return name in self.store.entries

    def listeners(self, name: str) -> list[tuple[str, Callable[..., Any]]]:
        """Return plugin and callback of every listener, in order."""
        return [(item.plugin, item.callback) for item in self.store.listeners_for(name)]

    def names(self) -> list[str]:
        """Return the names that have a listener."""
        return self.store.names()


class HookResult(LazyNamedTuple):
    """The answer of one callback."""

    plugin: str
    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    """Duration of the call."""
    callback: str = ""
    """The callback's name."""


NO_ANSWER = HookResult("")
"""Result of a fast call that returned None; the answers that count are those with a value or an error."""


class HookAccount(Protocol):
    """Account of the calls; a request middleware counts as a hook with the name of its kind."""

    def hook(self, plugin: str, hook: str, seconds: float, error: BaseException | None, /) -> None:
        """Record a call that ended."""
        ...

    def hook_overran(self, plugin: str, hook: str, limit_s: float, /) -> None:
        """Record a call that was abandoned; it is recorded again when it ends."""
        ...


class ListenerCaller:
    """The calls of listeners, each within its plugin's deadline.

    Args:
        account: records the cost of each call.
        clock: monotonic seconds, for the rest of callbacks that missed their deadline.
    """

    def __init__(
        self,
        await_plugin: Await,
        deadlines: HookDeadlines,
        account: HookAccount | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.account = account
        self.deadlines = deadlines
        self.overruns = HookSuspensions()
        self.await_plugin = await_plugin

    def is_resting(self, listener: Listener) -> bool:
        """Return whether a callback is not called for now, after it missed its deadline."""
        return listener.rests_until > 0 and self._clock() < listener.rests_until

    def suspension(self, plugin: str) -> PluginError | None:
        """Return why callbacks of the plugin are not called, or None."""
        reason = self.overruns.suspended.get(plugin)
        return None if reason is None else PluginError(plugin, f"suspended: {reason}")

    def call_within_limit(self, word: str, name: str, listener: Listener, given: dict[str, Any]) -> Steps[HookResult]:
        """Call a listener; an error or a missed deadline (`TimeoutError`) becomes the result.

        Args:
            word: `Hook` or `Middleware`, for the log.
            name: name of the hook, or kind of middleware.
        """
        plugin = listener.plugin
        if (suspended := self.suspension(plugin)) is not None:
            return HookResult(plugin, error=suspended, callback=listener.name)
        if self.is_resting(listener):
            text = f"{name} is not called for {self.deadlines.rest_s:g} s after it missed its deadline"
            return HookResult(plugin, error=TimeoutError(text), callback=listener.name)
        limit_s = self.deadlines.limit_of(plugin)
        result = yield DeadlineStep(partial(self.call, name, listener, given), limit_s, listener.what)
        return self._check_result(word, name, listener, result, limit_s)

    def call_inline(self, hook: str, listener: Listener, payload: dict[str, Any]) -> HookResult:
        """Call a hook's listener, which is not suspended, in this thread and without a deadline."""
        result = self.call(hook, listener, payload if listener.keywords is None else listener.keywords_for(payload))
        if result is NO_ANSWER:
            return result
        return self._check_result("Hook", hook, listener, result, self.deadlines.limit_of(listener.plugin))

    def _check_result(self, word: str, name: str, listener: Listener, result: Any, limit_s: float) -> HookResult:
        """Return the result of a call, or an error in its place, which is logged."""
        if result is OVERRUN or result.seconds >= limit_s:
            self.overran(word, name, listener)
            error = TimeoutError(f"{name} gave no answer within {limit_s:g} s")
            return HookResult(listener.plugin, error=error, callback=listener.name)
        if result.error is not None:
            log_failure(word, name, listener, result.error)
        return result  # type: ignore[no-any-return]

    def overran(self, word: str, name: str, listener: Listener) -> None:
        """Count a call that missed its plugin's deadline; the callback rests."""
        plugin, limit_s = listener.plugin, self.deadlines.limit_of(listener.plugin)
        listener.is_fast = False
        listener.rests_until = self._clock() + self.deadlines.rest_s
        self.overruns.count(plugin, word, name, listener.name, limit_s)
        if self.account is not None:
            self.account.hook_overran(plugin, name, limit_s)

    def call(self, name: str, listener: Listener, given: dict[str, Any]) -> HookResult:
        """Call a listener in this thread; a coroutine is cancelled at its plugin's deadline."""
        started = time.perf_counter()
        value, error = None, None
        try:
            value = listener.callback(**given)
            if value is not None and inspect.iscoroutine(value):
                value = self.await_plugin(value, deadline_s=self.deadlines.limit_of(listener.plugin))
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - becomes the result, which is logged unless the call is abandoned
            value, error = None, exc
        seconds = time.perf_counter() - started
        listener.is_fast = seconds < FAST_S
        if self.account is not None:
            self.account.hook(listener.plugin, name, seconds, error)
        if value is None and error is None and listener.is_fast:
            return NO_ANSWER
        return HookResult(listener.plugin, value, error, seconds, listener.name)


def log_failure(word: str, name: str, listener: Listener, error: BaseException) -> None:
    """Log the exception of a callback."""
    extra = {"plugin": listener.plugin}
    logger.warning("%s '%s' callback %s raised: %s", word, name, listener.name, error, exc_info=error, extra=extra)


def named_keywords(callback: Callable[..., Any]) -> frozenset[str] | None:
    """Return the keywords that `callback` names, or None if it takes any."""
    names, takes_any = keywords_of(callback)
    return None if takes_any else names
