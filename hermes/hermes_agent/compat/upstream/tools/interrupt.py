"""Was this call told to stop? Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.loops import is_interrupted as is_interrupted
