"""Upstream's questions on where a tool's backend is reached. Source: plugin contract §11.1."""

from __future__ import annotations

from typing import Any

from hermes_agent.compat.settings import cfg_get, get_env_value, load_config_readonly
from hermes_agent.core.errors import ConfigError

__all__ = ["fal_key_is_configured", "managed_nous_tools_enabled", "prefers_gateway"]

FAL_KEY = "FAL_KEY"
YES = frozenset({"1", "true", "yes", "on"})


def prefers_gateway(config_section: str) -> bool:
    """Say whether `<config_section>.use_gateway` of the config is on; False while the config cannot be read."""
    try:
        wish = cfg_get(load_config_readonly(), config_section, "use_gateway", default=False)
    except ConfigError:
        return False
    return str(wish).strip().lower() in YES


def fal_key_is_configured() -> bool:
    """Say whether there is a key for FAL, wherever credentials are looked up."""
    return bool((get_env_value(FAL_KEY) or "").strip())


def managed_nous_tools_enabled(**options: Any) -> bool:
    """Say whether tools can be reached through upstream's paid gateway: never, this release has no client of it."""
    return False
