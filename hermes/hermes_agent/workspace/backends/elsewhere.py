"""What backends with a file system of their own have in common: a shell over there, and its processes."""

from __future__ import annotations

import logging
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import replace
from threading import Event

from hermes_agent.io.processes import MARK, CommandResult, OutputFilter
from hermes_agent.workspace.backends.backend import Backend, BackendCommand

__all__ = ["RemoteBackend", "shell_words"]

logger = logging.getLogger(__name__)

KILL_LIMIT_S = 20.0
_BEST_SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1" hermes; else exec sh -c "$1" hermes; fi'
_KILL = (
    "for p in /proc/[0-9]*; do if tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -qx {mark}; then"
    " [ ${{p#/proc/}} = $$ ] || kill -KILL ${{p#/proc/}}; fi; done 2>/dev/null; exit 0"
)
"""Ends a command's processes, known by a variable: the program that was ended here has no power over there."""


def shell_words(script: str, mark: str = "") -> list[str]:
    """Return the words that run a script in the best shell that is there."""
    words = ["sh", "-c", _BEST_SHELL, "hermes", script]
    return ["env", f"{MARK}={mark}", *words] if mark else words


class RemoteBackend(Backend):
    """A place that a program of this machine leads to."""

    own_files = False

    def run(
        self, script: str, call: BackendCommand, sieve: OutputFilter | None = None, *, pass_fds: Sequence[int] = ()
    ) -> CommandResult:
        """Run a script; what was stopped here is ended there, too."""
        mark = secrets.token_hex(8)
        marked = shlex.join(shell_words(script, mark))
        done = super().run(f"exec {marked}", call, sieve, pass_fds=pass_fds)
        if done.timed_out or done.cancelled:
            end = replace(call, stdin=b"", tty=False, timeout_s=KILL_LIMIT_S, cancelled=Event(), on_output=None)
            ended = super().run(_KILL.format(mark=f"{MARK}={mark}"), end)
            if ended.exit_code:
                logger.warning("a command may go on in %s: %s", self.name, ended.output.decode("utf-8", "replace"))
        return done
