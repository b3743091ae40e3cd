"""Which models a provider has. Source: plugin contract §8.1, §11.1."""

from hermes_agent.compat.model_ids import cached_provider_model_ids as cached_provider_model_ids
from hermes_agent.compat.model_ids import clear_provider_models_cache as clear_provider_models_cache
from hermes_agent.compat.model_ids import get_default_model_for_provider as get_default_model_for_provider
from hermes_agent.compat.model_ids import provider_model_ids as provider_model_ids
from hermes_agent.compat.model_ids import provider_models as _provider_models


def __getattr__(name: str) -> dict[str, list[str]]:
    if name == "_PROVIDER_MODELS":
        return _provider_models()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
