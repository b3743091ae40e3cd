"""Plugins in folders of repositories: run in the published program and here, and compared."""
