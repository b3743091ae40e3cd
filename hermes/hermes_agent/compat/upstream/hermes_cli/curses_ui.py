"""Choosing from a list. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.prompts import curses_radiolist as curses_radiolist
