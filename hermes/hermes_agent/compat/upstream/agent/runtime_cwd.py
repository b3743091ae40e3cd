"""Where the conversation works. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.guarded_files import resolve_agent_cwd as resolve_agent_cwd
