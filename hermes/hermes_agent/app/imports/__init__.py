"""The import of a home of another program: upstream's, or OpenClaw's."""
