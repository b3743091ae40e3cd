"""Memory: notes of the agent's own, and the provider that the operator chose."""
