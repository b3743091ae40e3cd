"""Terminal environments of plugins. Source: `hermes_agent.contracts.terminal_env`."""

from hermes_agent.contracts.terminal_env import TerminalEnvironmentProvider as TerminalEnvironmentProvider
