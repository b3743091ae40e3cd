"""Upstream's import names, served by `import_hook.install()` without files of those names."""

__all__ = ["CONTRACT_LEVEL"]

CONTRACT_LEVEL = "0.19.0"
"""The version that plugins see as `hermes_cli.__version__`."""
