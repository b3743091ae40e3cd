"""Slash commands that wait for a word. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.answers import confirms as _confirms

clear = _confirms.clear
get_pending = _confirms.get_pending
register = _confirms.register
resolve = _confirms.resolve
