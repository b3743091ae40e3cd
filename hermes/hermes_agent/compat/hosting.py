"""The host behind upstream's module-level names."""

from __future__ import annotations

import os

from hermes_agent.host import Host, current

__all__ = ["allow_building", "host"]

_may_build = False


def allow_building() -> None:
    """Let the first use of a name build a host: in a script of its own, nobody else does."""
    global _may_build
    _may_build = True


def host() -> Host:
    """Return the process's host.

    Raises:
        RuntimeError: there is none, and a script may not build one.
    """
    try:
        return current()
    except RuntimeError:
        if not _may_build:
            raise
    built = Host.build()
    built.credentials.export(os.environ)
    return built
