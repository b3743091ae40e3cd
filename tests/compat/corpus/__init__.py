"""Published plugins, run here and compared with what the peer did with them: `make compat`."""
