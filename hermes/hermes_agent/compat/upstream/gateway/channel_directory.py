"""Known channels. Source: plugin contract §11.2."""

from hermes_agent.contracts.platform.directory import lookup_channel_type as lookup_channel_type
