"""The workspace: file tools, commands and their backends, sandbox, checkpoints."""
