"""Scheduled jobs. Source: plugin contract §11.2."""

from hermes_agent.compat.scheduled_jobs import get_job as get_job
from hermes_agent.compat.scheduled_jobs import load_jobs as load_jobs
