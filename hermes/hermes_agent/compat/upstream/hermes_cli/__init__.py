"""Upstream's command-line package; its version is the level of the plugin contract."""

__version__ = "0.19.0"
