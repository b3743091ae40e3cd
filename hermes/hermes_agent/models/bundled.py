"""The profiles that come with the agent: one folder each, read when somebody asks for it.

`_bundled/model-providers/NAME/__init__.py` has the profile as `PROFILE`. A folder has its provider's name, so that
the one that is wanted is found without reading the others.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path

from hermes_agent.contracts.model_provider import ProviderProfile

BUNDLED_PROFILES = Path(__file__).resolve().parent.parent / "_bundled" / "model-providers"
"""Where the package has them."""

BUNDLED_ORDER = (
    *("openrouter", "openai", "anthropic", "gemini", "deepseek", "xai", "mistral", "groq", "together", "fireworks"),
    *("nvidia", "huggingface", "nous", "kimi", "zai", "minimax", "alibaba", "azure-foundry", "bedrock", "vertex"),
    *("copilot", "ollama", "lmstudio", "llama.cpp", "vllm", "custom", "local"),
)
"""Their names. A key that is there chooses one in this order, when neither a provider nor an address is set."""


@functools.cache
def bundled_profile(name: str) -> ProviderProfile:
    """Return the bundled profile of that name in `BUNDLED_ORDER`; its file is imported once."""
    module_name = "hermes_plugins_bundled_" + re.sub(r"\W", "_", name)
    file = BUNDLED_PROFILES / name / "__init__.py"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    profile = module.PROFILE
    assert isinstance(profile, ProviderProfile)
    return profile
