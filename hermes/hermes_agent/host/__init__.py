"""The object graph of one process: built here, passed on as arguments everywhere else."""

from hermes_agent.host.host import Host, current, use_host

__all__ = ["Host", "current", "use_host"]
