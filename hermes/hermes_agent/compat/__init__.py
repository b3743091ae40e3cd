"""Upstream's import names, served without anything of theirs on disk: `import_hook.install()` before plugins load."""

__all__ = ["CONTRACT_LEVEL"]

CONTRACT_LEVEL = "0.19.0"
"""The version that plugins see, `hermes_cli.__version__`."""
