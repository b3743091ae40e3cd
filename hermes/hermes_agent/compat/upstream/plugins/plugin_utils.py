"""A value that is made once. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.loops import SingletonSlot as SingletonSlot
