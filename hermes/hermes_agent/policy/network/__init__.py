"""Which hosts commands and tools may reach: one table for all of them (`network` in the config)."""

from hermes_agent.policy.network.backends import unruled
from hermes_agent.policy.network.hosts import Entry, InvalidHost, entry_of, entry_text, is_address, parsed_host
from hermes_agent.policy.network.journal import journal
from hermes_agent.policy.network.table import GROUP, MODES, Mode, Rule, Table, Tables

__all__ = [
    "GROUP",
    "MODES",
    "Entry",
    "InvalidHost",
    "Mode",
    "Rule",
    "Table",
    "Tables",
    "entry_of",
    "entry_text",
    "is_address",
    "journal",
    "parsed_host",
    "unruled",
]
