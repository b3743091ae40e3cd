"""What every front door does first: build the host, configure the log, serve upstream's names, load the plugins."""

from __future__ import annotations

import logging

from hermes_agent.compat import import_hook
from hermes_agent.config.effective import write_effective
from hermes_agent.host import Host
from hermes_agent.host.prices import unpriced_models
from hermes_agent.plugins.threads import watch_threads
from hermes_agent.service.logs import LogMode, configure_logging

__all__ = ["start_host"]

logger = logging.getLogger(__name__)


def start_host(mode: LogMode = "terminal", *, log_level: str | None = None) -> Host:
    """Return a host with its plugins loaded.

    Args:
        mode: where the log goes.
        log_level: None means what the config says.

    Raises:
        ConfigError: a setting is wrong.
    """
    host = Host.build()
    configure_logging(host.config, home=host.home, mode=mode, level_name=log_level)
    write_effective(host.config)
    for warning in host.credentials.warnings():
        logger.warning("%s", warning)
    import_hook.install()
    watch_threads(lambda: host.plugins.suspects, host.account.fault)
    host.load_plugins()
    for sentence in unpriced_models(host):
        logger.warning("%s", sentence)
    return host
