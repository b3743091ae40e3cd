"""Upstream's package of bundled plugins; what is served is what others import from it."""
