"""Fetched secrets, kept for a while. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.secrets import CachedFetch as CachedFetch
from hermes_agent.compat.secrets import DiskCache as DiskCache
