"""The line that each connection leaves in the log."""

from __future__ import annotations

import logging

__all__ = ["log_connection"]

logger = logging.getLogger(__name__)


def log_connection(
    session: str, tool: str, host: str, port: int, verdict: str, moved: tuple[int, int] | None = None
) -> None:
    """Note a connection; `moved` are the bytes that were sent and received, where they are known."""
    sizes = "" if moved is None else f" sent={moved[0]} received={moved[1]}"
    logger.info("network: session=%s tool=%s host=%s port=%d%s verdict=%s", session, tool, host, port, sizes, verdict)
