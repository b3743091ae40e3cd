"""What the gateway answers with. Source: plugin contract §11.1."""

from hermes_agent.compat.gateway_names import gateway_model as _resolve_gateway_model
from hermes_agent.compat.gateway_names import runtime_agent_arguments as _resolve_runtime_agent_kwargs
from hermes_agent.compat.settings import cfg_get as cfg_get
from hermes_agent.compat.settings import load_config as _load_gateway_config

__all__ = ["_load_gateway_config", "_resolve_gateway_model", "_resolve_runtime_agent_kwargs", "cfg_get"]
