"""`/rollback`: the checkpoints of the working directory, and going back to one. Source: plugin contract §7.1."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hermes_agent.commands import CommandTable
from hermes_agent.tools import current_scope
from hermes_agent.workspace.checkpoints import Checkpoints, GitError, checkpoint_rows, choose_checkpoint, restore_text

__all__ = ["CHECKPOINTS_OFF", "checkpoint_path", "register_rollback"]

SHOWN = 10
DIFF_CHARS = 8_000
CHECKPOINTS_OFF = "No checkpoints are made; to have them: hermes config set checkpoints.enabled true"


def register_rollback(
    registry: CommandTable, checkpoints: Checkpoints, default_cwd: Path, sees: Callable[[str], bool]
) -> None:
    """Register the command.

    Args:
        sees: says whether a session is one of the caller's: others' checkpoints are not listed, shown or restored.
    """
    registry.register(
        "rollback",
        partial(_run, checkpoints, default_cwd, sees),
        description="List the checkpoints of this folder, show what changed since one, put files back",
        args_hint="[diff] [NUMBER|ID [FILE]]",
        beside=False,
    )


def _run(checkpoints: Checkpoints, default_cwd: Path, sees: Callable[[str], bool], raw_args: str) -> str:
    scope = current_scope.get()
    cwd = str(default_cwd if scope is None else scope.cwd)
    words = raw_args.split(maxsplit=1)
    try:
        there = [one for one in checkpoints.all(cwd) if sees(one.session)]
        if not there:
            return "There are no checkpoints of this folder yet." if checkpoints.limits.enabled else CHECKPOINTS_OFF
        if not words:
            return "\n".join(
                [
                    *checkpoint_rows(there[:SHOWN], folders=False),
                    "/rollback NUMBER (or ID) puts everything back as it was.",
                ]
            )
        if words[0] == "diff":
            wish, *file = words[1].split(maxsplit=1) if words[1:] else ["1"]
            chosen = choose_checkpoint(there, wish)
            diff = checkpoints.diff(chosen, [checkpoint_path(name, cwd) for name in file])
            return diff[:DIFF_CHARS] + ("…" if len(diff) > DIFF_CHARS else "") if diff else "Nothing is different."
        chosen = choose_checkpoint(there, words[0])
        session = "" if scope is None else scope.session_id
        return restore_text(
            [checkpoints.restore(chosen, [checkpoint_path(name, cwd) for name in words[1:]], session=session)]
        )
    except GitError as trouble:
        return f"{trouble.message}. /rollback lists what there is."


def checkpoint_path(name: str, cwd: str) -> str:
    """Return a file as it is called in checkpoints; a link itself, not what it leads to."""
    directory, last = os.path.split(os.path.normpath(os.path.join(cwd, name)))  # noqa: PTH118 - as text
    return f"{os.path.realpath(directory).rstrip('/')}/{last}"
