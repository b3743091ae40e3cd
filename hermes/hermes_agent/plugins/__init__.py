"""Plugins: where they lie, what they say about themselves, which of them run, and what they register.

`discovery` and `gate` are light (`hermes plugins list`), `closure` needs the standard library alone (the Nix gate), so
nothing is imported here before it is asked for.
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
