"""Checkpoints and what was put back, in words for a person."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes_agent.workspace.output import printable

if TYPE_CHECKING:
    from hermes_agent.workspace.checkpoints.shadow import Checkpoint, RestoreResult

__all__ = ["checkpoint_rows", "restore_text"]

MOST = 20


def checkpoint_rows(checkpoints: Sequence[Checkpoint], *, folders: bool, numbers: bool = True) -> list[str]:
    """Return a line for each, with its number from 1.

    Args:
        folders: whether they say where they are.
        numbers: whether they are numbered; `Checkpoints.choose` takes the numbers of one folder's list alone.
    """
    lines = []
    for number, one in enumerate(checkpoints, 1):
        what = ", ".join(f"/{path}" for path in one.paths) if one.paths is not None else one.folder
        where = f"  {printable(what)}" if folders or one.paths is not None else ""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at))
        first = f"{number:>3}  " if numbers else ""
        lines.append(f"{first}{one.id}  {when}  before {printable(one.why.removeprefix('before '))[:100]}{where}")
    return lines


def restore_text(done: Sequence[RestoreResult]) -> str:
    """Return what was put back; empty for nothing."""
    lines = []
    for one in done:
        count = len(one.written) + len(one.removed)
        if not one.before:
            lines.append("Nothing is different.")
            continue
        lines.append(f"Put back in {printable(one.checkpoint.folder)}:")
        names = [
            *(f"  {printable(path)}" for path in one.written),
            *(f"  {printable(path)} (removed)" for path in one.removed),
        ]
        lines += [*names[:MOST], *([f"  … and {count - MOST} more"] if count > MOST else [])]
        lines.append(f"What was there is kept: hermes rollback restore {one.before}")
    return "\n".join(lines)
