"""The sandbox of local commands: mounts, sockets, limits, system calls, file rules, steering files."""
