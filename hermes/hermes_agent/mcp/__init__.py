"""MCP servers of the config, and their tools. Source: plugin contract §9.1."""
