"""A callback of a plugin, and calling it as a step that may be left behind."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from hermes_agent.core.errors import PluginError
from hermes_agent.hooks.deadlines import HookDeadlines, HookSuspensions
from hermes_agent.io.steps import OVERRUN, DeadlineStep, Steps

__all__ = ["Await", "ListenerCaller", "HookAccount", "HookResult", "Listener", "log_failure", "named_keywords"]

logger = logging.getLogger(__name__)

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
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature takes what it is given
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
