"""Model selection: from the config and the existing keys to a model and its client.

The first rule that applies selects the provider:

1. the requested provider (`--provider`), else `model.provider`
2. with `model.base_url`: the provider that runs this host, else `custom`
3. the server that `CUSTOM_BASE_URL` or `OPENAI_BASE_URL` names
4. if a model is named: the first provider of the catalog with a key
5. a provider that brings its own client (`ClientProfile`) and can answer, if no model of another one is named
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_agent.config.effective import header_secrets
from hermes_agent.config.settings import Settings, plain
from hermes_agent.contracts.model_client import ClientProfile, ModelClient
from hermes_agent.contracts.model_provider import ProviderProfile, ask_profile
from hermes_agent.core.errors import EXIT_USAGE, ConfigError, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.credentials.logins import API_KEY, Login, LoginStore
from hermes_agent.models.api_modes import API_MODE_ALIASES, API_MODES
from hermes_agent.models.client_profiles import client_services, missing_model_error
from hermes_agent.models.model_catalog import ModelCatalog
from hermes_agent.models.providers import (
    CUSTOM,
    KeyPools,
    ModelEndpoint,
    ModelProvider,
    ProviderCatalog,
    find_profile_key,
    provider_from_config,
)

if TYPE_CHECKING:
    from hermes_agent.contracts.model_provider import RunHooks
    from hermes_agent.models.client import HttpModelClient
    from hermes_agent.models.http_transport import HttpTimeouts

logger = logging.getLogger(__name__)


_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")

AUTO = "auto"
"""Value of `model.provider` that selects as if it were empty."""


@lazy_dataclass(frozen=True, slots=True)
class ModelSelection:
    """A selected model with its endpoint and the settings of its requests."""

    endpoint: ModelEndpoint
    """Provider, base URL and key; the base URL of a provider that brings its own client is empty."""
    model: str
    """Name of the model, for `ModelRequest.model`."""
    reason: str
    """Half a sentence on why this provider was selected, for a log line."""
    new_client: Callable[[], ModelClient]
    """Makes the client, which opens no connection yet. `ClientPool` calls it once for each endpoint."""
    max_tokens: int | None = None
    """`model.max_tokens`; None leaves it to the provider."""
    reasoning_effort: str = ""
    """`agent.reasoning_effort`; empty leaves it to the provider."""
    with_other_keys: tuple[ModelSelection, ...] = ()
    """The same model with additional keys of the provider."""

    @property
    def provider(self) -> str:
        """The provider's name in `model.provider`."""
        return self.endpoint.provider.name

    @property
    def base_url(self) -> str:
        """Base URL of the API, as hooks see it."""
        return self.endpoint.base_url

    @property
    def client_profile(self) -> ClientProfile | None:
        """The provider's profile if it brings its own client, else None."""
        return self.endpoint.client_profile


def select_model(
    config: Settings,
    credentials: Credentials,
    *,
    block: Mapping[str, Any] | None = None,
    model: str = "",
    provider: str = "",
    profile: str = "",
    catalogue: ProviderCatalog | None = None,
    run_hooks: RunHooks | None = None,
    pools: KeyPools | None = None,
    infos: ModelCatalog | None = None,
    logins: LoginStore | None = None,
) -> ModelSelection:
    """Return the selected model.

    A missing key is an error of the model request (`ModelError`, kind `no_key`) and not of the selection: a daemon
    starts without the key, and a key that is added later is found at the next request.

    Args:
        config: `model`, `providers`, `agent.reasoning_effort`, `prompt_caching` and the key strategies are read.
        block: takes the place of the block `model`; it may have the settings of a `ClientProfile`.
        model: replaces `model.default`.
        provider: replaces `model.provider`; the rest of the block is ignored for another provider than that.
        profile: name of a key in the provider's `profiles`; "" and `default` are the default key.
        catalogue: the providers; None means the bundled ones.
        run_hooks: runs the hooks of a plugin's profile in a worker.
        pools: rotation of several keys.
        infos: facts about models.
        logins: stored by `hermes auth login`.

    Raises:
        ConfigError: the provider is unknown, or an address is invalid.
        UserError: no model is configured (exit status 2), with the ways to get one; or the variable of the key profile
            has no value.
        ValueError: the provider has no such key profile.
    """
    given = plain(config.model) if block is None else block
    settings, own = _settings(given), config.providers
    # the block `model` belongs to one provider: another one has other names, addresses and keys
    named = settings if provider in ("", settings["provider"], CUSTOM) else _settings("")
    wish = _RequestedModel(
        provider=provider or settings["provider"],
        model=model or named["default"],
        base_url=named["base_url"],
        key=named["api_key"] or ((named["key_env"] and credentials.get(named["key_env"])) or "").strip(),
    )
    known, stored = _KnownProviders(catalogue or ProviderCatalog(), own), logins or LoginStore(None)
    found, why, address = _provider(wish, known, credentials, stored)
    brings_client = found.profile if found is not None else None
    if found is None or isinstance(brings_client, ClientProfile):
        profiles = [brings_client] if isinstance(brings_client, ClientProfile) else known.catalogue.client_profiles()
        for each in profiles:
            find_profile_key(each.name, {}, profile, credentials, stored)
        return _select_client_profile(profiles, given, wish, credentials, known, explicit=found is not None, why=why)
    entry = own.get(found.name) or {}
    found = _with_protocol(
        found, named["api_mode"] or str(entry.get("transport") or ""), config.prompt_caching.cache_ttl or "5m"
    )
    endpoint = _endpoint(found, address, wish.key, entry, credentials)
    if profile and (login := stored.get(found.name, profile)) is not None:
        endpoint = _with_login(endpoint, login)
    elif of_profile := find_profile_key(found.name, entry, profile, credentials, stored):
        endpoint = replace(endpoint, key_name=of_profile[0], key=of_profile[1])
    name = wish.model or found.default_model
    if not name and not found.profile.has_own_models:
        raise UserError(
            f"No model is named for {endpoint.display_name}.",
            hint="Name one with `hermes config set model.default NAME`, or `hermes --model NAME`.",
            exit_status=EXIT_USAGE,
        )
    effort = _effort(config.agent.reasoning_effort.strip(), found.profile, name)

    def client(own: ModelEndpoint) -> HttpModelClient:
        from hermes_agent.models.client import HttpModelClient  # a start sends no request, and needs no protocol

        return HttpModelClient(own, _deadlines(entry), run_hooks, infos)

    def selection(own: ModelEndpoint, siblings: tuple[ModelSelection, ...] = ()) -> ModelSelection:
        def new_client() -> ModelClient:
            if not own.login:
                return client(own)
            from hermes_agent.models.client import LoginModelClient  # as above

            return LoginModelClient(client(own), own, stored, run_hooks)

        return ModelSelection(own, name, why, new_client, settings["max_tokens"], effort, siblings)

    keys = [endpoint]
    if not (profile or wish.key):
        strategy = config.credential_pool_strategies.get(found.name) or ""
        pool = _pool(endpoint, entry if strategy else {}, credentials, stored)
        keys = (pools or KeyPools()).in_rotation(pool, strategy) or keys
    return selection(keys[0], tuple(map(selection, keys[1:])))


def _effort(configured: str, profile: ProviderProfile, model: str) -> str:
    """Return the effort of reasoning: the configured one or that of the profile, if the model takes it."""
    usual = None if configured else ask_profile(profile, "default_reasoning_config", model)
    is_on = isinstance(usual, Mapping) and usual.get("enabled", True)
    effort = str(usual.get("effort") or "") if is_on and usual is not None else configured
    supported = ask_profile(profile, "supported_reasoning_efforts", model) if effort else None
    if supported is None or effort in supported:
        return effort
    logger.warning("model %s takes no reasoning effort %r: it is left out", model, effort)
    return ""


def _deadlines(entry: Mapping[str, Any]) -> HttpTimeouts:
    """Return the time limits in a provider's entry of the config."""
    from hermes_agent.models.http_transport import HttpTimeouts  # as above

    given = {
        "first_byte_s": entry.get("first_byte_timeout_seconds"),
        "idle_s": entry.get("stale_timeout_seconds"),
        "whole_s": entry.get("request_timeout_seconds"),
    }
    return HttpTimeouts(**{name: seconds for name, seconds in given.items() if seconds})


def _pool(
    endpoint: ModelEndpoint, entry: Mapping[str, Any], credentials: Credentials, logins: LoginStore
) -> list[ModelEndpoint]:
    """Return an endpoint for each key: the default key, then those of `profiles`, then logins."""
    found = {endpoint.key: endpoint} if endpoint.key else {}
    for name in (entry.get("profiles") or {}).values():
        if key := (credentials.get(name) or "").strip():
            found.setdefault(key, replace(endpoint, key_name=name, key=key))
    redactor.learn(found)
    for login in logins.entries(endpoint.provider.name):
        found.setdefault(login.access_token, _with_login(endpoint, login))
    return list(found.values())


def _with_login(endpoint: ModelEndpoint, login: Login) -> ModelEndpoint:
    name = f"the login {login.label!r}"
    if login.auth_type == API_KEY:
        return replace(endpoint, key_name=name, key=login.access_token)
    return replace(endpoint, key_name=name, key="", login=login.label)


@lazy_dataclass(frozen=True, slots=True)
class _RequestedModel:
    """The requested model; "" where nothing was requested."""

    provider: str
    model: str
    base_url: str
    key: str = field(repr=False)


def _settings(value: Any) -> dict[str, Any]:
    """Return the block `model` as a mapping with every key that is read here."""
    given: Mapping[str, Any] = value if isinstance(value, Mapping) else {"default": value}
    names = ("provider", "default", "base_url", "api_key", "key_env", "api_mode")
    texts = {name: str(given.get(name) or "").strip() for name in names}
    if texts["provider"].lower() == AUTO:
        texts["provider"] = ""
    return {**texts, "max_tokens": given.get("max_tokens") or None}


@lazy_dataclass(slots=True, eq=False, repr=False)
class _KnownProviders:
    """Providers of the catalog, with the changes and additions of `providers` in the config."""

    catalogue: ProviderCatalog
    own: Mapping[str, Any]

    def find(self, name: str) -> ModelProvider:
        """Return the provider of this name. Raise ConfigError if it is unknown."""
        present = self.catalogue.get(name)
        canonical = name if name in self.own or present is None else present.name
        entry = self.own.get(canonical)
        if isinstance(entry, Mapping):
            return provider_from_config(canonical, entry, present)
        if present is None:
            known = ", ".join(sorted({*self.catalogue.names(), *self.own}))
            raise ConfigError(f"model.provider: {name!r} is no provider", hint=f"Known: {known}.")
        return present


def _with_protocol(provider: ModelProvider, wish: str, cache_ttl: str) -> ModelProvider:
    """Return the provider with its wire protocol. Raise ConfigError if the protocol is unknown."""
    mode = API_MODE_ALIASES.get(wish, wish) or provider.api_mode
    if mode not in API_MODES and wish:
        raise ConfigError(
            f"providers.{provider.name}.transport: there is no wire protocol `{wish}`, only {', '.join(API_MODES)}",
            hint=f"Choose one with `hermes config set providers.{provider.name}.transport NAME`.",
        )
    if mode not in API_MODES:
        raise ConfigError(
            f"model.provider: {provider.name} speaks {mode}, this release speaks {', '.join(API_MODES)}",
            hint="Choose another provider with `hermes config set model.provider NAME`; OpenRouter has most models.",
        )
    return replace(provider, api_mode=mode, cache_ttl=cache_ttl)


def _provider(
    wish: _RequestedModel, known: _KnownProviders, credentials: Credentials, logins: LoginStore
) -> tuple[ModelProvider | None, str, str]:
    """Return the provider, the reason, and the given base URL; None if no rule selects a provider."""
    if wish.provider:
        return known.find(wish.provider), f"the provider {wish.provider} was chosen", wish.base_url
    custom = known.find(CUSTOM)
    if wish.base_url:
        return known.catalogue.find_by_url(wish.base_url) or custom, "model.base_url says where", wish.base_url
    for name in custom.base_url_names:
        if address := credentials.get(name):
            return known.catalogue.find_by_url(address) or custom, f"{name} says where", address
    for candidate in known.catalogue.providers() if wish.model else ():
        key_name = _key(candidate, credentials)[0] if is_selected_by_key(candidate) else ""
        if key_name:
            return known.find(candidate.name), f"{key_name} is there and no provider is set", ""
        if logins.entries(candidate.name):
            return known.find(candidate.name), "a login is there and no provider is set", ""
    return None, "", ""


def is_selected_by_key(provider: ModelProvider) -> bool:
    """Return whether a key alone selects it."""
    # tokens of GitHub or of a cloud serve other purposes, too
    profile = provider.profile
    usable = provider.needs_key and provider.api_mode in API_MODES and profile.auth_type == "api_key"
    return usable and profile.listed()


def _endpoint(
    provider: ModelProvider, address: str, key: str, entry: Mapping[str, Any], credentials: Credentials
) -> ModelEndpoint:
    """Return the endpoint with the given base URL and key, else those of the config or a variable."""
    source = "model.base_url"
    if not address:
        address, source = next(
            ((value, name) for name in provider.base_url_names if (value := credentials.get(name))),
            (provider.base_url, f"providers.{provider.name}.base_url"),
        )
    key_name = "model.api_key"
    if not key:
        key_name, key = f"providers.{provider.name}.api_key", str(entry.get("api_key") or "").strip()
    if not key:
        key_name, key = _key(provider, credentials)
    redactor.learn([key, *header_secrets(entry.get("headers") or {})])
    address = _expand_address(address.strip().rstrip("/"), provider, credentials)
    return ModelEndpoint(provider, _check_address(address, source, provider), key, key_name)


def _expand_address(address: str, provider: ModelProvider, credentials: Credentials) -> str:
    """Return a base URL with the values of its variables, `${NAME}` or `${NAME:-default}`."""

    def value(found: re.Match[str]) -> str:
        text = credentials.get(found[1]) or found[2]
        if text is None:
            raise ConfigError(
                f"model.provider: the address of {provider.name} needs {found[1]}, which has no value",
                hint=f"Put {found[1]}=… into the file .env of the home, or set model.base_url.",
            )
        return text

    return _VARIABLE.sub(value, address)


def _check_address(base_url: str, source: str, provider: ModelProvider) -> str:
    if not base_url:
        raise ConfigError(
            f"model.base_url: the provider {provider.name} has no address of its own",
            hint="Set it with `hermes config set model.base_url http://HOST:PORT/v1`.",
        )
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"{source}: {base_url!r} is no address of a server", hint="Expected http://HOST:PORT/v1 or https://HOST/v1."
        )
    return base_url


def _key(provider: ModelProvider, credentials: Credentials) -> tuple[str, str]:
    """Return name and value of the provider's key, or two empty texts."""
    for name in provider.key_names:
        if value := (credentials.get(name) or "").strip():
            return name, value
    return "", ""


def _select_client_profile(
    profiles: Sequence[ClientProfile],
    block: Any,
    wish: _RequestedModel,
    credentials: Credentials,
    known: _KnownProviders,
    *,
    explicit: bool,
    why: str,
) -> ModelSelection:
    """Select a provider that brings its own client.

    Args:
        profiles: the selected one alone, or every provider of this kind if nothing else was selected.
        block: the block `model` of the config.
        explicit: whether the provider is named.

    Raises:
        ConfigError: the provider has no such model.
        UserError: none of them can answer, or a model is named that only another provider can have.
    """
    given = [(each, client_services(each, block, model=wish.model, is_selected=explicit)) for each in profiles]
    found = next(((each, services, name) for each, services in given if (name := each.find_model(services))), None)
    unused = "" if explicit or wish.model else _unused_key(known, credentials)
    if found is None and unused:
        raise UserError(
            f"{unused} is there, but no model is named.",
            hint="Name one of that provider with `hermes config set model.default NAME`.",
            exit_status=EXIT_USAGE,
        )
    if found is None or (wish.model not in ("", found[2]) and not explicit):
        raise missing_model_error((each.setup_hint(services) for each, services in given), wanted=wish.model)
    profile, services, name = found
    endpoint = ModelEndpoint(known.find(profile.name), "")
    others = f"no model is named for {unused}" if unused else "no other"
    return ModelSelection(
        endpoint=endpoint,
        model=name,
        reason=why or f"{endpoint.provider.display_name} is there and {others}",
        new_client=lambda: profile.make_client(services),
    )


def _unused_key(known: _KnownProviders, credentials: Credentials) -> str:
    """Return the name of an existing key of a provider, or "". No model is named."""
    guessed = (provider for provider in known.catalogue.providers() if is_selected_by_key(provider))
    return next((name for provider in guessed if (name := _key(provider, credentials)[0])), "")
