"""Copies of what callbacks are given, so that what they do to it later is seen by nobody.

How long a plugin's hook may take, and what becomes of a plugin whose hooks keep taking longer.

A callback of a plugin, and calling it as a step that may be left behind.
"""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from hermes_agent.core.calls import keywords_of
from hermes_agent.core.errors import PluginError
from hermes_agent.runtime.steps import OVERRUN, DeadlineStep, Steps

logger = logging.getLogger(__name__)


def copy_value(value: Any) -> Any:
    """Return a deep copy; what cannot be copied is returned as it is, with a line in the log."""
    try:
        return copy.deepcopy(value)
    except Exception as exc:  # noqa: BLE001 - any object may be in there, or a callback changes it right now
        logger.warning("what a plugin was given is not copied and may still change: %r", exc)
        return value


def copy_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload with copies of its dicts and lists."""
    return {k: copy_value(v) if isinstance(v, dict | list) else v for k, v in payload.items()}


MAX_OVERRUNS = 3
"""After so many calls that ran over their deadline a plugin is suspended: each may have cost a thread for ever."""


@dataclass(frozen=True, slots=True)
class HookDeadlines:
    """What the operator set."""

    default_s: float = 10.0
    """`plugins.hook_timeout_s`."""
    by_plugin: Mapping[str, float] = field(default_factory=dict)
    """`plugins.entries.<id>.hook_timeout_s`, seconds by plugin."""

    def limit_of(self, plugin: str) -> float:
        """Return the seconds that a call of one of the plugin's hooks may take."""
        return self.by_plugin.get(plugin, self.default_s)

    @property
    def shortest_s(self) -> float:
        """The shortest of all."""
        return min(self.default_s, *self.by_plugin.values()) if self.by_plugin else self.default_s


class HookSuspensions:
    """Counts calls that ran over their deadline, by plugin."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self.suspended: dict[str, str] = {}
        """Why, by plugin."""

    def forget(self, plugin: str) -> None:
        """Begin anew with a plugin whose code was replaced."""
        with self._lock:
            self._counts.pop(plugin, None)
            self.suspended.pop(plugin, None)

    def count(self, plugin: str, word: str, name: str, callback: str, limit_s: float) -> None:
        """Count an overrun; the third one suspends the plugin for as long as the process lives."""
        extra = {"plugin": plugin}
        text = "%s '%s' callback %s of plugin %s gave no answer within %g s; it is left behind"
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
"""A call that is done within that answered at once."""
Await = Callable[..., Any]
"""Runs a plugin's coroutine to its end from a worker thread, or cancels it after `deadline_s` (None: never)."""


@dataclass(slots=True, eq=False)
class Listener:
    """Whom to call for a hook or a middleware."""

    callback: Callable[..., Any]
    plugin: str
    keywords: frozenset[str] | None
    """Keywords that the callback names; None when it takes them all."""
    what: str
    """Which one of whom, for the log: `hook pre_tool_call of plugin x`."""
    is_fast: bool = False
    """Whether its last call answered at once; nobody knows of the first."""

    @classmethod
    def of(cls, callback: Callable[..., Any], plugin: str, label: str, name: str) -> Listener:
        """Look at a callback.

        Args:
            label: `hook` or `middleware`.
            name: which one.

        Raises:
            TypeError: it cannot be called.
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
        """Return the part of the payload that the callback takes, in a dict of its own: a call may begin late."""
        wanted = self.keywords
        return dict(payload) if wanted is None else {k: v for k, v in payload.items() if k in wanted}


class HookResult(NamedTuple):
    """What one callback answered."""

    plugin: str
    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    """How long that took."""


class HookAccount(Protocol):
    """Who is told what the callbacks cost; a request middleware counts as a hook of its kind's name."""

    def hook(self, plugin: str, hook: str, seconds: float, error: BaseException | None, /) -> None:
        """Note a call that ended."""
        ...

    def hook_overran(self, plugin: str, hook: str, limit_s: float, /) -> None:
        """Note a call that was left behind; it is noted once more when it ends."""
        ...


class ListenerCaller:
    """Calls callbacks, each within its plugin's deadline; counts those that overrun.

    Args:
        account: told what each call costs.
    """

    def __init__(self, await_plugin: Await, deadlines: HookDeadlines, account: HookAccount | None = None) -> None:
        self.account = account
        self.deadlines = deadlines
        self.overruns = HookSuspensions()
        self.await_plugin = await_plugin

    def suspension(self, plugin: str) -> PluginError | None:
        """Return why callbacks of the plugin are not called any more, or None."""
        reason = self.overruns.suspended.get(plugin)
        return None if reason is None else PluginError(plugin, f"suspended: {reason}")

    def call_within_limit(self, word: str, name: str, listener: Listener, given: dict[str, Any]) -> Steps[HookResult]:
        """Call a listener; an error, or an answer that did not come in time (`TimeoutError`), becomes the result.

        Args:
            word: `Hook` or `Middleware`, for the log.
            name: of which one.
        """
        plugin = listener.plugin
        if (suspended := self.suspension(plugin)) is not None:
            return HookResult(plugin, error=suspended)
        limit_s = self.deadlines.limit_of(plugin)
        result = yield DeadlineStep(partial(self.call, name, listener, given), limit_s, listener.what)
        return self._check_result(word, name, listener, result, limit_s)

    def call_inline(self, hook: str, listener: Listener, payload: dict[str, Any]) -> HookResult:
        """Call a hook's listener, which is not suspended, in this thread, however long it takes; otherwise as `ask`."""
        result = self.call(hook, listener, payload if listener.keywords is None else listener.keywords_for(payload))
        if listener.is_fast and result.error is None:
            return result
        return self._check_result("Hook", hook, listener, result, self.deadlines.limit_of(listener.plugin))

    def _check_result(self, word: str, name: str, listener: Listener, result: Any, limit_s: float) -> HookResult:
        """Return the result of a call, or what takes its place; it is logged when there is none."""
        if result is OVERRUN or result.seconds >= limit_s:
            self.overran(word, name, listener)
            return HookResult(listener.plugin, error=TimeoutError(f"{name} gave no answer within {limit_s:g} s"))
        if result.error is not None:
            log_failure(word, name, listener, result.error)
        return result  # type: ignore[no-any-return]

    def overran(self, word: str, name: str, listener: Listener) -> None:
        """Count a call that was not done at its plugin's deadline."""
        plugin, limit_s = listener.plugin, self.deadlines.limit_of(listener.plugin)
        listener.is_fast = False
        self.overruns.count(plugin, word, name, listener.name, limit_s)
        if self.account is not None:
            self.account.hook_overran(plugin, name, limit_s)

    def call(self, name: str, listener: Listener, given: dict[str, Any]) -> HookResult:
        """Call a listener here; a coroutine is given up at its plugin's deadline."""
        started = time.perf_counter()
        value, error = None, None
        try:
            value = listener.callback(**given)
            if value is not None and inspect.iscoroutine(value):
                value = self.await_plugin(value, deadline_s=self.deadlines.limit_of(listener.plugin))
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - becomes the result, which is logged if anybody still waits for it
            value, error = None, exc
        seconds = time.perf_counter() - started
        listener.is_fast = seconds < FAST_S
        if self.account is not None:
            self.account.hook(listener.plugin, name, seconds, error)
        return HookResult(listener.plugin, value, error, seconds)


def log_failure(word: str, name: str, listener: Listener, error: BaseException) -> None:
    """Log what a callback raised."""
    extra = {"plugin": listener.plugin}
    logger.warning("%s '%s' callback %s raised: %s", word, name, listener.name, error, exc_info=error, extra=extra)


def named_keywords(callback: Callable[..., Any]) -> frozenset[str] | None:
    """Return the keywords that `callback` names, or None when it takes any."""
    names, takes_any = keywords_of(callback)
    return None if takes_any else names
