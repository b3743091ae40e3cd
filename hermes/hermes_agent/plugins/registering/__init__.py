"""What each `register_*` of a plugin's context does, a module per kind of extension."""

from hermes_agent.plugins.registering.registrant import Registrant

__all__ = ["Registrant"]
