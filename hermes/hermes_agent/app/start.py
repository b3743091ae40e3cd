"""What every front door does first: serve upstream's names, build the host, configure the log, load the plugins."""

from __future__ import annotations

from hermes_agent.compat import import_hook
from hermes_agent.host import Host
from hermes_agent.service import configure_logging

__all__ = ["start_host"]


def start_host(*, quiet: bool = False, mode: str = "terminal") -> Host:
    """Return a host with its plugins loaded.

    Args:
        quiet: unused front-door chatter is left out of the log's terminal side.
        mode: `terminal` or `daemon`: where the log goes.

    Raises:
        ConfigError: a setting is wrong.
    """
    host = Host.build()
    configure_logging(host.config, mode=mode)
    import_hook.install()
    host.load_plugins()
    return host
