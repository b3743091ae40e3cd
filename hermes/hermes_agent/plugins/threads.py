"""Errors in threads that plugins started: logged and counted for the plugin whose code it was."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from hermes_agent.plugins.record import LoadedPlugin

__all__ = ["culprit", "watch_threads"]

logger = logging.getLogger(__name__)

Fault = Callable[[str, str], None]


def watch_threads(records: Callable[[], Sequence[LoadedPlugin]], fault: Fault) -> None:
    """Take over `threading.excepthook` of this process; what is no plugin's goes to the hook that was there.

    Args:
        fault: told the plugin and what happened.
    """
    before = threading.excepthook

    def hook(args: Any) -> None:
        plugin = None if args.exc_value is None else culprit(args.exc_traceback, records())
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


def culprit(traceback: TracebackType | None, records: Sequence[LoadedPlugin]) -> str | None:
    """Return the key of the plugin whose code is innermost in a traceback, or None."""
    found = None
    while traceback is not None:
        frame = traceback.tb_frame
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        for record in records:
            manifest = record.manifest
            if manifest.source == "entrypoint":
                mine = package == manifest.path.partition(":")[0].strip().partition(".")[0]
            else:
                mine = frame.f_code.co_filename.startswith(f"{manifest.path}/")
            found = manifest.key if mine else found
        traceback = traceback.tb_next
    return found
