"""How many files and connections this process may have open."""

from __future__ import annotations

import logging
import resource

__all__ = ["raise_file_limit", "limit_connections"]

logger = logging.getLogger(__name__)

ENOUGH = 65536
"""Where the hard limit is millions, programs that close every descriptor that they could have take minutes to start."""


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one (at most `ENOUGH`), and return what holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as exc:
        logger.warning("the limit of open files stays at %d: %s", soft, exc)
        return soft
    return wanted


def limit_connections(connections: int) -> int:
    """Return how many of so many connections may be open: the other half of the descriptors is for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or connections <= soft // 2:
        return connections
    logger.warning(
        "http: at most %d connections instead of %d (server.max_connections): the limit of open files is %d; "
        "raise LimitNOFILE= in the unit, or `ulimit -Hn`",
        *(max(1, soft // 2), connections, soft),
    )
    return max(1, soft // 2)
