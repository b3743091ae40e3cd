"""Locks and processes. Source: plugin contract §11.2, §11.3."""

from hermes_agent.contracts.platform.locks import acquire_scoped_lock as acquire_scoped_lock
from hermes_agent.contracts.platform.locks import get_process_start_time as get_process_start_time
from hermes_agent.contracts.platform.locks import pid_exists as _pid_exists
from hermes_agent.contracts.platform.locks import read_process_cmdline as _read_process_cmdline
from hermes_agent.contracts.platform.locks import release_scoped_lock as release_scoped_lock

__all__ = [
    "_pid_exists",
    "_read_process_cmdline",
    "acquire_scoped_lock",
    "get_process_start_time",
    "release_scoped_lock",
]
