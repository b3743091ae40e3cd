"""Where a tool's backend is reached. Source: plugin contract §11.1."""

from hermes_agent.compat.tool_backends import fal_key_is_configured as fal_key_is_configured
from hermes_agent.compat.tool_backends import managed_nous_tools_enabled as managed_nous_tools_enabled
from hermes_agent.compat.tool_backends import prefers_gateway as prefers_gateway
