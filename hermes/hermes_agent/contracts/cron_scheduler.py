"""Cron scheduler: says when scheduled jobs are due. Source: plugin contract §8.10.

One is used, selected by `cron.provider`; without one the agent's own clock does it.
"""

# ruff: noqa: B027 - a method that a scheduler may leave out does nothing

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hermes_agent.contracts.kind import (
    Kind,
    SelectedProvider,
    describe_unregistered,
    is_provider_available,
    read_setting,
)

__all__ = ["CRON_SCHEDULER", "CronScheduler", "choose_cron_scheduler"]

CRON_SCHEDULER = Kind("cron_scheduler", "register_cron_scheduler", "cron scheduler", is_used=True)


class CronScheduler(abc.ABC):
    """Wakes up when a job is due."""

    run_due: Callable[[str], bool] | None = None
    """Set by the agent before `start`: begins the job of that id if it does not run yet; says whether it did."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What the config calls it."""

    def is_available(self) -> bool:
        """Say whether it could be used now; without asking the network."""
        return True

    @abc.abstractmethod
    def start(self, stop_event: threading.Event, *, adapters: Any = None, loop: Any = None, interval: int = 60) -> None:
        """Work until `stop_event` is set; in a thread of its own.

        Args:
            adapters: the chat platforms, by name.
            loop: the event loop that they run on.
            interval: seconds between two looks.
        """

    def stop(self) -> None:
        """The process ends."""

    def on_jobs_changed(self) -> None:
        """A job was added, changed or removed."""

    def recover_interrupted(self) -> int:
        """Take care of the jobs that the last process left in the middle; return how many there were."""
        return 0

    def fire_due(self, job_id: str, *, adapters: Any = None, loop: Any = None) -> bool:
        """Run a job that is due; return whether it ran."""
        return self.run_due is not None and self.run_due(job_id)

    def reconcile(self) -> None:
        """Compare what is planned elsewhere with the jobs."""


def choose_cron_scheduler(
    schedulers: Mapping[str, CronScheduler], values: Mapping[str, Any]
) -> SelectedProvider[CronScheduler]:
    """Return the scheduler that the config names; None is the agent's own."""
    path = "cron.provider"
    name = read_setting(values, path)
    if not name:
        return SelectedProvider(None, f"{path} is not set: the agent's own scheduler")
    if name not in schedulers:
        return SelectedProvider(None, f"{describe_unregistered(path, name, 'cron')} The agent's own scheduler is used.")
    if not is_provider_available(schedulers[name]):
        return SelectedProvider(
            None, f"{path} names `{name}`, which is not available. The agent's own scheduler is used."
        )
    return SelectedProvider(schedulers[name], f"{path} names it")
