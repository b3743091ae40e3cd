"""What an approval is bound to: one call with these arguments, in this directory, for a limited time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["CLEARANCE_S", "ClearedCall", "Clearance", "current_clearance", "fingerprint", "freeze_arguments"]

CLEARANCE_S = 60.0
"""How long an approval holds when something on the way delays the call."""


class ClearedCall(NamedTuple):
    """What an approval is for."""

    digest: str
    taint: int
    """How many untrusted texts are in the session; an approval from before one came is void."""


class Clearance:
    """The settled approval of one call.

    Args:
        call: the fingerprint of what was asked about.
        clock: monotonic seconds.
    """

    __slots__ = ("_call", "_clock", "_until", "_unused")

    def __init__(self, call: ClearedCall, clock: Callable[[], float] = time.monotonic) -> None:
        self._call, self._clock = call, clock
        self._until = clock() + CLEARANCE_S
        self._unused = [True]

    def take(self, call: ClearedCall) -> bool:
        """Use it up for a call; False where it is for another call, has expired or was used. Safe for threads."""
        newly_tainted = call.taint > self._call.taint
        if call.digest != self._call.digest or newly_tainted or self._clock() > self._until:
            return False
        try:
            return self._unused.pop()
        except IndexError:  # by another run of the same call
            return False


def fingerprint(tool: str, args: dict[str, Any], cwd: Path, *, taint: int) -> ClearedCall:
    """Return what identifies a call: the hash of tool, arguments and directory, and its taint."""
    text = "\0".join((tool, str(cwd), freeze_arguments(args)))
    return ClearedCall(hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest(), taint)


def freeze_arguments(args: dict[str, Any]) -> str:
    """Return the arguments as a text that changes when they do."""
    try:
        return repr(sorted(args.items()))
    except TypeError:  # keys of several types; only a plugin makes such
        return repr(args)


current_clearance: ContextVar[Clearance | None] = ContextVar("hermes_cleared", default=None)
"""The approval of the call that runs in this context; `registry.dispatch` by another way asks again."""
