"""The bus: which callbacks listen to which hook, and calling them one after another."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.hook import HookCallback
from hermes_agent.hooks.names import TELEMETRY_SCHEMA

__all__ = ["HookBus", "HookResult"]

logger = logging.getLogger(__name__)

Await = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a plugin's coroutine to its end from a worker thread."""


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


class HookBus:
    """Callbacks by hook name, in order of registration.

    `fire` runs plugin code in the calling thread: call it from a worker (`Bridge.run`), never from the core loop.
    """

    def __init__(self, await_plugin: Await) -> None:
        self._await = await_plugin
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

    def fire(self, hook: str, /, **payload: Any) -> list[HookResult]:
        """Call every listener and return what each answered, in order; one that answers None is left out.

        A callback that raises is logged and becomes a result with its `error`; the others are called all the same.
        """
        listeners = self._listeners.get(hook)
        if not listeners:
            return []
        payload.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
        results = [self._call(hook, listener, payload) for listener in listeners]
        return [r for r in results if r.value is not None or r.error is not None]

    def _call(self, hook: str, listener: _Listener, payload: dict[str, Any]) -> HookResult:
        wanted = listener.keywords
        given = payload if wanted is None else {k: v for k, v in payload.items() if k in wanted}
        try:
            value = listener.callback(**given)
            if inspect.iscoroutine(value):
                value = self._await(value)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            name = getattr(listener.callback, "__name__", repr(listener.callback))
            logger.warning(
                "Hook '%s' callback %s raised: %s",
                hook,
                name,
                exc,
                exc_info=True,
                extra={"plugin": listener.plugin},
            )
            return HookResult(listener.plugin, error=exc)
        return HookResult(listener.plugin, value)


def _keywords(callback: HookCallback) -> frozenset[str] | None:
    """Return the keywords that `callback` names, or None when it takes any."""
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature takes what it is given
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
