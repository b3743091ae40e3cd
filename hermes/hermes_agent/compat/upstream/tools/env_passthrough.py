"""Variables for commands. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.variables import register_env_passthrough as register_env_passthrough
