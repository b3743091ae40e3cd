"""Memory: the agent's own notes, and the memory provider of the config."""
