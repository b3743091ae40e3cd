"""How long a plugin's hook may take, and what becomes of a plugin whose hooks keep taking longer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MAX_OVERRUNS", "HookDeadlines", "HookSuspensions"]

logger = logging.getLogger(__name__)

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
