"""Model providers and auxiliary tasks.

A model provider is a profile: data about a model server, and a few methods. A plugin calls
`register_provider(ProviderProfile(...))` at import or in `register(ctx)`. A method that a subclass overrides is called
for each request, in a worker thread. An auxiliary task is a side task of a plugin with a model of its own, which the
operator configures. Source: plugin contract §8.1, §2.5, including the texts of the errors.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.secret_source import PooledCredential
from hermes_agent.core.calls import call_supported, overrides
from hermes_agent.core.errors import ModelError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.redaction import mask_arguments, redactor
from hermes_agent.core.text import as_names

__all__ = [
    "AUXILIARY_TASK",
    "AuxiliaryTask",
    "BUILTIN_TASKS",
    "MODEL_PROVIDER",
    "NotSignedIn",
    "HOOKS_LIMIT_S",
    "OMIT_TEMPERATURE",
    "PooledCredential",
    "ProviderProfile",
    "RunHooks",
    "TASK_DEFAULTS",
    "UnsignedRequest",
    "WITHOUT_EFFECT",
    "ask_profile",
    "check_profile",
    "split_names",
    "classify_by_profile",
    "fields_without_effect",
    "fetch_model_entries",
    "fetch_model_ids",
    "make_auxiliary_task",
]


logger = logging.getLogger(__name__)

RunHooks = Callable[..., Awaitable[Any]]
"""Runs a function in a worker thread (`Bridge.run`)."""
HOOKS_LIMIT_S = 10.0
"""Longest wait for the hooks of a profile, in seconds."""
LONGEST_LIST = 8 * 1024 * 1024
"""Largest list of models that is read, in bytes."""

MODEL_PROVIDER = Kind("model_provider", "register_model_provider", "model provider", is_used=True)


class _Omit:
    """Type of `OMIT_TEMPERATURE`."""

    def __repr__(self) -> str:
        return "OMIT_TEMPERATURE"


OMIT_TEMPERATURE = _Omit()
"""Value of `fixed_temperature`: send no temperature, even if the caller sets it."""


class UnsignedRequest(LazyNamedTuple):
    """A request without authentication headers."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    again: bool = False
    """Whether the provider rejected the previous signature."""


class NotSignedIn(Exception):
    """Error: there is no credential to sign a request with.

    Args:
        message: one sentence: which credential was looked up, and what is wrong with it.
        hint: what the user does next.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@lazy_dataclass
class ProviderProfile:
    """Profile of a model provider. Attributes that upstream does not have are marked as extensions."""

    name: str
    """Value of `model.provider` that selects it."""
    api_mode: str = "chat_completions"
    """The wire protocol: `chat_completions`, `anthropic_messages` or `codex_responses` (OpenAI's Responses)."""
    aliases: tuple[str, ...] = ()
    """Additional values of `model.provider`."""
    display_name: str = ""
    """Name in the middle of a sentence; empty: `name`."""
    description: str = ""
    signup_url: str = ""
    env_vars: tuple[str, ...] = ()
    """Environment variables of its key, best first; a name that ends in `_BASE_URL` overrides `base_url` instead."""
    base_url: str = ""
    """Address of its API; empty: the operator configures it."""
    models_url: str = ""
    """Address of its list of models; empty: `base_url` and `/models`."""
    auth_type: str = "api_key"
    """Kind of authentication; this release sends a key as `Authorization: Bearer`."""
    supports_health_check: bool = True
    supports_vision: bool = False
    supports_vision_tool_messages: bool = True
    fallback_models: tuple[str, ...] = ()
    """Models to offer if the list cannot be fetched."""
    hostname: str = ""
    """Host that identifies its addresses; empty: the host of `base_url`."""
    default_headers: dict[str, str] = field(default_factory=dict)
    """Headers of each request."""
    fixed_temperature: Any = None
    """Temperature of each request; `OMIT_TEMPERATURE` sends none; None: as the caller sets it."""
    default_max_tokens: int | None = None
    """Default limit of an answer, in tokens."""
    default_aux_model: str = ""
    """Cheap model for auxiliary tasks."""
    hidden: bool = False
    """Whether lists of providers leave it out; its name still selects it."""
    supports_model_listing: bool = True
    """Whether the provider has an endpoint that lists its models."""
    supports_prompt_cache_key: bool = False
    native_reasoning_details_type: str | None = None
    process_command: str = ""
    """Program of this machine that answers in place of a server, over the Agent Client Protocol or `create_client`."""
    process_args: tuple[str, ...] = ()
    process_command_env_vars: tuple[str, ...] = ()
    """Environment variables that override `process_command`, best first."""
    process_args_env_var: str = ""
    """Environment variable that overrides `process_args`, in the words of a shell."""
    model_aliases: dict[str, str] = field(default_factory=dict)
    model_capabilities: dict[str, Any] = field(default_factory=dict)
    classify_api_error: Callable[..., Any] | None = None
    """Called with `error, *, status_code, error_code, message, body, model` after a failed request of this provider.

    It returns a mapping as for `transform_api_error_classification`, or None. That hook goes first."""
    unsupported_response_formats: tuple[str, ...] = ()
    """Types of `response_format` that the provider lacks (`json_schema`, `json_object`): left out, with a notice.

    Fields of 0.23 that have no effect here are in `WITHOUT_EFFECT`."""
    auth_handler: Callable[[str, Any], bool] | None = None
    """Called by `hermes auth login` with `add` and the arguments (`provider`, `label`, `no_browser`).

    It stores the sign-in with `agent.credential_pool.load_pool(provider).add_entry(...)` and returns True."""
    refresh_credential: Callable[[PooledCredential], Mapping[str, Any]] | None = None
    """Called with a sign-in that ends; returns its new `access_token`, `refresh_token` and `expires_at_ms`."""
    default_model: str = ""
    """Extension: the default model; empty: the operator must name a model."""
    needs_key: bool = True
    """Extension: whether a key is required; False for servers of the operator, which may need none."""
    has_own_models: bool = False
    """Extension: whether the server has its own loaded models; by default the first of its list is used."""
    max_tokens_field: str = "max_tokens"
    """Extension: the request field that limits the length of the answer."""
    option_fields: dict[str, str] = field(default_factory=dict)
    """Extension: names of options of a request at the provider, by their names in chat completions."""
    lacks_options: tuple[str, ...] = ()
    """Extension: options that the provider does not have, by their names in chat completions; left out."""
    option_values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Extension: the words that the provider takes for an option; another one is left out, with a notice.

    A `tool_choice` that names a function is the word `function`."""
    model_option_values: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """Extension: `option_values` of models, by the beginning of their names; the longest one applies."""
    option_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Extension: smallest and largest number of an option; of `stop`, how many texts. Others are left out."""
    oauth: dict[str, str] = field(default_factory=dict)
    """Extension: settings of `hermes auth login`.

    `client_id`, `token_url`, `scope`, and `device_url` (device code) or `authorize_url` (browser on this machine, PKCE;
    `redirect_port`). With `key_url`, the code of the browser is exchanged for a key, and neither `client_id` nor
    `token_url` is needed. `providers.<name>.oauth` overrides it."""
    sign_in: str = ""
    """Extension: a sentence for `hermes auth login` if more is needed before it: what to register, and where."""
    wants_reasoning: bool = False
    """Extension: whether an answer with tool calls must be sent back with its `reasoning_content`."""
    marks_cache: bool = False
    """Extension: whether prompt prefixes of Claude models get `cache_control`, as OpenRouter requires."""
    schemas: str = "openai"
    """Extension: the tool schemas that it accepts; others are adapted.

    `openai` (the usual part of JSON Schema), `gemini` (OpenAPI), or `grammar` (llama.cpp and servers like it)."""
    sends_usage_unasked: bool = False
    """Extension: whether the usage is sent unasked, and asking for it (`stream_options`) is an error."""

    def get_hostname(self) -> str:
        """Return the host that identifies addresses of this provider; "" if there is none."""
        return self.hostname or urlsplit(self.base_url).hostname or ""

    def prepare_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages to send."""
        return messages

    def build_extra_body(self, *, session_id: str | None = None, **context: Any) -> dict[str, Any]:
        """Return additional fields of the request.

        Args:
            context: `model`, `base_url`, `provider_preferences`, `reasoning_config`, `openrouter_min_coding_score`.
        """
        return {}

    def build_api_kwargs_extras(
        self, *, reasoning_config: dict[str, Any] | None = None, **context: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return additional fields of the request in two parts; `extra_headers` in the second are headers.

        Args:
            context: `model`, `base_url`, `session_id`, `supports_reasoning`, `qwen_session_metadata`, `ollama_num_ctx`.
        """
        return {}, {}

    def sign(self, request: UnsignedRequest) -> Mapping[str, str]:
        """Extension: return the authentication headers of a request without a key.

        A profile without this method needs a key. Called in a worker thread right before each request.
        Raises NotSignedIn.
        """
        return {}

    def account(self) -> str:
        """Extension: return a description of the credential of `sign`, without a request. Raises NotSignedIn."""
        return ""

    def create_client(self, **options: Any) -> Any:
        """Return a client of the program: `chat.completions.create(…)` answers, `close()` ends it.

        Args:
            options: `api_key` (the provider's name), `base_url`, `command` and `args`.
        """
        raise NotImplementedError

    def listed(self) -> bool:
        """Return whether lists of providers show it."""
        return not self.hidden

    def discover_models(self, **options: Any) -> Any:
        """Return the models of the provider: names, or mappings with `id`; None: `fetch_models` lists them.

        Args:
            options: `api_key`, `base_url` and `timeout`, as for `fetch_models`.
        """
        return None

    def resolve_aux_model(self, *, vision: bool = False) -> str:
        """Return the model of auxiliary tasks, or of those with images; "": `default_aux_model`."""
        return ""

    def default_reasoning_config(self, model: str) -> dict[str, Any] | None:
        """Return how a model reasons by default: `enabled` and `effort`; None: the provider decides."""
        return None

    def supported_reasoning_efforts(self, model: str) -> tuple[str, ...] | None:
        """Return the efforts that a model takes; () for none, None if that is unknown."""
        return None

    def get_model_context_length(self, model: str) -> int | None:
        """Return the context window of a model in tokens; None if the profile does not know it."""
        return None

    def get_usage_cost(self, model: str, usage: Any) -> Any:
        """Return the cost of an answer in dollars; None: prices decide.

        Args:
            usage: `input_tokens` (without cached ones), `output_tokens`, `cache_read_tokens`, `total_tokens`.
        """
        return None

    def fetch_account_usage(self, *, base_url: str | None = None, api_key: str | None = None) -> Any:
        """Return what is left of an account; nothing here shows it."""
        return None

    def build_client_kwargs_extras(self, **context: Any) -> dict[str, Any]:
        """Return arguments of the client of an SDK; the agent's own client takes none."""
        return {}

    def setup_status(self, **options: Any) -> dict[str, Any]:
        """Return what the provider still needs; the setup tests it with a request."""
        return {}

    def default_vision_model(self) -> str | None:
        """Return a model that accepts images."""
        return None

    def get_max_tokens(self, model: str) -> int | None:
        """Return the default limit of a model's answer, in tokens."""
        return self.default_max_tokens

    def fetch_models(
        self, *, api_key: str | None = None, base_url: str | None = None, timeout: float = 8.0
    ) -> list[str] | None:
        """Return the models of the provider; None if it does not list them. Blocks up to `timeout` seconds."""
        url = (
            self.models_url if self.models_url and not base_url else (base_url or self.base_url).rstrip("/") + "/models"
        )
        headers = {**self.default_headers, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
        return fetch_model_ids(url, headers, timeout)


WITHOUT_EFFECT = (
    *("supports_prompt_cache_key", "native_reasoning_details_type", "model_aliases", "model_capabilities"),
)
"""Fields of a profile that the agent accepts and does not use."""


UNUSED_METHODS = ("fetch_account_usage", "build_client_kwargs_extras", "setup_status")
"""Methods of a profile that the agent does not call."""


def fields_without_effect(profile: ProviderProfile) -> list[str]:
    """Return the fields that a profile sets, and the methods that it has, and that the agent does not use."""
    fields = [name for name in WITHOUT_EFFECT if getattr(profile, name, None)]
    return fields + [name for name in UNUSED_METHODS if overrides(profile, ProviderProfile, name)]


def ask_profile(profile: ProviderProfile, method: str, *args: Any, **options: Any) -> Any:
    """Return the answer of a method of a profile; None without one of its own, and after a failure."""
    if not overrides(profile, ProviderProfile, method):
        return None
    try:
        return call_supported(getattr(profile, method), tuple(("", value) for value in args), options)
    except Exception as exc:  # noqa: BLE001 - a plugin's profile; the agent decides itself
        logger.warning("%s of model provider `%s` failed: %r", method, profile.name, exc)
        return None


async def classify_by_profile(profile: ProviderProfile, error: ModelError, model: str, run: RunHooks | None) -> Any:
    """Return the answer of `classify_api_error` of a profile; None without one, and if it fails.

    Args:
        run: runs it in a worker; None calls it on the loop.
    """
    if profile.classify_api_error is None:
        return None
    own = error.__cause__ if isinstance(error.__cause__, Exception) and error.status is None else error
    ask = partial(
        profile.classify_api_error,
        own,
        status_code=error.status,
        error_code=error.reply_code,
        message=redactor.mask_known(error.reply_text or error.message).lower(),
        body=mask_arguments(dict(error.reply_body)),
        model=model,
    )
    try:
        return ask() if run is None else await run(ask, deadline_s=HOOKS_LIMIT_S)
    except Exception as exc:  # a plugin's code; the agent classifies the error itself
        logger.warning("classify_api_error of model provider `%s` failed: %s", profile.name, exc, exc_info=exc)
        return None


LISTS_OF_NAMES = ("env_vars", "aliases", "fallback_models")


def check_profile(profile: Any) -> str:
    """Return the reason why `profile` cannot be registered; "" if it can."""
    if not isinstance(profile, ProviderProfile):
        return f"does not inherit from {ProviderProfile.__name__}"
    if not isinstance(profile.default_headers, Mapping):
        return f"has default_headers {profile.default_headers!r}: expected a mapping"
    for name in LISTS_OF_NAMES:
        value = getattr(profile, name)
        if not isinstance(value, str) and not all(isinstance(item, str) for item in value or ()):
            return f"has {name} {value!r}: expected a tuple of names"
    return ""


def split_names(profile: ProviderProfile) -> list[str]:
    """Make a tuple of each list of names that is a single text or None; return the names of those fields.

    A plugin that forgets the comma in `("name",)` loads in upstream, which looks at single letters then.
    """
    changed = [name for name in LISTS_OF_NAMES if isinstance(getattr(profile, name), str | None)]
    for name in changed:
        setattr(profile, name, tuple(as_names(getattr(profile, name))))
    return changed


def fetch_model_ids(url: str, headers: Mapping[str, str], timeout_s: float) -> list[str] | None:
    """Return the ids in `data[].id` or in a bare list; None after a failure, logged at DEBUG level."""
    entries = fetch_model_entries(url, headers, timeout_s)
    return None if entries is None else [entry["id"] for entry in entries]


def fetch_model_entries(url: str, headers: Mapping[str, str], timeout_s: float) -> list[dict[str, Any]] | None:
    """Return the entries of such a list, each with its `id`; None after a failure."""
    if not url.startswith(("http://", "https://")):
        return None
    import urllib.error  # 3 MiB, needed only to list models
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        """Handler that follows no redirect, which would send the key to another server."""

        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    try:
        request = urllib.request.Request(url, headers={"Accept": "application/json", **headers})
        with urllib.request.build_opener(Stay).open(request, timeout=timeout_s) as answer:
            value = json.loads(answer.read(LONGEST_LIST))
    except (OSError, ValueError, urllib.error.URLError) as exc:  # neither text contains the key
        logger.debug("models: cannot list those of %s: %s", url, exc)
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
        *("embeddings", "web_client", "learning_review"),
        *("tts_audio_tags", "skills_hub", "triage_specifier", "kanban_decomposer", "profile_describer", "curator"),
    )
)
"""Keys of built-in tasks, which plugins cannot use."""

TASK_DEFAULTS: Mapping[str, Any] = {
    "provider": "auto",
    "model": "",
    "base_url": "",
    "api_key": "",
    "timeout": 60,
    "extra_body": {},
}
"""Default settings of a task; `timeout` in seconds."""


class AuxiliaryTask(LazyNamedTuple):
    """An auxiliary task; `auxiliary.<key>` of the config selects its model."""

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
    """Return an auxiliary task.

    Raises:
        ValueError: the key is invalid or reserved, or `defaults` is no mapping.
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
