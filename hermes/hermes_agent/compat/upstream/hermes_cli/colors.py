"""Colours of a terminal. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.prompts import Colors as Colors
from hermes_agent.compat.prompts import color as color
