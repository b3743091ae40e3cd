"""Servers of the Model Context Protocol that the config names, and their tools. Source: plugin contract §9.1."""
