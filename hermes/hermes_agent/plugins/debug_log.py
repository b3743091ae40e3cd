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
    debug = is_on(environ.get("HERMES_PLUGINS_DEBUG"))
    log = logging.getLogger("hermes_agent.plugins" if debug else "hermes_agent")
    if log.handlers:
        return
    if debug:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[plugins] %(levelname)s %(message)s"))
        log.setLevel(logging.DEBUG)
    else:
        handler = logging.NullHandler()  # without any handler Python prints warnings to stderr
    log.addHandler(handler)
