"""The console, the interactive terminal of `hermes`, and the answer to one question."""
