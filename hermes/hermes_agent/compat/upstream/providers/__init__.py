"""Model providers. Source: plugin contract §8.1."""

from hermes_agent.compat.model_providers import get_provider_profile as get_provider_profile
from hermes_agent.compat.model_providers import list_providers as list_providers
from hermes_agent.compat.model_providers import register_provider as register_provider
from hermes_agent.contracts.model_provider import OMIT_TEMPERATURE as OMIT_TEMPERATURE
from hermes_agent.contracts.model_provider import ProviderProfile as ProviderProfile
