"""What confines a local command: mounts, sockets, limits, system calls and the rules for files."""
