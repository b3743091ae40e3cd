"""The scheduler that a plugin may bring. Source: plugin contract §8.10."""

from hermes_agent.contracts.cron_scheduler import CronScheduler as CronScheduler
