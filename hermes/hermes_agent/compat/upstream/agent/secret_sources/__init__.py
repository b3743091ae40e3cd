"""Upstream's package of secret stores."""
