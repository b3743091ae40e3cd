"""Limits of an adapter's HTTP client. Source: plugin contract §11.2."""

from hermes_agent.compat.gateway_names import platform_httpx_limits as platform_httpx_limits
