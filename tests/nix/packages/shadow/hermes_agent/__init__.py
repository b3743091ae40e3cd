"""Would be imported instead of the agent."""
