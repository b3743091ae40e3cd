"""Coroutines on other loops. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.loops import consume_detached_task_result as consume_detached_task_result
from hermes_agent.compat.loops import safe_schedule_threadsafe as safe_schedule_threadsafe
