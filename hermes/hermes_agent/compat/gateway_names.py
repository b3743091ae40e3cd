"""Upstream's module functions over the gateway. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.compat.hosting import host
from hermes_agent.compat.settings import load_config
from hermes_agent.contracts.platform.enabling import GatewayConfig, gateway_config
from hermes_agent.contracts.platform.registry import PlatformRegistry

if TYPE_CHECKING:
    import httpx

__all__ = ["load_gateway_config", "platform_httpx_limits", "the_platform_registry"]

KEEPALIVE_S = 2.0
"""Shorter than what servers allow, so that no request goes into a connection that is just being closed."""


def load_gateway_config() -> GatewayConfig:
    """Return the gateway's settings: config, environment and what the registered platforms say of themselves."""
    return gateway_config(load_config(), host().platforms)


def the_platform_registry() -> PlatformRegistry:
    """Return the host's own registry: what is patched on it is patched for the agent."""
    return host().platforms


def platform_httpx_limits() -> httpx.Limits | None:
    """Return limits for an adapter's HTTP client; None where httpx is not installed."""
    try:
        import httpx  # 60 ms, and most processes need none
    except ImportError:
        return None
    return httpx.Limits(max_connections=100, max_keepalive_connections=10, keepalive_expiry=KEEPALIVE_S)
