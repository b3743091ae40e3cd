"""Entry points: the command line, the daemon, and the administration of plugins."""
