"""Processes on other systems. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.variables import windows_detach_popen_kwargs as windows_detach_popen_kwargs
from hermes_agent.compat.variables import windows_hide_flags as windows_hide_flags
