"""Who is a platform in this process: `gateway.platform_registry.platform_registry`. Source: plugin contract §8.2.1."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, Self

from hermes_agent.contracts.owner import Owner, current_owner, staged_store
from hermes_agent.contracts.platform.entry import PLATFORM, PLUGIN_SOURCE, PlatformEntry
from hermes_agent.contracts.platform.names import BUILTIN_PLATFORMS, Platform, add_lookup
from hermes_agent.core.registry import BUILTIN, Conflict, Registry, RegistryEntry

__all__ = ["PlatformAvailability", "PlatformRegistry", "platform_in_creation"]

logger = logging.getLogger(__name__)

_platform_in_creation: ContextVar[str] = ContextVar("hermes_platform_being_made", default="")


class PlatformAvailability(NamedTuple):
    """Whether a platform could be connected on this machine."""

    ok: bool
    reason: str
    """Why not; empty when it could."""
    failed: bool = False
    """Its check is at fault: it raised, or is no plain function."""


def platform_in_creation() -> Platform | None:
    """Return the platform whose `adapter_factory` runs in this context: what an adapter is that was not told."""
    name = _platform_in_creation.get()
    return Platform(name) if name else None


class PlatformRegistry:
    """Platforms by name, in order of registration. The method names are upstream's.

    A deferred one is a function that registers the platform when somebody asks for it.
    """

    def __init__(self) -> None:
        self._entries: Registry[PlatformEntry] = Registry(PLATFORM.label)
        self._deferred: dict[str, Callable[[], Any]] = {}
        add_lookup(self)

    def register(self, entry: PlatformEntry) -> None:
        """Register a platform for whoever registers now; of the same owner the last one counts.

        A name that is somebody else's stays theirs, with a line in the log, unless the operator allowed the plugin
        to take over names.
        """
        owner = current_owner()
        try:
            staged_store(self).add(entry, owner)
        except Conflict as exc:
            logger.warning("Platform '%s' was not registered: %s", entry.name, exc)

    def add(self, entry: PlatformEntry, owner: Owner, *, builtin: bool = False) -> None:
        """Register a platform.

        Args:
            builtin: it comes with the agent, and may have one of the contract's names.

        Raises:
            ValueError: it has no usable name.
            Conflict: somebody else has the name.
        """
        name = entry.name
        if not isinstance(name, str) or not name.strip() or name != name.strip().lower():
            raise ValueError(f"a platform needs a name in lower case: {name!r} is none")
        if name in BUILTIN_PLATFORMS and not builtin and not owner.may_override:
            raise Conflict(PLATFORM.label, name, BUILTIN, owner.key)
        present = self._entries.get(name)
        self._entries.add(name, entry, owner=owner.key, replace=owner.may_override)
        self._deferred.pop(name, None)
        if present is not None:
            logger.debug("Platform '%s' re-registered (was %s, now %s)", name, present.source, entry.source)

    def register_deferred(self, name: str, loader: Callable[[], Any]) -> None:
        """Let `loader` register the platform when somebody asks for it; a name that is taken is left alone."""
        if self._entries.get(name) is None:
            self._deferred[name] = loader

    def unregister(self, name: str) -> bool:
        """Forget a platform; false when there is none."""
        deferred = self._deferred.pop(name, None) is not None
        return self._entries.remove(name) or deferred

    def get(self, name: str) -> PlatformEntry | None:
        """Return a platform; None when nobody registered it, or it could not be loaded."""
        self._load(name)
        return self._entries.get(name)

    def all_entries(self) -> list[PlatformEntry]:
        """Return every platform; what was deferred is loaded."""
        for name in list(self._deferred):
            self._load(name)
        return self.loaded_entries()

    def loaded_entries(self) -> list[PlatformEntry]:
        """Return every platform but those that are still deferred."""
        return [entry for _, entry in self._entries.items()]

    def plugin_entries(self) -> list[PlatformEntry]:
        """Return those of plugins."""
        return [entry for entry in self.all_entries() if entry.source == PLUGIN_SOURCE]

    def names(self) -> list[str]:
        """Return the name of each, without loading one."""
        return sorted({*self._entries.names(), *self._deferred})

    def is_registered(self, name: str) -> bool:
        """Say whether there is one, without loading it."""
        return name in self._entries or name in self._deferred

    def owner(self, name: str) -> str | None:
        """Return the key of the plugin that registered it."""
        return self._entries.owner(name)

    def owned_by(self, owner: str) -> list[str]:
        """Return what a plugin registered."""
        return self._entries.owned_by(owner)

    def availability(self, name: str) -> PlatformAvailability:
        """Ask `check_fn`; one that raises means no, with the exception as the reason."""
        entry = self.get(name)
        return PlatformAvailability(False, "nobody registered it") if entry is None else _availability(entry)

    def create_adapter(self, name: str, config: Any) -> Any:
        """Return a new adapter, or None with a line in the log that says why there is none.

        Args:
            config: its `PlatformConfig`.
        """
        entry = self.get(name)
        if entry is None:
            return None
        available = _availability(entry)
        if not available.ok:
            logger.warning("Platform '%s' requirements not met (%s)", name, available.reason)
            return None
        if not _is_valid(entry, config):
            return None
        try:
            with _mark_creation(name):
                return entry.adapter_factory(config)
        except Exception as exc:
            logger.error("Failed to create adapter for platform '%s': %s", name, exc, exc_info=True)
            return None

    def snapshot(self) -> tuple[dict[str, RegistryEntry[PlatformEntry]], dict[str, Callable[[], Any]]]:
        """Return the state for `restore`."""
        return self._entries.snapshot(), dict(self._deferred)

    def restore(self, state: tuple[dict[str, RegistryEntry[PlatformEntry]], dict[str, Callable[[], Any]]]) -> None:
        """Go back to a `snapshot`."""
        entries, deferred = state
        self._entries.restore(entries)
        self._deferred = dict(deferred)

    def fork(self, without: str) -> Self:
        """Return a registry of its own with the same content, but for what `without` registered."""
        fork = copy.copy(self)
        fork._entries, fork._deferred = self._entries.fork(without), dict(self._deferred)
        add_lookup(fork)
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace, in one step, what `owner` has here by what it has in `fork`."""
        self._entries.adopt(owner, fork._entries)

    def remove_owner(self, owner: str) -> list[str]:
        """Forget the platforms of a plugin and return their names; what it had replaced comes back."""
        return self._entries.remove_owner(owner)

    def _load(self, name: str) -> None:
        """Run the loader of a deferred platform; it is asked once, whatever comes of it."""
        loader = self._deferred.pop(name, None)
        if loader is None:
            return
        try:
            loader()
        except Exception as exc:  # noqa: BLE001 - a plugin's code: the other platforms go on
            logger.warning("Deferred load of platform '%s' failed: %s", name, exc)


@contextlib.contextmanager
def _mark_creation(name: str) -> Iterator[None]:
    token = _platform_in_creation.set(name)
    try:
        yield
    finally:
        _platform_in_creation.reset(token)


def _availability(entry: PlatformEntry) -> PlatformAvailability:
    try:
        answer = entry.check_fn()
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - a plugin's code: the others go on
        return PlatformAvailability(False, f"its check failed: {type(exc).__name__}: {exc}", True)
    if inspect.iscoroutine(answer):
        answer.close()
        return PlatformAvailability(False, "its check_fn is a coroutine function: it must be a plain one", True)
    return (
        PlatformAvailability(True, "")
        if answer
        else PlatformAvailability(False, entry.install_hint or "its check says no")
    )


def _is_valid(entry: PlatformEntry, config: Any) -> bool:
    if entry.validate_config is None:
        return True
    try:
        valid = bool(entry.validate_config(config))
    except Exception as exc:  # noqa: BLE001 - a plugin's code
        logger.warning("Platform '%s' config validation error: %s", entry.name, exc)
        return False
    if not valid:
        logger.warning("Platform '%s' config validation failed", entry.name)
    return valid
