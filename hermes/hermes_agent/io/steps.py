"""Work that goes on when a call that it makes does not return.

The work is a generator that yields a `DeadlineStep` for each call of somebody else's code. While that call runs the generator
is suspended, so that another thread can go on with it and leave the call behind. `io.bridge` brings the threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

__all__ = ["OVERRUN", "DeadlineStep", "Steps", "StepWalk"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

OVERRUN: Final = object()
"""What the generator is sent in place of an answer when a step was not done at its deadline."""


class DeadlineStep(NamedTuple):
    """A call that may hang."""

    call: Callable[[], Any]
    """Its answer is sent into the generator."""
    deadline_s: float
    name: str
    """What runs, for the log."""
    quiet: bool = False
    """Whether a late end goes without a line in the log: it goes on by itself, and whoever runs it tells of it."""


Steps: TypeAlias = Generator[DeadlineStep, Any, T]


class StepWalk(Generic[T]):
    """The way through a generator of steps: one thread walks, another one watches the clock.

    Whoever takes the running step first goes on with the generator: the walker when the call returned, the watcher when
    it is overdue. The other one finds it taken and leaves the generator alone.
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._running: tuple[DeadlineStep, float] | None = None
        """The step that runs and when it must be done."""
        self._lock = threading.Lock()

    def run(self, answer: Any = None) -> T | None:
        """Walk to the end in this thread and return the generator's result; None when a step was taken away.

        Args:
            answer: what the last step came to; None at the start.
        """
        while True:
            try:
                step = self._steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            until = time.monotonic() + step.deadline_s
            running = self._running = (step, until)
            try:
                answer = step.call()
            finally:
                taken = not self._take(running)
            if taken:
                level = logging.DEBUG if step.quiet else logging.INFO
                logger.log(level, "%s ended after its deadline; its answer is dropped", step.name)
                return None
            if time.monotonic() >= until:  # nobody happened to look: the clock decides all the same
                answer = OVERRUN

    def take_overdue(self) -> bool:
        """Take the running step away if it is overdue; when true, `go(OVERRAN)` in another thread goes on."""
        running = self._running
        return running is not None and time.monotonic() >= running[1] and self._take(running)

    def next_check_s(self, shortest_s: float) -> float:
        """Return after how many seconds to ask `overran` so that no step is missed.

        Args:
            shortest_s: the shortest deadline of a step: one that begins now is not overdue before.
        """
        running = self._running
        return shortest_s if running is None else min(shortest_s, max(0.0, running[1] - time.monotonic()))

    def _take(self, running: tuple[DeadlineStep, float]) -> bool:
        with self._lock:
            if self._running is not running:
                return False
            self._running = None
            return True
