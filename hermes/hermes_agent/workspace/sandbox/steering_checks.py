"""Looks at steering files before a command and after it. One that an agent left undone, because it died while the
command ran, is taken by the next agent of the home, before its first command."""

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
    """Safe for threads.

    Args:
        directory: where it is written down what waits for its second look; None for nowhere.
        processes: where background processes have their directories.
    """

    def __init__(self, directory: Path | None = None, processes: Path | None = None) -> None:
        self._processes = processes
        self._files = SteeringFiles()
        self._directory = directory
        self._lock = threading.Lock()
        self._has_finished_abandoned = directory is None

    def start_check(self, root: str, *, mounts: bool) -> SteeringBaseline:
        """Take the look before a command that may write to `root`.

        Args:
            mounts: whether the command can see what is there through mounts that cannot be written. While another
                command runs it does not: the box looks up what it mounts by its path, and who can exchange a name of
                that path for a link would have it show what it hides.

        Raises:
            ToolFailed: the directory cannot be looked through.
        """
        self._finish_abandoned()
        try:
            return self._files.baseline(root, mounts=mounts and not self._is_busy())
        except (TooManyDirectories, OSError) as exc:
            raise ToolFailed(f"{root} cannot be protected from what the command may plant: {exc}") from exc

    def _is_busy(self) -> bool:
        """Say whether a command of this home runs in a sandbox, in the background or for any of its agents."""
        if self._directory is not None and any(self._directory.glob("*.json")):
            return True
        return self._processes is not None and any(self._processes.glob(f"*/{GUARDED}"))

    def write_note(self, before: SteeringBaseline) -> Path | None:
        """Write down that a command begins which this agent waits for."""
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
        """Take the second look; return what was set aside."""
        held = before.finish()
        if note is not None:
            with contextlib.suppress(OSError):
                note.unlink()
        return held

    def _finish_abandoned(self) -> None:
        """Take the looks that former agents left, once."""
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
    except (OSError, ValueError, TypeError, KeyError) as exc:  # its agent died while it wrote, before the command
        logger.warning("%s says nothing of a command: %s", path, exc)
    with contextlib.suppress(OSError):
        path.unlink()
