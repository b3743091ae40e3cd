"""The border to the operating system: files, locks, processes, sockets and outgoing HTTP."""
