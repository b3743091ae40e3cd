"""Upstream's module functions over the gateway. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.compat.hosting import host
from hermes_agent.compat.settings import load_config
from hermes_agent.contracts.platform.enabling import GatewayConfig, gateway_config
from hermes_agent.contracts.platform.registry import PlatformRegistry
from hermes_agent.core.errors import UserError

if TYPE_CHECKING:
    import httpx

__all__ = [
    "gateway_model",
    "load_gateway_config",
    "platform_httpx_limits",
    "runtime_agent_arguments",
    "the_platform_registry",
]

logger = logging.getLogger(__name__)

KEEPALIVE_S = 2.0
"""Shorter than what servers allow, so that no request goes into a connection that is just being closed."""


def load_gateway_config() -> GatewayConfig:
    """Return the gateway's settings: config, environment and what the registered platforms say of themselves."""
    return gateway_config(load_config(), host().platforms)


def gateway_model(config: Mapping[str, Any] | None = None) -> str:
    """Return the name of the model that answers in chats; empty when there is none to be had.

    Args:
        config: a config whose block `model` takes the place of the one in effect.
    """
    try:
        return host().select_model(settings=None if config is None else _model_block(config)).model
    except UserError as exc:
        logger.info("no model can be had: %s", exc)
        return ""


def runtime_agent_arguments() -> dict[str, Any]:
    """Return what `AIAgent` is made with, beside `model`, to answer as the configured model does.

    `provider` names the endpoint. `api_key` and `base_url` are there and None: plugins are not given them, and
    `AIAgent` takes both from the config itself.

    Raises:
        UserError: no model can be had.
    """
    return {
        "provider": host().select_model().provider,
        "api_key": None,
        "base_url": None,
        "api_mode": None,
        "command": None,
        "args": [],
    }


def _model_block(config: Mapping[str, Any]) -> Mapping[str, Any]:
    block = config.get("model")
    return block if isinstance(block, Mapping) else {"default": block or ""}


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
