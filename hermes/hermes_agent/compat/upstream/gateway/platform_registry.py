"""The registry of platforms: `platform_registry` is the host's own object. Source: plugin contract §8.2.1."""

from typing import TYPE_CHECKING

from hermes_agent.compat.gateway_names import the_platform_registry as _the_platform_registry
from hermes_agent.contracts.platform.entry import PlatformEntry as PlatformEntry
from hermes_agent.contracts.platform.registry import PlatformRegistry as PlatformRegistry

if TYPE_CHECKING:
    platform_registry: PlatformRegistry


def __getattr__(name: str) -> object:
    if name == "platform_registry":
        return _the_platform_registry()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
