"""The bus: which callbacks listen to which hook, and calling them one after another, each within its deadline."""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

from hermes_agent.contracts.hook import HookCallback
from hermes_agent.core.errors import PluginError
from hermes_agent.hooks.deadlines import Deadlines, Overruns
from hermes_agent.hooks.names import TELEMETRY_SCHEMA
from hermes_agent.io.steps import OVERRAN, Step, Steps, Walk

__all__ = ["HookAccount", "HookBus", "HookResult"]

logger = logging.getLogger(__name__)

Await = Callable[..., Any]
"""Runs a plugin's coroutine to its end from a worker thread, or cancels it after `deadline_s` (keyword)."""
RunSteps = Callable[[Steps[Any]], Any]


class HookAccount(Protocol):
    """Who is told what the callbacks cost."""

    def hook(self, plugin: str, hook: str, seconds: float, error: BaseException | None, /) -> None:
        """Note a call that ended."""
        ...

    def hook_overran(self, plugin: str, hook: str, limit_s: float, /) -> None:
        """Note a call that was left behind; it is noted once more when it ends."""
        ...


@dataclass(frozen=True, slots=True)
class _Listener:
    callback: HookCallback
    plugin: str
    keywords: frozenset[str] | None
    """Keywords that the callback names; None when it takes them all."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """What one callback answered."""

    plugin: str
    value: Any = None
    error: BaseException | None = None


def _unwatched(steps: Steps[Any]) -> Any:
    return Walk(steps).go()


class HookBus:
    """Callbacks by hook name, in order of registration.

    Args:
        run_steps: enforces the deadlines of `fire` (`Bridge.run_steps_here`). Without it callbacks run in the calling
            thread, and one that hangs, hangs there.
    """

    def __init__(
        self,
        await_plugin: Await,
        *,
        run_steps: RunSteps = _unwatched,
        deadlines: Deadlines | None = None,
        account: HookAccount | None = None,
    ) -> None:
        self.deadlines = deadlines or Deadlines()
        self._await = await_plugin
        self._run_steps = run_steps
        self._account = account
        self._overruns = Overruns()
        self._listeners: dict[str, tuple[_Listener, ...]] = {}
        self._lock = threading.Lock()

    def add(self, hook: str, callback: HookCallback, plugin: str) -> None:
        """Append `callback`; the same one twice is called twice, as upstream.

        Raises:
            TypeError: `callback` cannot be called.
        """
        if not callable(callback):
            raise TypeError(f"the callback for hook {hook!r} is {callback!r}: expected something that can be called")
        listener = _Listener(callback, plugin, _keywords(callback))
        with self._lock:
            self._listeners[hook] = (*self._listeners.get(hook, ()), listener)

    def has(self, hook: str) -> bool:
        """Say whether anybody listens; costs a dictionary look-up."""
        return hook in self._listeners

    def listeners(self, hook: str) -> list[tuple[str, HookCallback]]:
        """Return plugin and callback of every listener, in order."""
        return [(item.plugin, item.callback) for item in self._listeners.get(hook, ())]

    def snapshot(self) -> dict[str, tuple[_Listener, ...]]:
        """Return the state for `restore`."""
        with self._lock:
            return dict(self._listeners)

    def restore(self, state: dict[str, tuple[_Listener, ...]]) -> None:
        """Go back to a `snapshot`."""
        with self._lock:
            self._listeners = dict(state)

    def fork(self, without: str) -> Self:
        """Return a bus of its own with the same listeners, but for those of `without`."""
        fork = copy.copy(self)
        fork._lock = threading.Lock()
        fork._listeners = {hook: kept for hook, there in self.snapshot().items() if (kept := _others(there, without))}
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace, in one step, the listeners of `owner` by those that it has in `fork`, at the same place."""
        fresh = fork.snapshot()
        with self._lock:
            names = dict.fromkeys((*self._listeners, *fresh))
            merged = {name: _spliced(self._listeners.get(name, ()), fresh.get(name, ()), owner) for name in names}
            self._listeners = {name: there for name, there in merged.items() if there}
        self._overruns.forget(owner)

    def remove_owner(self, owner: str) -> list[str]:
        """Forget the listeners of `owner` and return the hooks that they listened to."""
        with self._lock:
            names = self._owned_by(owner)
            found = {name: _others(there, owner) for name, there in self._listeners.items()}
            self._listeners = {name: there for name, there in found.items() if there}
        self._overruns.forget(owner)
        return names

    def owned_by(self, owner: str) -> list[str]:
        """Return the hooks that `owner` listens to."""
        with self._lock:
            return self._owned_by(owner)

    def _owned_by(self, owner: str) -> list[str]:
        return [name for name, there in self._listeners.items() if any(item.plugin == owner for item in there)]

    def suspended(self) -> dict[str, str]:
        """Return the plugins whose hooks are called no more, with the reason."""
        return dict(self._overruns.suspended)

    def fire(self, hook: str, /, **payload: Any) -> list[HookResult]:
        """Call every listener from a thread that waits; see `steps`. Never call it on the core loop."""
        if hook not in self._listeners:
            return []
        results: list[HookResult] = self._run_steps(self.steps(hook, payload))
        return results

    def steps(self, hook: str, payload: dict[str, Any]) -> Steps[list[HookResult]]:
        """Call every listener and return what each answered, in order; one that answers None is left out.

        A callback that raises, that is not done at its deadline (`TimeoutError`), or whose plugin is suspended
        (`PluginError`) becomes a result with its `error`; the others are called all the same.

        Args:
            payload: the keywords. A callback that overran keeps what it was given; then the dicts and lists in here
                are replaced by copies, so that what it does to them later is seen by nobody. Go on with those.
        """
        payload.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
        results = []
        for listener in self._listeners.get(hook, ()):
            result = yield from self._ask(hook, listener, payload)
            if result.value is not None or result.error is not None:
                results.append(result)
        return results

    def _ask(self, hook: str, listener: _Listener, payload: dict[str, Any]) -> Steps[HookResult]:
        plugin = listener.plugin
        reason = self._overruns.suspended.get(plugin)
        if reason is not None:
            return HookResult(plugin, error=PluginError(plugin, f"suspended: {reason}"))
        wanted = listener.keywords
        given = dict(payload) if wanted is None else {k: v for k, v in payload.items() if k in wanted}
        limit_s = self.deadlines.of(plugin)
        call: Callable[[float], HookResult] = partial(self._call, listener, given)
        if self._account is not None:
            call = partial(_noted, self._account, hook, plugin, call)
        result = yield Step(call, limit_s, f"hook {hook} of plugin {plugin}")
        name = getattr(listener.callback, "__name__", repr(listener.callback))
        if result is OVERRAN:
            payload.update({k: _copy(v) for k, v in payload.items() if isinstance(v, dict | list)})
            self._overruns.note(plugin, hook, name, limit_s)
            if self._account is not None:
                self._account.hook_overran(plugin, hook, limit_s)
            return HookResult(plugin, error=TimeoutError(f"{hook} gave no answer within {limit_s:g} s"))
        if result.error is not None:
            error, extra = result.error, {"plugin": plugin}
            logger.warning("Hook '%s' callback %s raised: %s", hook, name, error, exc_info=error, extra=extra)
        return result  # type: ignore[no-any-return]

    def _call(self, listener: _Listener, given: dict[str, Any], until: float) -> HookResult:
        try:
            value = listener.callback(**given)
            if inspect.iscoroutine(value):
                value = self._await(value, deadline_s=max(0.0, until - time.monotonic()))
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - becomes the result, which is logged if anybody still waits for it
            return HookResult(listener.plugin, error=exc)
        return HookResult(listener.plugin, value)


def _noted(
    account: HookAccount, hook: str, plugin: str, call: Callable[[float], HookResult], until: float
) -> HookResult:
    started = time.perf_counter()
    result = call(until)
    account.hook(plugin, hook, time.perf_counter() - started, result.error)
    return result


def _others(there: tuple[_Listener, ...], owner: str) -> tuple[_Listener, ...]:
    return tuple(item for item in there if item.plugin != owner)


def _spliced(there: tuple[_Listener, ...], fresh: tuple[_Listener, ...], owner: str) -> tuple[_Listener, ...]:
    """Return `there` with the listeners that `owner` has in `fresh`, where its first one stood."""
    place = next((n for n, item in enumerate(there) if item.plugin == owner), len(there))
    mine = tuple(item for item in fresh if item.plugin == owner)
    return (*_others(there[:place], owner), *mine, *_others(there[place:], owner))


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as exc:  # noqa: BLE001 - any object may be in there, or the callback changes it right now
        logger.warning("what a hook that overran was given is not copied and may still change: %r", exc)
        return value


def _keywords(callback: HookCallback) -> frozenset[str] | None:
    """Return the keywords that `callback` names, or None when it takes any."""
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature takes what it is given
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
