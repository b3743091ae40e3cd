"""Writing and reading the log."""
