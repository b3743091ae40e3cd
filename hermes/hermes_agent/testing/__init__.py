"""For who writes plugins: load one into a host of its own, call it, and see what it does. `docs/plugins/testing.md`.

Nothing is imported here before it is asked for: pytest loads `testing.pytest_plugin` wherever this package is
installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.testing.hosted import Answer as Answer
    from hermes_agent.testing.hosted import CliOutcome as CliOutcome
    from hermes_agent.testing.hosted import PluginHost as PluginHost
    from hermes_agent.testing.model import ModelFailure as ModelFailure
    from hermes_agent.testing.model import ScriptedModel as ScriptedModel
    from hermes_agent.testing.model import call as call
    from hermes_agent.testing.opening import plugin_host as plugin_host
    from hermes_agent.testing.wire import served as served

_WHERE = {
    "Answer": "hosted",
    "CliOutcome": "hosted",
    "ModelFailure": "model",
    "PluginHost": "hosted",
    "ScriptedModel": "model",
    "call": "model",
    "plugin_host": "opening",
    "served": "wire",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"hermes_agent.testing.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
