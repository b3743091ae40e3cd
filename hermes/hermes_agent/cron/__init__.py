"""Scheduled jobs: their schedules, their store, and the scheduler that runs them."""

from hermes_agent.cron.job_store import SCHEMA, JobStore
from hermes_agent.cron.jobs import Job, JobOutcome, JobRun
from hermes_agent.cron.schedule import Schedule, parse_schedule
from hermes_agent.cron.scheduler import JobScheduler

__all__ = ["SCHEMA", "JobScheduler", "Job", "JobStore", "JobOutcome", "JobRun", "Schedule", "parse_schedule"]
