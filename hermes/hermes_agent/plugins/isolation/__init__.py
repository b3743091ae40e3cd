"""Plugins in a process of their own: `plugins.isolation: host`. Source: plugin contract of 0.23 §2.7."""
