"""Public test kit for plugin authors: load a plugin into a new host, call it, check what it does.

Documented in `docs/plugins/testing.md`. Names are imported on first use, since pytest loads `testing.pytest_plugin`
wherever this package is installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.testing.environment import install_direct_loop as install_direct_loop
    from hermes_agent.testing.host import Answer as Answer
    from hermes_agent.testing.host import CliOutcome as CliOutcome
    from hermes_agent.testing.host import PluginHost as PluginHost
    from hermes_agent.testing.open_host import plugin_host as plugin_host
    from hermes_agent.testing.scripted_model import ModelFailure as ModelFailure
    from hermes_agent.testing.scripted_model import ScriptedModel as ScriptedModel
    from hermes_agent.testing.scripted_model import call as call
    from hermes_agent.testing.scripted_model import served as served

_WHERE = {
    "Answer": "host",
    "CliOutcome": "host",
    "ModelFailure": "scripted_model",
    "PluginHost": "host",
    "ScriptedModel": "scripted_model",
    "call": "scripted_model",
    "install_direct_loop": "environment",
    "plugin_host": "open_host",
    "served": "scripted_model",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"hermes_agent.testing.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
