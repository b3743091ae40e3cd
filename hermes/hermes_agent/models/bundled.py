"""The profiles that come with the agent: one folder each, read when somebody asks for it.

`_bundled/model-providers/NAME/__init__.py` has the profile as `PROFILE`. A folder has its provider's name, so that
the one that is wanted is found without reading the others.
"""

from __future__ import annotations

from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.system.installation import BUNDLED_PLUGINS, bundled_plugin

BUNDLED_PROFILES = BUNDLED_PLUGINS / "model-providers"
"""Where the package has them."""

BUNDLED_ORDER = (
    *("openrouter", "openai", "anthropic", "gemini", "deepseek", "xai", "mistral", "groq", "together", "fireworks"),
    *("nvidia", "huggingface", "nous", "kimi", "zai", "minimax", "alibaba", "azure-foundry", "bedrock", "vertex"),
    *("copilot", "ollama", "lmstudio", "llama.cpp", "vllm", "custom", "local"),
)
"""Their names. A key that is there chooses one in this order, when neither a provider nor an address is set."""


def bundled_profile(name: str) -> ProviderProfile:
    """Return the bundled profile of that name in `BUNDLED_ORDER`; its file is imported once."""
    profile = bundled_plugin("model-providers", name).PROFILE
    assert isinstance(profile, ProviderProfile)
    return profile
