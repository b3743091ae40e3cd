"""Threads in which plugin code failed or does not return: which plugin it is, and where."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from hermes_agent.plugins.record import LoadedPlugin

__all__ = ["StalledCall", "owner_of_thread", "stalled_calls", "watch_threads"]

logger = logging.getLogger(__name__)

FaultListener = Callable[[str, str], None]


class StalledCall(NamedTuple):
    """A call of a plugin that does not return."""

    plugin: str
    place: str
    """`FILE:LINE (FUNCTION)`, where it is now."""
    seconds: float
    """Since its deadline."""
    thread: str


def watch_threads(records: Callable[[], Sequence[LoadedPlugin]], fault: FaultListener) -> None:
    """Take over `threading.excepthook` of this process; what is no plugin's goes to the hook that was there.

    Args:
        fault: told the plugin and what happened.
    """
    before = threading.excepthook

    def hook(args: Any) -> None:
        plugin = None if args.exc_value is None else owner_of_thread(args.exc_traceback, records())
        if plugin is None:
            before(args)
            return
        name = args.thread.name if args.thread is not None else "?"
        logger.error(
            "a thread of plugin %s (%s) ended with %r; the agent goes on",
            plugin,
            name,
            args.exc_value,
            exc_info=args.exc_value,
            extra={"plugin": plugin},
        )
        fault(plugin, f"thread {name}: {args.exc_value!r}")

    threading.excepthook = hook


def owner_of_thread(traceback: TracebackType | None, records: Sequence[LoadedPlugin]) -> str | None:
    """Return the key of the plugin whose code is innermost in a traceback, or None."""
    found = None
    while traceback is not None:
        found = _owner_of_frame(traceback.tb_frame, records) or found
        traceback = traceback.tb_next
    return found


def stalled_calls(
    threads: Iterable[tuple[threading.Thread, float]], records: Sequence[LoadedPlugin]
) -> list[StalledCall]:
    """Return where plugins keep threads that run on after their deadline.

    Args:
        threads: with the seconds since the deadline, as `Bridge.stalled` gives them.
    """
    frames, found = sys._current_frames(), []
    for thread, seconds in threads:
        frame = frames.get(thread.ident or 0)
        while frame is not None:
            if (plugin := _owner_of_frame(frame, records)) is not None:
                place = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
                found.append(StalledCall(plugin, place, seconds, thread.name))
                break
            frame = frame.f_back
    return found


def _owner_of_frame(frame: FrameType, records: Sequence[LoadedPlugin]) -> str | None:
    """Return the key of the plugin whose code a frame runs, or None."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    found = None
    for record in records:
        manifest = record.manifest
        if manifest.source == "entrypoint":
            mine = package == manifest.path.partition(":")[0].strip().partition(".")[0]
        else:
            mine = frame.f_code.co_filename.startswith(f"{manifest.path}/")
        found = manifest.key if mine else found
    return found
