"""The profile of a model provider. Source: plugin contract §8.1."""

from hermes_agent.contracts.model_provider import OMIT_TEMPERATURE as OMIT_TEMPERATURE
from hermes_agent.contracts.model_provider import ProviderProfile as ProviderProfile
