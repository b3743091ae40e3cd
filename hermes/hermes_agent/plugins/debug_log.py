"""Where the loader's log goes in commands that configure no log: nowhere, or, with HERMES_PLUGINS_DEBUG=1, to stderr.

Source of the format: plugin contract §1.10. The variable is read at each call.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from hermes_agent.plugins.discovery import is_on

__all__ = ["quiet_or_debug"]


def quiet_or_debug(environ: Mapping[str, str]) -> None:
    """Keep the package's log out of the command's output, unless somebody debugs plugins."""
    log = logging.getLogger("hermes_agent")
    if is_on(environ.get("HERMES_PLUGINS_DEBUG")):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[plugins] %(levelname)s %(message)s"))
        plugins = logging.getLogger("hermes_agent.plugins")
        plugins.addHandler(handler)
        plugins.setLevel(logging.DEBUG)
        plugins.propagate = False
    elif not log.handlers:
        log.addHandler(logging.NullHandler())  # without any handler Python prints warnings to stderr
        log.propagate = False
