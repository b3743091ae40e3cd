"""Cron scheduler: decides when scheduled jobs are due.

A process uses one, selected by `cron.provider`; the default is the built-in scheduler. Source: plugin contract §8.10.
"""

# ruff: noqa: B027 - optional methods do nothing by default

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
    """A scheduler that starts jobs when they are due."""

    run_due: Callable[[str], bool] | None = None
    """Start the job with that id unless it is running; return whether it started. The agent sets it before `start`."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name that selects it in `cron.provider`."""

    def is_available(self) -> bool:
        """Return whether it can be used now, without a network request."""
        return True

    @abc.abstractmethod
    def start(self, stop_event: threading.Event, *, adapters: Any = None, loop: Any = None, interval: int = 60) -> None:
        """Run until `stop_event` is set, in a thread of its own.

        Args:
            adapters: the platforms' adapters, by name.
            loop: the event loop on which they run.
            interval: seconds between two checks.
        """

    def stop(self) -> None:
        """Handle the end of the process."""

    def on_jobs_changed(self) -> None:
        """Handle an added, changed or removed job."""

    def register_job(self, job: Mapping[str, Any]) -> None:
        """Handle an added or changed job: `id`, `name`, `schedule`, `prompt`, `enabled` and `next_run_at`."""

    @property
    def supports_force_fire(self) -> bool:
        """Whether `claim_fire` claims a paused job with `force`; the agent's own requests need none."""
        return False

    def recover_interrupted(self) -> int:
        """Recover the jobs that the previous process interrupted; return their number."""
        return 0

    def fire_due(
        self, job_id: str, *, adapters: Any = None, loop: Any = None, force: bool = False, manual: bool = False
    ) -> bool:
        """Run a job that is due; return whether it ran."""
        claimed = self.claim_fire(job_id, force=force, manual=manual)
        return claimed is not None and self.fire_claimed(claimed, adapters=adapters, loop=loop)

    def claim_fire(self, job_id: str, *, force: bool = False, manual: bool = False) -> dict[str, Any] | None:
        """Return the job for `fire_claimed`, or None if nothing runs jobs; the agent itself claims it durably."""
        return None if self.run_due is None else {"id": job_id, "force": force, "manual": manual}

    def fire_claimed(
        self, claimed_job: Mapping[str, Any], *, adapters: Any = None, loop: Any = None, cancel_event: Any = None
    ) -> bool:
        """Run a claimed job; return whether it ran."""
        is_cancelled = cancel_event is not None and cancel_event.is_set()
        return not is_cancelled and self.run_due is not None and self.run_due(str(claimed_job["id"]))

    def reconcile(self) -> None:
        """Compare the plan of an external scheduler with the jobs."""


def choose_cron_scheduler(
    schedulers: Mapping[str, CronScheduler], values: Mapping[str, Any]
) -> SelectedProvider[CronScheduler]:
    """Return the scheduler that the config names, or None for the built-in one."""
    path = "cron.provider"
    name = read_setting(values, path)
    if not name:
        return SelectedProvider(None, f"{path} is not set: the built-in scheduler")
    if name not in schedulers:
        return SelectedProvider(None, f"{describe_unregistered(path, name, 'cron')} The built-in scheduler is used.")
    if not is_provider_available(schedulers[name]):
        return SelectedProvider(None, f"{path} names `{name}`, which is not available. The built-in scheduler is used.")
    return SelectedProvider(schedulers[name], f"{path} names it")
