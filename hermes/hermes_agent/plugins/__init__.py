"""Plugins: discovery, manifests, activation, grants, loading and registrations.

`discovery` and `activation` load little, for `hermes plugins list`; `closure` needs the standard library alone, for the
Nix gate. For this reason the package imports nothing until a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_agent.plugins.manager import PluginManager as PluginManager


def __getattr__(name: str) -> object:
    if name == "PluginManager":
        from hermes_agent.plugins.manager import PluginManager  # the tool pipeline, asyncio: too much for a listing

        return PluginManager
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
