"""Memory plugins. Source: plugin contract §1.14, §11.1."""

from hermes_agent.compat.memory_names import find_provider_dir as find_provider_dir
