"""The object graph of one process: built here, passed on as arguments everywhere else."""

from hermes_agent.host.graph import Host, current, standing_in

__all__ = ["Host", "current", "standing_in"]
