"""The bundled provider profiles, each read when it is asked for.

A profile is `PROFILE` of `_bundled/model-providers/NAME/__init__.py`. The folder has the provider's name, so that a
profile is found without the others being read. A folder with a file `client.py` brings its own client.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.system.installation import BUNDLED_PLUGINS, bundled_plugin

if TYPE_CHECKING:
    from hermes_agent.contracts.model_client import ClientProfile

BUNDLED_PROFILES = BUNDLED_PLUGINS / "model-providers"
"""The folder of the profiles."""

BUNDLED_ORDER = (
    *("openrouter", "openai", "anthropic", "gemini", "deepseek", "xai", "mistral", "groq", "together", "fireworks"),
    *("nvidia", "huggingface", "nous", "kimi", "zai", "minimax", "alibaba", "azure-foundry", "bedrock", "vertex"),
    *("copilot", "ollama", "lmstudio", "llama.cpp", "vllm", "custom", "local"),
)
"""Names of the profiles. If neither a provider nor an address is set, the first one with a key is selected."""


def bundled_profile(name: str) -> ProviderProfile:
    """Return the bundled profile of a name in `BUNDLED_ORDER`; its file is imported once."""
    profile = bundled_plugin("model-providers", name).PROFILE
    assert isinstance(profile, ProviderProfile)
    return profile


@functools.cache
def bundled_client_profiles() -> tuple[ClientProfile, ...]:
    """Return the bundled profiles that bring their own client."""
    from hermes_agent.contracts.model_client import ClientProfile  # with them: others need no client's types

    names = [name for name in BUNDLED_ORDER if (BUNDLED_PROFILES / name / "client.py").is_file()]
    return tuple(profile for profile in map(bundled_profile, names) if isinstance(profile, ClientProfile))
