"""Upstream's package of tools."""
