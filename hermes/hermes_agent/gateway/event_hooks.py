"""Event hooks of the gateway: `$HERMES_HOME/hooks/<name>/{HOOK.yaml,handler.py}`.

A handler is called with the events that it declares, in order and one at a time. It delays nothing, and its exceptions
are logged. Only `command:<name>` waits for the answers. Source: plugin contract §9.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.commands import await_result
from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.runtime.bridge import Bridge

logger = logging.getLogger(__name__)

DEADLINE_S = 10.0
MAX_WAITING = 256
"""Limit of queued events of a handler; the oldest is dropped."""
SETTLE_S = 5.0


class EventHook(LazyNamedTuple):
    """An event hook: one folder."""

    name: str
    events: tuple[str, ...]
    handle: Callable[[str, dict[str, Any]], Any]


def load_hooks(folder: Path) -> list[EventHook]:
    """Return the hooks of a folder in the order of their names; invalid hooks are logged and skipped."""
    found = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (place / "HOOK.yaml").is_file() or not (place / "handler.py").is_file():
            continue
        try:
            hook = _load(place)
        except (Exception, SystemExit) as exc:
            logger.error("[hooks] Error loading hook %s: %s", place, exc, exc_info=True)
            continue
        if hook is not None:
            logger.debug("[hooks] Loaded hook '%s' for events: %s", hook.name, list(hook.events))
            found.append(hook)
    return found


def _load(place: Path) -> EventHook | None:
    try:
        values = read_yaml(str(place / "HOOK.yaml"), ("name", "events")).values
    except (YamlRejected, OSError) as exc:
        logger.warning("[hooks] Skipping %s: invalid HOOK.yaml (%s)", place.name, exc)
        return None
    name, events = str(values.get("name") or place.name), values.get("events")
    events = [events] if isinstance(events, str) else events if isinstance(events, list) else []
    if not events:
        logger.warning("[hooks] Skipping %s: no events declared", name)
        return None
    module_name = f"hermes_hook_{name}"
    spec = importlib.util.spec_from_file_location(module_name, place / "handler.py")
    if spec is None or spec.loader is None:
        logger.warning("[hooks] Skipping %s: could not load handler.py", name)
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    handle = getattr(module, "handle", None)
    if not callable(handle):
        logger.warning("[hooks] Skipping %s: no 'handle' function found", name)
        return None
    return EventHook(name, tuple(str(event) for event in events), handle)


class EventHooks:
    """Calls event hooks, on the core loop.

    Args:
        deadline_s: time limit of a call.
    """

    def __init__(self, bridge: Bridge, hooks: Sequence[EventHook] = (), deadline_s: float = DEADLINE_S) -> None:
        self._bridge = bridge
        self._deadline_s = deadline_s
        self.hooks = list(hooks)
        """The loaded hooks."""
        self._queues: dict[int, asyncio.Queue[tuple[str, dict[str, Any]]]] = {}
        self._workers: dict[int, asyncio.Task[None]] = {}

    def listeners_for(self, event: str) -> list[EventHook]:
        """Return the hooks for an event: first those that name it, then those of `base:*`."""
        exact = [hook for hook in self.hooks if event in hook.events]
        base = f"{event.partition(':')[0]}:*"
        return exact + [hook for hook in self.hooks if hook not in exact and {base, "*"} & set(hook.events)]

    def emit(self, event: str, context: Mapping[str, Any]) -> None:
        """Queue an event for its hooks; return at once."""
        for hook in self.listeners_for(event):
            queue = self._queues.setdefault(id(hook), asyncio.Queue())
            if queue.qsize() >= MAX_WAITING:
                dropped, _ = queue.get_nowait()
                queue.task_done()
                logger.warning("[hooks] '%s' is too slow: an event '%s' is dropped", hook.name, dropped)
            queue.put_nowait((event, dict(context)))
            if id(hook) not in self._workers:
                self._workers[id(hook)] = asyncio.create_task(self._work(hook, queue), name=f"hook {hook.name}")

    async def emit_collect(self, event: str, context: Mapping[str, Any]) -> list[Any]:
        """Call the hooks of an event; return their answers in order, without None."""
        answers = [await self._call(hook, event, dict(context)) for hook in self.listeners_for(event)]
        return [answer for answer in answers if answer is not None]

    async def aclose(self) -> None:
        """Wait for queued events, at most `SETTLE_S` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await asyncio.gather(*(queue.join() for queue in self._queues.values()))
        for worker in self._workers.values():
            worker.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _work(self, hook: EventHook, queue: asyncio.Queue[tuple[str, dict[str, Any]]]) -> None:
        while True:
            event, context = await queue.get()
            try:
                await self._call(hook, event, context)
            finally:
                queue.task_done()

    async def _call(self, hook: EventHook, event: str, context: dict[str, Any]) -> Any:
        def call() -> Any:
            return await_result(hook.handle(event, context), self._bridge, limit_s=self._deadline_s)

        try:
            return await self._bridge.run(call, deadline_s=self._deadline_s)
        except Exception as exc:  # noqa: BLE001 - code of the operator: the message is processed anyway
            logger.error("[hooks] Error in handler for '%s': %s", event, exc or type(exc).__name__)
            return None
