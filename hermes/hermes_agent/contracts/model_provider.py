"""Model provider: a server that models are asked at, as data, with a few hooks. Source: plugin contract §8.1.

A plugin says `register_provider(ProviderProfile(...))`, at import or in `register(ctx)`. The hooks are called for
each request, in a worker thread where a subclass has its own.

Auxiliary task: a side task of a plugin that asks a model of its own, as the operator configures it.

Source: plugin contract §2.5; the texts of the errors are its own as far as it has them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hermes_agent.contracts.kind import Kind

__all__ = [
    "AUXILIARY_TASK",
    "AuxiliaryTask",
    "BUILTIN_TASKS",
    "MODEL_PROVIDER",
    "NotSignedIn",
    "OMIT_TEMPERATURE",
    "ProviderProfile",
    "TASK_DEFAULTS",
    "UnsignedRequest",
    "check_profile",
    "fetch_model_entries",
    "fetch_model_ids",
    "make_auxiliary_task",
]


logger = logging.getLogger(__name__)

LONGEST_LIST = 8 * 1024 * 1024
"""Bytes of a provider's list of models that are read."""

MODEL_PROVIDER = Kind("model_provider", "register_model_provider", "model provider", is_used=True)


class _Omit:
    """The type of `OMIT_TEMPERATURE`."""

    def __repr__(self) -> str:
        return "OMIT_TEMPERATURE"


OMIT_TEMPERATURE = _Omit()
"""Value of `fixed_temperature`: no temperature is sent, whatever the caller asks for."""


class UnsignedRequest(NamedTuple):
    """A request that does not say yet who asks."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    again: bool = False
    """The provider refused what the last one was signed with."""


class NotSignedIn(Exception):
    """There is nothing to sign with.

    Args:
        message: one sentence: what was looked at, and what is wrong.
        hint: what to do next.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass
class ProviderProfile:
    """One provider."""

    name: str
    """Value of `model.provider` that selects it."""
    api_mode: str = "chat_completions"
    """The wire protocol: `chat_completions`, `anthropic_messages` or `codex_responses` (OpenAI's Responses)."""
    aliases: tuple[str, ...] = ()
    """Other values of `model.provider`."""
    display_name: str = ""
    """As it stands in the middle of a sentence; empty is the name."""
    description: str = ""
    signup_url: str = ""
    env_vars: tuple[str, ...] = ()
    """Names of its key, best first; one that ends in `_BASE_URL` overrides `base_url` instead."""
    base_url: str = ""
    """Address of its API; empty when the operator has to say it."""
    models_url: str = ""
    """Where its models are listed; empty is `base_url` and `/models`."""
    auth_type: str = "api_key"
    """How one signs in; this release sends a key as `Authorization: Bearer`."""
    supports_health_check: bool = True
    supports_vision: bool = False
    supports_vision_tool_messages: bool = True
    fallback_models: tuple[str, ...] = ()
    """Models to offer where its list cannot be had."""
    hostname: str = ""
    """Host by which an address is known to be its own; empty is that of `base_url`."""
    default_headers: dict[str, str] = field(default_factory=dict)
    """Headers that each request gets."""
    fixed_temperature: Any = None
    """Temperature that each request gets; `OMIT_TEMPERATURE` sends none; None leaves it to the caller."""
    default_max_tokens: int | None = None
    """Longest answer in tokens where nobody says."""
    default_aux_model: str = ""
    """A cheap model for side tasks."""
    default_model: str = ""
    """Ours: model to take when none is named; empty asks for one."""
    needs_key: bool = True
    """Ours: false for a server of one's own: a request without a key is tried."""
    has_own_models: bool = False
    """Ours: it serves what was loaded into it: without a name, the first that it lists is taken."""
    max_tokens_field: str = "max_tokens"
    """Ours: which field of the request limits the answer's length."""
    oauth: dict[str, str] = field(default_factory=dict)
    """Ours: how `hermes auth login` signs in: `client_id`, `token_url`, `scope`, and `device_url` (a code for another
    device) or `authorize_url` (a browser here, PKCE; `redirect_port`). With `key_url` the browser's code is
    exchanged for a key there, as at OpenRouter, and neither id nor token is needed.
    `providers.<name>.oauth` goes before it."""
    sign_in: str = ""
    """Ours: one sentence for `hermes auth login` where that is not possible as it is: what to register, and where."""
    wants_reasoning: bool = False
    """Ours: an answer with tool calls has to come back with its `reasoning_content`."""
    marks_cache: bool = False
    """Ours: prompt prefixes of Claude's models are marked for its cache (`cache_control`), as OpenRouter wants it."""
    schemas: str = "openai"
    """Ours: which schemas of tools it takes: `openai` (all that matters of JSON Schema), `gemini` (OpenAPI), `grammar`
    (what llama.cpp and the like make a grammar of); others are rewritten."""
    sends_usage_unasked: bool = False
    """Ours: the usage comes by itself, and the request for it (`stream_options`) is an error."""

    def get_hostname(self) -> str:
        """Return the host by which an address is known to be this provider's; empty when there is none."""
        return self.hostname or urlsplit(self.base_url).hostname or ""

    def prepare_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages as they are sent."""
        return messages

    def build_extra_body(self, *, session_id: str | None = None, **context: Any) -> dict[str, Any]:
        """Return further fields of the request.

        Args:
            context: `model`, `base_url`, `provider_preferences`, `reasoning_config`, `openrouter_min_coding_score`.
        """
        return {}

    def build_api_kwargs_extras(
        self, *, reasoning_config: dict[str, Any] | None = None, **context: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return further fields of the request, in two parts; `extra_headers` in the second one are headers.

        Args:
            context: `model`, `base_url`, `session_id`, `supports_reasoning`, `qwen_session_metadata`, `ollama_num_ctx`.
        """
        return {}, {}

    def sign(self, request: UnsignedRequest) -> Mapping[str, str]:
        """Ours: return the headers that say who asks, where there is no key; a profile without this method wants one.

        Called in a worker right before each request. Raises NotSignedIn.
        """
        return {}

    def account(self) -> str:
        """Ours: return in words what `sign` signs with; asks nobody. Raises NotSignedIn."""
        return ""

    def default_vision_model(self) -> str | None:
        """Return a model that sees."""
        return None

    def get_max_tokens(self, model: str) -> int | None:
        """Return the longest answer of a model in tokens, where nobody says."""
        return self.default_max_tokens

    def fetch_models(
        self, *, api_key: str | None = None, base_url: str | None = None, timeout: float = 8.0
    ) -> list[str] | None:
        """Ask the provider which models it has; None when it does not say. Blocks up to `timeout` seconds."""
        url = (
            self.models_url if self.models_url and not base_url else (base_url or self.base_url).rstrip("/") + "/models"
        )
        headers = {**self.default_headers, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
        return fetch_model_ids(url, headers, timeout)


def check_profile(profile: Any) -> str:
    """Return why `profile` cannot be registered, empty when it can."""
    if not isinstance(profile, ProviderProfile):
        return f"does not inherit from {ProviderProfile.__name__}"
    if not isinstance(profile.default_headers, Mapping):
        return f"has default_headers {profile.default_headers!r}: expected a mapping"
    for name in ("env_vars", "aliases"):
        value = getattr(profile, name)
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            return f"has {name} {value!r}: expected a tuple of names"
    return ""


def fetch_model_ids(url: str, headers: Mapping[str, str], timeout_s: float) -> list[str] | None:
    """Return the ids in `data[].id`, or in a bare list; None after any failure, which is in the log at DEBUG level."""
    entries = fetch_model_entries(url, headers, timeout_s)
    return None if entries is None else [entry["id"] for entry in entries]


def fetch_model_entries(url: str, headers: Mapping[str, str], timeout_s: float) -> list[dict[str, Any]] | None:
    """Return the entries of such a list, each with its `id`; None after any failure."""
    if not url.startswith(("http://", "https://")):
        return None
    import urllib.error  # 3 MiB, which a daemon that asks no server for its models does without
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        """Follows no redirection: the key would go along to whoever is named there."""

        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    try:
        request = urllib.request.Request(url, headers={"Accept": "application/json", **headers})
        with urllib.request.build_opener(Stay).open(request, timeout=timeout_s) as answer:
            value = json.loads(answer.read(LONGEST_LIST))
    except (OSError, ValueError, urllib.error.URLError) as exc:  # the key is in neither text
        logger.debug("no list of models from %s: %s", url, exc)
        return None
    entries = value.get("data") if isinstance(value, dict) else value
    if not isinstance(entries, list):
        return None
    found = [entry if isinstance(entry, dict) else {"id": entry} for entry in entries]
    return [entry for entry in found if isinstance(entry.get("id"), str) and entry["id"]]


AUXILIARY_TASK = Kind("auxiliary_task", "register_auxiliary_task", "auxiliary task", is_used=True)

BUILTIN_TASKS = frozenset(
    (
        *("vision", "compression", "web_extract", "approval", "mcp", "title_generation", "memory_query_rewrite"),
        *("tts_audio_tags", "skills_hub", "triage_specifier", "kanban_decomposer", "profile_describer", "curator"),
    )
)
"""Keys that the agent keeps for itself."""

TASK_DEFAULTS: Mapping[str, Any] = {
    "provider": "auto",
    "model": "",
    "base_url": "",
    "api_key": "",
    "timeout": 60,
    "extra_body": {},
}
"""Settings of a task where neither the plugin nor the config says anything; `timeout` is in seconds."""


class AuxiliaryTask(NamedTuple):
    """A task; `auxiliary.<key>` of the config says who is asked."""

    key: str
    display_name: str
    description: str
    defaults: Mapping[str, Any]
    """Every setting of `TASK_DEFAULTS`, with the plugin's own."""
    own_defaults: Mapping[str, Any] = {}
    """The settings that the plugin gave."""
    inherit_from: str = ""
    """The task with the settings below the plugin's own; empty for none."""


def make_auxiliary_task(
    key: str,
    *,
    display_name: str,
    description: str,
    defaults: Mapping[str, Any] | None = None,
    inherit_from: str = "",
) -> AuxiliaryTask:
    """Return the task.

    Raises:
        ValueError: the key cannot be one, or is the agent's; or `defaults` is no mapping.
    """
    if not isinstance(key, str) or not key.strip():
        raise ValueError(f"auxiliary task key is {key!r}: expected a text that is not empty")
    if not key.replace("_", "").isalnum():
        raise ValueError(f"auxiliary task key '{key}' must contain only alphanumeric characters and underscores")
    if key in BUILTIN_TASKS:
        raise ValueError(
            f"cannot register auxiliary task '{key}' — that key is reserved for a built-in task. Choose another key, "
            "for example one that begins with the plugin's name."
        )
    if defaults is not None and not isinstance(defaults, Mapping):
        raise ValueError(f"the defaults of auxiliary task '{key}' are {defaults!r}: expected a mapping")
    own = dict(defaults or {})
    return AuxiliaryTask(key, display_name, description, {**TASK_DEFAULTS, **own}, own, inherit_from)
