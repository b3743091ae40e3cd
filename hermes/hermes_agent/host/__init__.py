"""The host builds the objects of one process; all other packages get them as arguments."""

from hermes_agent.host.host import Host, current, use_host

__all__ = ["Host", "current", "use_host"]
