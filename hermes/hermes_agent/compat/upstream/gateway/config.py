"""What the config says of platforms. Source: plugin contract §8.2.1, §11.2."""

from hermes_agent.compat.gateway_names import load_gateway_config as load_gateway_config
from hermes_agent.contracts.platform.enabling import GatewayConfig as GatewayConfig
from hermes_agent.contracts.platform.names import Platform as Platform
from hermes_agent.contracts.platform.settings import HomeChannel as HomeChannel
from hermes_agent.contracts.platform.settings import PlatformConfig as PlatformConfig
