"""Where memories lie. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.paths import get_memory_dir as get_memory_dir
