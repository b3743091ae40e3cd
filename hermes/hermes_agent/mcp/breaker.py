"""A server that fails again and again is left alone for a while. Source: plugin contract §9.1."""

from __future__ import annotations

import time

from hermes_agent.core.errors import ToolFailed

__all__ = ["FailurePause"]

MOST_FAILURES = 3
PAUSE_S = 60.0


class FailurePause:
    """Counts failures of one server, one after another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures = 0
        self._why = ""
        self._until = 0.0

    def check(self) -> None:
        """Let a call pass. After a rest one may try; when that fails, the next rest begins.

        Raises:
            ToolFailed: the server rests.
        """
        left_s = self._until - time.monotonic()
        if left_s > 0:
            raise ToolFailed(
                f"the MCP server {self._name} failed {self._failures} times in a row (last: it {self._why}) and is "
                f"not asked for {left_s:.0f} s. Do not call its tools until then: go on without it, or tell the user."
            )

    def succeeded(self) -> None:
        """The server answered."""
        self._failures, self._until = 0, 0.0

    def failed(self, why: str) -> bool:
        """The server did not answer, or badly; true when it rests now."""
        self._failures += 1
        self._why = why
        if self._failures < MOST_FAILURES:
            return False
        self._until = time.monotonic() + PAUSE_S
        return True
