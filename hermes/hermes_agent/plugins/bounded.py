"""Load one plugin within its time, wherever it is loaded from. Source of the limit: `plugins.load_timeout_s`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.owner import Owner, StandIn
from hermes_agent.io.alarm import Overran, can_interrupt, interrupted_after
from hermes_agent.io.bridge import Bridge
from hermes_agent.io.steps import OVERRAN, Step, Steps
from hermes_agent.plugins.loader import LoadFailed, load, overran_text
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["load_within"]


def load_within(
    limit_s: float, bridge: Bridge, manifest: PluginManifest, ctx: object, owner: Owner, stores: StandIn | None
) -> Any:
    """Do what `loader.load` does, for at most `limit_s` seconds.

    In the main thread the plugin is interrupted. Elsewhere it is left behind with its thread: what it registers from
    then on must be of no effect, which is the caller's matter (`Staging`).

    Raises:
        LoadFailed: also when the time is over.
    """
    if can_interrupt():
        try:
            with interrupted_after(limit_s):
                return load(manifest, ctx, owner, stores)
        except Overran as exc:  # it came when all was done but for the return
            raise LoadFailed(manifest.key, overran_text(exc.limit_s)) from exc
    loaded = bridge.run_steps_here(_steps(limit_s, manifest.key, lambda: load(manifest, ctx, owner, stores)))
    if loaded is OVERRAN:
        raise LoadFailed(manifest.key, overran_text(limit_s))
    return loaded


def _steps(limit_s: float, key: str, call: Callable[[], Any]) -> Steps[Any]:
    return (yield Step(lambda until: call(), limit_s, f"loading plugin {key}"))
