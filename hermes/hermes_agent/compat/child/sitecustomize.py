"""Start of a Python process of a plugin: upstream's names are found there when nothing else has them.

The agent puts this folder into PYTHONPATH (`import_hook.install`), so that Python imports this module at its start. It
imports nothing of the agent before a script asks for one of the names.
"""

from __future__ import annotations

import sys
from _frozen_importlib_external import PathFinder  # loaded already, unlike importlib.machinery

TYPE_CHECKING = False  # that of `typing` would be a slow import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

NAMES = frozenset(
    (
        *("agent", "cron", "gateway", "hermes_cli", "hermes_constants", "hermes_state", "hermes_state_common"),
        *("hermes_state_sessions", "hermes_yaml", "model_tools", "plugins", "providers", "run_agent", "tools"),
        *("toolsets", "utils"),
    )
)
"""Upstream's top-level names (`import_hook.RESERVED`)."""


class LateFinder:
    """The last finder: it makes way for the agent's when one of the names is asked for."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a name that the agent serves; None for others, or if the agent is not installed."""
        if fullname.partition(".")[0] not in NAMES:
            return None
        sys.meta_path.remove(LateFinder)
        try:
            from hermes_agent.compat.import_hook import find_in_child
        except ImportError:
            return None
        return find_in_child(fullname, path)


def import_other() -> None:
    """Import the `sitecustomize` that this one hides, if there is one."""
    here = __file__.rpartition("/")[0]
    spec = PathFinder.find_spec("sitecustomize", [place for place in sys.path if place != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(type(sys)("sitecustomize"))


sys.meta_path.append(LateFinder)
import_other()
