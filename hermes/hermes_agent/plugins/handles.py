"""Handles of registrations, and the ledger that undoes the registrations of one plugin.

Each `ctx.register_*` that succeeds returns a `PluginRegistration`. The ledger of a plugin keeps its handles in order;
`close` disposes them in reverse order when the plugin is unloaded. A ledger may be sealed: a plugin that was abandoned
while it loaded may still call its context from a thread, and these calls must have no effect. Source: plugin contract
of 0.23 §2.4, §2.5.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

logger = logging.getLogger(__name__)


class PluginRegistration:
    """One registration of a plugin; `dispose` undoes it.

    Args:
        kind: what was registered: `tool`, `hook`, `unload callback`, …
        key: name of the entry.
        plugin_key: key of the plugin.
        undo: undoes the registration; is called once at most.
        persistent: whether the registration survives a routine unload of the plugin.
        staged: whether the entry is in a store that a reload replaces as a whole.
    """

    __slots__ = ("_active", "_lock", "_undo", "key", "kind", "persistent", "plugin_key", "staged")

    def __init__(
        self,
        kind: str,
        key: str,
        plugin_key: str,
        undo: Callable[[], object],
        *,
        persistent: bool = False,
        staged: bool = True,
    ) -> None:
        self.kind = kind
        self.key = key
        self.plugin_key = plugin_key
        self.persistent = persistent
        self.staged = staged
        self._undo = undo
        self._active = True
        self._lock = threading.Lock()

    @property
    def active(self) -> bool:
        """Whether the registration is still in force."""
        return self._active

    def dispose(self) -> None:
        """Undo this registration; a second call does nothing."""
        if self.retire():
            self._undo()

    def also(self, undo: Callable[[], object]) -> None:
        """Call another function when the registration is undone, after its own."""
        own = self._undo

        def both() -> None:
            try:
                own()
            finally:
                undo()

        self._undo = both

    def retire(self) -> bool:
        """Mark the registration as undone without undoing it; return False if it was undone before."""
        with self._lock:
            was_active, self._active = self._active, False
        return was_active

    def __repr__(self) -> str:
        state = "active" if self._active else "disposed"
        return f"PluginRegistration({self.kind} {self.key!r} of {self.plugin_key!r}, {state})"


UNLOAD_CALLBACK = "unload callback"
"""Kind of the handles of `ctx.on_unload`."""


class RegistrationLedger:
    """The handles of one plugin, in order of registration."""

    def __init__(self, plugin_key: str, plugin_name: str) -> None:
        self.plugin_key = plugin_key
        self.plugin_name = plugin_name
        self._handles: list[PluginRegistration] = []
        self._sealed = ""
        self._lock = threading.Lock()

    @property
    def sealed(self) -> str:
        """Why later registrations are ignored: `its load timed out`; empty while they are accepted."""
        return self._sealed

    def seal(self, reason: str) -> None:
        """Ignore every later registration."""
        self._sealed = reason

    def add(
        self, kind: str, key: str, undo: Callable[[], object], *, persistent: bool = False, staged: bool = True
    ) -> PluginRegistration:
        """Enter a registration and return its handle; see `PluginRegistration`."""
        handle = PluginRegistration(kind, key, self.plugin_key, undo, persistent=persistent, staged=staged)
        with self._lock:
            self._handles = [known for known in self._handles if known.active]
            self._handles.append(handle)
        return handle

    def on_unload(self, callback: Callable[[], object]) -> PluginRegistration:
        """Call `callback` when the plugin is unloaded; disposing the handle withdraws the callback.

        Raises:
            TypeError: the callback is not callable.
        """
        if not callable(callback):
            raise TypeError(f"on_unload needs a callable, got {callback!r}")
        name = getattr(callback, "__name__", repr(callback))
        return self.add(UNLOAD_CALLBACK, name, callback, staged=False)

    def close(self, *, replaced: bool = False) -> None:
        """Undo every registration in reverse order; an exception is logged and stops none of the others.

        Args:
            replaced: a newer version of the plugin has replaced it in every store: undo only registrations outside the
                stores.
        """
        with self._lock:
            handles, self._handles = self._handles, []
        for handle in reversed(handles):
            if not handle.retire() or (replaced and handle.staged):
                continue
            try:
                handle._undo()
            except (Exception, SystemExit) as exc:
                logger.warning(
                    "unload of plugin %s: %s `%s` raised %s: %s",
                    *(self.plugin_key, handle.kind, handle.key, type(exc).__name__, exc),
                    exc_info=True,
                    extra={"plugin": self.plugin_key},
                )


class _Registrant(Protocol):
    @property
    def ledger(self) -> RegistrationLedger: ...


F = TypeVar("F", bound=Callable[..., Any])


def registers(method: F) -> F:
    """Decorate a registering method of the context: it does nothing once the ledger is sealed."""

    @functools.wraps(method)
    def call(self: _Registrant, *args: Any, **kwargs: Any) -> Any:
        sealed = self.ledger.sealed
        if sealed:
            logger.warning(
                "Plugin '%s' called %s() after %s; ignored", self.ledger.plugin_name, method.__name__, sealed
            )
            return None
        return method(self, *args, **kwargs)

    return call  # type: ignore[return-value]
