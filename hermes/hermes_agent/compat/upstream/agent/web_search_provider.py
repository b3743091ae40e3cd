"""Web search providers. Source: plugin contract §8.8."""

from hermes_agent.compat.provider_names import get_provider_env as get_provider_env
from hermes_agent.contracts.web_search import WebSearchProvider as WebSearchProvider
