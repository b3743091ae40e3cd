"""What each `register_*` of a plugin's context does, a module for each family of extensions.

Their arguments and what they raise stand with the methods of `plugins.context.PluginContext`.
"""

from hermes_agent.plugins.registering.registrant import Registration

__all__ = ["Registration"]
