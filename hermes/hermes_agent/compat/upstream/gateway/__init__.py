"""Upstream's package of the chat gateway."""
