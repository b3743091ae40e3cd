"""The providers that speak chat completions, as data.

The field names are those of the plugin contract's provider profiles (§8.1), so that a profile of a plugin is an
entry of the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

__all__ = ["CUSTOM", "LOCAL", "PROVIDERS", "Provider", "configured", "named", "serving"]

LOCAL = "local"
"""The embedded model; its client is not this wire's."""
CUSTOM = "custom"
"""Any other server, at `model.base_url`."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider."""

    name: str
    """Value of `model.provider` that selects it."""
    display_name: str
    """As it stands in the middle of a sentence."""
    base_url: str = ""
    """Address of its API, without the final slash; empty when the operator has to say it."""
    env_vars: tuple[str, ...] = ()
    """Names of its key, best first; one that ends in `_BASE_URL` overrides `base_url` instead."""
    aliases: tuple[str, ...] = ()
    """Other values of `model.provider`."""
    needs_key: bool = True
    """False for a server of one's own: a request without a key is tried."""
    default_headers: tuple[tuple[str, str], ...] = ()
    """Name and value of headers that each request gets."""
    default_model: str = ""
    """Model to take when none is named; empty asks for one."""
    has_own_models: bool = False
    """True for a server that serves what was loaded into it: without a name, the first that it lists is taken."""
    max_tokens_field: str = "max_tokens"
    """Which field of the request limits the answer's length."""
    sends_usage_unasked: bool = False
    """True where the usage comes by itself and the request for it (`stream_options`) is an error."""

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of credentials that may hold its key, best first."""
        return tuple(name for name in self.env_vars if not name.endswith("_BASE_URL"))

    @property
    def base_url_names(self) -> tuple[str, ...]:
        """Names of variables that override its address."""
        return tuple(name for name in self.env_vars if name.endswith("_BASE_URL"))


PROVIDERS: tuple[Provider, ...] = (
    Provider(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
        default_headers=(("X-Title", "hermes-agent"),),
    ),
    Provider(
        "openai",
        "OpenAI",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
        # the models that reason refuse `max_tokens`: https://platform.openai.com/docs/api-reference/chat/create
        max_tokens_field="max_completion_tokens",
    ),
    Provider(
        "gemini",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_BASE_URL"),
        aliases=("google",),
    ),
    Provider("deepseek", "DeepSeek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL")),
    Provider("xai", "xAI", "https://api.x.ai/v1", ("XAI_API_KEY", "XAI_BASE_URL"), aliases=("grok",)),
    Provider(
        "mistral",
        "Mistral",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY", "MISTRAL_BASE_URL"),
        # answers 422 to stream_options: https://github.com/openai/openai-agents-python/issues/442
        sends_usage_unasked=True,
    ),
    Provider("groq", "Groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY", "GROQ_BASE_URL")),
    Provider("together", "Together AI", "https://api.together.xyz/v1", ("TOGETHER_API_KEY", "TOGETHER_BASE_URL")),
    Provider(
        "fireworks",
        "Fireworks AI",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_BASE_URL"),
    ),
    Provider("nvidia", "NVIDIA", "https://integrate.api.nvidia.com/v1", ("NVIDIA_API_KEY", "NVIDIA_BASE_URL")),
    Provider(
        "huggingface",
        "Hugging Face",
        "https://router.huggingface.co/v1",
        ("HF_TOKEN", "HF_BASE_URL"),
        aliases=("hf",),
    ),
    Provider(
        "ollama",
        "Ollama",
        "http://127.0.0.1:11434/v1",
        ("OLLAMA_API_KEY", "OLLAMA_BASE_URL"),
        needs_key=False,
        has_own_models=True,
    ),
    Provider(
        "lmstudio",
        "LM Studio",
        "http://127.0.0.1:1234/v1",
        ("LM_API_KEY", "LM_BASE_URL"),
        aliases=("lm-studio",),
        needs_key=False,
        has_own_models=True,
    ),
    Provider(
        "llama.cpp",
        "llama.cpp",
        "http://127.0.0.1:8080/v1",
        ("LLAMA_API_KEY", "LLAMA_BASE_URL"),
        aliases=("llamacpp", "llama-cpp"),
        needs_key=False,
        has_own_models=True,
    ),
    Provider(
        "vllm",
        "vLLM",
        "http://127.0.0.1:8000/v1",
        ("VLLM_API_KEY", "VLLM_BASE_URL"),
        needs_key=False,
        has_own_models=True,
    ),
    Provider(
        CUSTOM,
        "the server",
        "",
        ("CUSTOM_API_KEY", "OPENAI_API_KEY", "CUSTOM_BASE_URL", "OPENAI_BASE_URL"),
        needs_key=False,
        has_own_models=True,
    ),
    Provider(LOCAL, "the embedded model", needs_key=False, aliases=("embedded",)),
)
"""A key that is there chooses one in this order, when neither a provider nor an address is set."""

_BY_NAME = {name: p for p in reversed(PROVIDERS) for name in (*p.aliases, p.name)}
_BY_HOST = {host: p for p in PROVIDERS if p.needs_key and (host := urlsplit(p.base_url).hostname)}


def named(name: str) -> Provider | None:
    """Return the provider with this name or alias; case does not matter."""
    return _BY_NAME.get(name.strip().lower())


def serving(base_url: str) -> Provider | None:
    """Return the provider at whose host `base_url` points; None for a server that none of them runs."""
    try:
        return _BY_HOST.get(urlsplit(base_url).hostname or "")
    except ValueError:
        return None


def configured(name: str, entry: Mapping[str, Any]) -> Provider:
    """Return the provider that an entry of the config's `providers` describes.

    Args:
        name: its key there; where it is a known provider's, the entry changes that one.
        entry: `base_url`, `api_key_env`, `default_model`, `headers`; what is empty changes nothing.
    """
    known = _BY_NAME.get(name)
    own_key = str(entry.get("api_key_env") or "")
    if known is None:
        own_key = own_key or re.sub(r"\W", "_", name).upper() + "_API_KEY"
        known = Provider(name, name, needs_key=False, has_own_models=True)
    return replace(
        known,
        base_url=str(entry.get("base_url") or known.base_url),
        env_vars=((own_key,) if own_key else ()) + known.env_vars,
        default_headers=known.default_headers
        + tuple((str(k), str(v)) for k, v in (entry.get("headers") or {}).items()),
        default_model=str(entry.get("default_model") or known.default_model),
    )
