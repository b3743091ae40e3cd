"""Scheduled jobs: when each is due, what it does, what came of it."""

from hermes_agent.cron.clock import Clock
from hermes_agent.cron.jobs import Job, Outcome, Run
from hermes_agent.cron.schedule import Schedule, parse_schedule
from hermes_agent.cron.store import SCHEMA, JobStore

__all__ = ["SCHEMA", "Clock", "Job", "JobStore", "Outcome", "Run", "Schedule", "parse_schedule"]
