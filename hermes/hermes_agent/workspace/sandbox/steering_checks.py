"""Checks of steering files before and after a command.

The check after a command that an agent left undone, because it died, is made by the next agent before its first
command.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from pathlib import Path

from hermes_agent.core.errors import ToolFailed
from hermes_agent.sessions.turn_journal import is_running, this_process
from hermes_agent.workspace.sandbox.steering_guard import GUARDED
from hermes_agent.workspace.sandbox.steering_watch import SteeringBaseline, SteeringFiles, TooManyDirectories

logger = logging.getLogger(__name__)


class SteeringChecks:
    """The checks of one home. Safe for threads.

    Args:
        directory: the directory for notes about checks that are due; None for no notes.
        processes: the directory of background processes.
    """

    def __init__(self, directory: Path | None = None, processes: Path | None = None) -> None:
        self._processes = processes
        self._files = SteeringFiles()
        self._directory = directory
        self._lock = threading.Lock()
        self._has_finished_abandoned = directory is None

    def start_check(self, root: str, *, mounts: bool) -> SteeringBaseline:
        """Return the baseline before a command that may write to `root`.

        Args:
            root: the directory.
            mounts: whether the sandbox can protect present files by read-only mounts. While another command runs it
                cannot: it resolves the paths to mount, and a command that replaces a name by a link could make it show
                hidden files.

        Raises:
            ToolFailed: the directory cannot be searched.
        """
        self._finish_abandoned()
        try:
            return self._files.baseline(root, mounts=mounts and not self._is_busy())
        except (TooManyDirectories, OSError) as exc:
            raise ToolFailed(f"{root} cannot be protected from steering files of the command: {exc}") from exc

    def _is_busy(self) -> bool:
        """Return whether another sandboxed command of this home runs, in the background or for an agent."""
        if self._directory is not None and any(self._directory.glob("*.json")):
            return True
        return self._processes is not None and any(self._processes.glob(f"*/{GUARDED}"))

    def write_note(self, before: SteeringBaseline) -> Path | None:
        """Write a note that a command starts, and return its path."""
        if self._directory is None:
            return None
        path = self._directory / f"{this_process()}-{os.urandom(6).hex()}.json"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump(before.to_json(), file)
        except OSError as exc:
            raise ToolFailed(f"no command runs, {path} cannot be written: {exc.strerror or exc}") from exc
        return path

    def finish_check(self, before: SteeringBaseline, note: Path | None) -> tuple[str, ...]:
        """Make the check after a command; return what was set aside."""
        held = before.finish()
        if note is not None:
            with contextlib.suppress(OSError):
                note.unlink()
        return held

    def _finish_abandoned(self) -> None:
        """Make the checks that earlier agents left undone, once."""
        with self._lock:
            if self._has_finished_abandoned or self._directory is None:
                return
            self._has_finished_abandoned = True
            for path in sorted(self._directory.glob("*.json")):
                if not is_running(path.name.partition("-")[0]):
                    _finish(path)


def _finish(path: Path) -> None:
    try:
        SteeringBaseline.from_json(json.loads(path.read_bytes())).finish()
    except (OSError, ValueError, TypeError, KeyError) as exc:  # the agent died while it wrote the note
        logger.warning("steering check: note not readable: %s: %s", exc, path)
    with contextlib.suppress(OSError):
        path.unlink()
