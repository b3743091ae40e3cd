"""The sandbox of this machine's commands: the first way to make a box that works here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Literal

from hermes_agent.workspace.box import Sandbox

__all__ = ["Mode", "SandboxSelector"]

logger = logging.getLogger(__name__)

Mode = Literal["auto", "systemd", "bwrap", "off"]
"""`terminal.sandbox`: a box where one can be made; no command without one of that kind; none."""


class SandboxSelector:
    """Args: `boxes` are the ways to make one, best first; `mode` is what the operator wants."""

    def __init__(self, boxes: Sequence[Sandbox], *, mode: Mode = "auto") -> None:
        self.mode = mode
        self.sandboxes = [box for box in boxes if mode in ("auto", box.name)]
        self._lock = threading.Lock()
        self._found: Sandbox | None = None
        self._is_selected = mode == "off"

    @property
    def selected(self) -> Sandbox | None:
        """What commands are put into; None where none can be made, or none is wanted."""
        with self._lock:
            if not self._is_selected:
                self._is_selected = True
                self._found = next((box for box in self.sandboxes if not box.problem), None)
                if self._found is None:
                    logger.warning("commands run without a sandbox, and each is asked about: %s", self.problem)
            return self._found

    @property
    def works(self) -> bool:
        """Whether commands run in a box."""
        return self.selected is not None

    @property
    def problem(self) -> str:
        """Why no box can be made here; empty when one can."""
        problems = [box.problem for box in self.sandboxes]
        return "; ".join(problems) if all(problems) else ""

    @property
    def refusal(self) -> str:
        """Why no command may run at all: the operator wants a box and none can be made. Empty when they may."""
        if self.mode in ("auto", "off") or self.works:
            return ""
        what = "enable hermes-exec.socket" if self.mode == "systemd" else "install bubblewrap and allow user namespaces"
        return (
            f"no sandbox can be made: {self.problem}. `terminal.sandbox: {self.mode}` runs nothing without one; {what},"
            " or set it to `auto`, which asks for each command"
        )
