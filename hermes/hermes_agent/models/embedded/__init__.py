"""The embedded model: local weights that answer without a key, from a child process of this machine.

`adapter` retells a conversation for a small model and `provider` asks it; `server` starts the process that `child`
is; `pull` brings the weights that `weights` pins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_agent.models.embedded.availability import (
    PINS,
    LocalModelAvailability,
    check_availability,
    missing_model_error,
)
from hermes_agent.models.request import ModelClient

__all__ = ["PINS", "LocalModelAvailability", "check_availability", "make_client", "missing_model_error"]


def make_client(local: Mapping[str, Any] | None = None, model: str = "") -> ModelClient:
    """Return a client of the embedded model; its process starts with the first request.

    Args:
        local: the block `model.local` of the configuration (`path`, `context_length`, `threads`, `idle_unload_s`).
        model: name of pinned weights; empty takes the first that were pulled.
    """
    from hermes_agent.models.embedded.client import LocalModelClient  # asyncio: `hermes model list` needs none of it
    from hermes_agent.models.embedded.server import LocalServerSettings

    given = local or {}
    there = check_availability(given, model)
    defaults = LocalServerSettings(there.path, there.model)
    return LocalModelClient(
        LocalServerSettings(
            path=there.path,
            alias=there.model,
            threads=given.get("threads") or defaults.threads,
            context_length=given.get("context_length") or defaults.context_length,
            idle_unload_s=given.get("idle_unload_s", defaults.idle_unload_s),
        )
    )
