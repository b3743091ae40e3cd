"""What each `register_*` of a plugin's context does, a module for each family of extensions."""

from hermes_agent.plugins.registering.registrant import Registrant

__all__ = ["Registrant"]
