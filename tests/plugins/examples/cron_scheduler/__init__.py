"""Looks every `interval` seconds, and counts how often it did."""

from cron.scheduler_provider import CronScheduler


class Clock(CronScheduler):
    """A clock."""

    def __init__(self):
        self.looks = 0
        self.fired = []

    @property
    def name(self):
        return "example-clock"

    def start(self, stop_event, *, adapters=None, loop=None, interval=60):
        while not stop_event.is_set():
            self.looks += 1
            stop_event.wait(interval)

    def fire_due(self, job_id, *, adapters=None, loop=None):
        self.fired.append(job_id)
        return True


def register(ctx):
    ctx.register_cron_scheduler(Clock())
