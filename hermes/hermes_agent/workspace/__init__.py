"""The place where tools act: reading, writing and searching files, and running commands."""
