"""The bundled plugin of the embedded model, for tests: the names of its modules, and the services that it gets."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hermes_agent.contracts.model_client import ClientServices
from hermes_agent.models.client_profiles import client_services
from hermes_agent.system.installation import bundled_plugin

PLUGIN = bundled_plugin("model-providers", "local")
LOAD = (
    "from hermes_agent.system.installation import bundled_plugin; bundled_plugin('model-providers', 'local');"
    f"from {PLUGIN.__name__} import availability, download, server, sources, weights;"
)
"""Python source that imports its modules, for a test's own process."""
_MODULES = (
    "answer_check",
    "availability",
    "call_arguments",
    "client",
    "commands",
    "download",
    "gguf",
    "prompt",
    "prompt_examples",
    "question_steps",
    "repetition",
    "server",
    "sources",
    "template_request",
    "tool_choice",
    "tool_menu",
    "weights",
)


def __getattr__(name: str) -> Any:
    modules = [import_module(f"{PLUGIN.__name__}.{module}") for module in _MODULES]
    found = [getattr(module, name) for module in modules if hasattr(module, name)]
    if not found:
        raise AttributeError(name)
    assert all(each is found[0] for each in found), f"{name} has several meanings in the plugin"
    return found[0]


def services(local: dict[str, Any] | None = None, model: str = "", *, is_selected: bool = True) -> ClientServices:
    """Return what the plugin gets where the config has this block `model.local`."""
    return client_services(PLUGIN.PROFILE, {"local": local or {}}, model=model, is_selected=is_selected)
