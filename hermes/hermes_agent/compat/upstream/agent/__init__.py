"""Upstream's package of what the agent is made of."""
