"""Which hosts commands and tools may reach: one table for all of them (`network` in the config)."""

from hermes_agent.policy.network.backends import explain_unruled
from hermes_agent.policy.network.hosts import HostEntry, InvalidHost, format_entry, is_address, parse_entry, parse_host
from hermes_agent.policy.network.journal import log_connection
from hermes_agent.policy.network.table import GROUP, MODES, HostTable, HostTables, HostVerdict, Mode

__all__ = [
    "GROUP",
    "MODES",
    "HostEntry",
    "InvalidHost",
    "Mode",
    "HostVerdict",
    "HostTable",
    "HostTables",
    "parse_entry",
    "format_entry",
    "is_address",
    "log_connection",
    "parse_host",
    "explain_unruled",
]
