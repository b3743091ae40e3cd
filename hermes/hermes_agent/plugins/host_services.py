"""Host services for plugins: provider registries, the stores of a host, and staged copies of them.

`HostServices` lists the parts of a host that a plugin may use; `host` passes itself in. `StagedHost` gives a plugin
forks of the stores while it loads. Source: plugin contract §2.2, §8.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from hermes_agent.adapters.questions import SlackActions
from hermes_agent.adapters.registry import PlatformRegistry
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.commands import CommandTable
from hermes_agent.config.load import Layer
from hermes_agent.config.settings import Settings
from hermes_agent.contracts.command import CLI_COMMAND, CliCommand
from hermes_agent.contracts.context_engine import CONTEXT_ENGINE, ContextEngine, choose_context_engine
from hermes_agent.contracts.cron_scheduler import CRON_SCHEDULER, CronScheduler, choose_cron_scheduler
from hermes_agent.contracts.dashboard_auth import DASHBOARD_AUTH, DashboardAuthProvider
from hermes_agent.contracts.image_video import (
    IMAGE_GEN,
    VIDEO_GEN,
    ImageGenProvider,
    VideoGenProvider,
    choose_image_gen,
    choose_video_gen,
)
from hermes_agent.contracts.kind import Kind, SelectedProvider
from hermes_agent.contracts.memory import MEMORY, MemoryProvider, check_memory_provider, choose_memory
from hermes_agent.contracts.model_provider import AUXILIARY_TASK, AuxiliaryTask
from hermes_agent.contracts.secret_source import SECRET_SOURCE, SecretSource, check_secret_source
from hermes_agent.contracts.speech import (
    BUILTIN_STT,
    BUILTIN_TTS,
    TRANSCRIPTION,
    TTS,
    TranscriptionProvider,
    TTSProvider,
    choose_transcription,
    choose_tts,
)
from hermes_agent.contracts.terminal_env import (
    BUILTIN_BACKENDS,
    TERMINAL_ENV,
    TerminalEnvironmentProvider,
    choose_terminal_env,
)
from hermes_agent.contracts.web import (
    BROWSER,
    WEB_SEARCH,
    BrowserProvider,
    WebSearchProvider,
    choose_browser,
    choose_web_search,
)
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import BUILTIN, Conflict, RegistrationStore, Registry, StoreGroup, Stores
from hermes_agent.hooks import HookBus
from hermes_agent.models.model_routes import ModelRoutes
from hermes_agent.models.providers import ProviderCatalog
from hermes_agent.plugins.activation import SecretLookup
from hermes_agent.plugins.extension_stores import ExtensionStores
from hermes_agent.plugins.usage_account import UsageAccount
from hermes_agent.sessions import UsageLedger
from hermes_agent.skills.library import PluginSkills
from hermes_agent.tools import Dispatcher, ToolRegistry

if TYPE_CHECKING:
    from hermes_agent.agent.subagents import Subagents
    from hermes_agent.models.client_pool import ClientPool
    from hermes_agent.models.selection import ModelSelection
    from hermes_agent.runtime.bridge import Bridge


class WrongProviderType(Exception):
    """The object to register is not of the provider kind; the text is the end of the log line."""


class ProviderKind(LazyNamedTuple):
    """Rules of registration and selection for one kind of providers."""

    kind: Kind
    contract: type[Any]
    choose: Callable[[Mapping[str, Any], Mapping[str, Any]], SelectedProvider[Any]] | None = None
    """`choose(providers, config values)`; None if all providers of the kind are used."""
    refuse: Callable[[Any], str] | None = None
    """Function that returns why an object is not of the kind, or ""; None requires a subclass of the contract."""
    reserved: frozenset[str] = frozenset()
    """Names that plugins may not use."""
    single: bool = False
    """The process has one provider of this kind; the first registration wins."""
    lenient: bool = False
    """Log an unusable name and refuse the provider; for other kinds an unusable name raises."""


KINDS: dict[str, ProviderKind] = {
    k.kind.name: k
    for k in (
        ProviderKind(WEB_SEARCH, WebSearchProvider, choose_web_search),
        ProviderKind(TTS, TTSProvider, choose_tts, reserved=BUILTIN_TTS),
        ProviderKind(TRANSCRIPTION, TranscriptionProvider, choose_transcription, reserved=BUILTIN_STT),
        ProviderKind(IMAGE_GEN, ImageGenProvider, choose_image_gen),
        ProviderKind(VIDEO_GEN, VideoGenProvider, choose_video_gen),
        ProviderKind(BROWSER, BrowserProvider, choose_browser),
        ProviderKind(TERMINAL_ENV, TerminalEnvironmentProvider, choose_terminal_env, reserved=BUILTIN_BACKENDS),
        ProviderKind(SECRET_SOURCE, SecretSource, refuse=check_secret_source),
        ProviderKind(DASHBOARD_AUTH, DashboardAuthProvider, lenient=True),
        ProviderKind(CONTEXT_ENGINE, ContextEngine, choose_context_engine, single=True),
        ProviderKind(CRON_SCHEDULER, CronScheduler, choose_cron_scheduler),
        ProviderKind(MEMORY, MemoryProvider, choose_memory, refuse=check_memory_provider),
    )
}


class Providers(StoreGroup):
    """A provider registry for each of `KINDS`; each is empty until a plugin registers a provider."""

    def __init__(self) -> None:
        self._registries: dict[str, Registry[Any]] = {n: Registry(k.kind.label) for n, k in KINDS.items()}
        self.memory_plugin = ""
        """Key of the plugin that `memory.provider` names; its memory is selected under any name."""

    def __getitem__(self, kind: str) -> Registry[Any]:
        """Return the registry of a kind.

        Raises:
            KeyError: there is no such kind.
        """
        return self._registries[kind]

    def add(self, kind: str, provider: Any, *, owner: str) -> str:
        """Register a provider and return its name.

        Raises:
            WrongProviderType: the object is not of the kind.
            ValueError: the provider has no usable name.
            Conflict: another owner has the name.
        """
        spec = KINDS[kind]
        _check_type(spec, provider)
        name = provider_name(spec.kind, provider)
        if name in spec.reserved:
            raise Conflict(spec.kind.label, name, BUILTIN, owner)
        self._check_single(spec, name, owner)
        self._registries[kind].add(name, provider, owner=owner)
        return name

    def choose(self, kind: str, values: Mapping[str, Any]) -> SelectedProvider[Any]:
        """Return the provider of a kind that the config selects, with the reason.

        Args:
            values: the effective config.
        """
        choose = KINDS[kind].choose
        if choose is None:
            return SelectedProvider(None, "all of them are used")
        choice = choose(dict(self._registries[kind].items()), values)
        if kind == MEMORY.name and choice.provider is None and self.memory_plugin:
            for name in self._registries[kind].owned_by(self.memory_plugin):
                return SelectedProvider(
                    self._registries[kind].get(name), f"memory.provider names its plugin `{self.memory_plugin}`"
                )
        return choice

    def _check_single(self, spec: ProviderKind, name: str, owner: str) -> None:
        registry = self._registries[spec.kind.name]
        for present in registry.names() if spec.single else ():
            if registry.owner(present) != owner:
                raise Conflict(spec.kind.label, present, registry.owner(present) or "", owner)
            if present != name:
                raise WrongProviderType(f"comes second, after its own `{present}`")

    def stores(self) -> tuple[RegistrationStore, ...]:
        """Return the registries of all kinds."""
        return tuple(self._registries.values())

    def with_stores(self, stores: Iterable[RegistrationStore]) -> Self:
        """Return a copy with other registries."""
        other = copy.copy(self)
        other._registries = dict(zip(self._registries, stores, strict=True))  # type: ignore[arg-type]
        return other


def provider_name(kind: Kind, provider: Any) -> str:
    """Return the provider's name.

    Raises:
        ValueError: the name is empty or no text.
    """
    name = getattr(provider, "name", None)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a {kind.label} needs a name: {type(provider).__name__}.name is {name!r}")
    return name.strip()


def _check_type(spec: ProviderKind, provider: Any) -> None:
    if spec.refuse is not None:
        reason = spec.refuse(provider)
        if reason:
            raise WrongProviderType(reason)
    elif not isinstance(provider, spec.contract):
        raise WrongProviderType(f"does not inherit from {spec.contract.__name__}")


class PluginStores:
    """The stores for extensions that no built-in feature registers; all are empty at first."""

    def __init__(self) -> None:
        self.cli_commands: Registry[CliCommand] = Registry(CLI_COMMAND.label)
        self.providers = Providers()
        self.plugin_skills = PluginSkills()
        self.model_providers = ProviderCatalog()
        self.auxiliary_tasks: Registry[AuxiliaryTask] = Registry(AUXILIARY_TASK.label)
        self.platforms = PlatformRegistry()
        self.slack_actions = SlackActions()


class ConfigValues(Protocol):
    """The effective config."""

    @property
    def values(self) -> dict[str, Any]:
        """Every setting, defaults included."""
        ...

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The config files in effect, weakest first."""
        ...

    @property
    def settings(self) -> Settings:
        """The values with their types."""
        ...


class ModelServices(Protocol):
    """The services that a model request needs."""

    @property
    def home(self) -> Path: ...
    @property
    def config(self) -> ConfigValues: ...
    @property
    def bridge(self) -> Bridge: ...
    @property
    def clients(self) -> ClientPool: ...
    @property
    def model_routes(self) -> ModelRoutes: ...
    @property
    def ledger(self) -> UsageLedger | None:
        """The ledger that records calls; None records nothing."""
        ...

    def select_model(
        self, *, model: str = "", provider: str = "", profile: str = "", settings: Mapping[str, Any] | None = None
    ) -> ModelSelection:
        """Select a model.

        Args:
            model: replaces the configured model.
            provider: replaces the configured provider.
            profile: selects one of the provider's keys (`providers.<name>.profiles`).
            settings: replace the block `model` of the config.

        Raises:
            UserError: no model is available.
            ValueError: the provider has no such profile.
        """
        ...


class ConnectedPlatforms(Protocol):
    """The gateway, as plugins use it."""

    def connected_adapter(self, platform: str) -> Any:
        """Return the connected adapter of a platform.

        Raises:
            LookupError: it is not configured, or not connected.
        """
        ...

    async def inject(self, text: str, *, session_key: str | None, origin: Mapping[str, Any] | None) -> str:
        """Queue a message of a plugin for a chat; return why it is not queued, or ""."""
        ...


class HostServices(ModelServices, Protocol):
    """The parts of a host that a plugin may use."""

    @property
    def working_directory(self) -> Path:
        """Absolute directory in which tools work outside a session."""
        ...

    @property
    def credentials(self) -> SecretLookup: ...
    @property
    def tools(self) -> ToolRegistry: ...
    @property
    def hooks(self) -> HookBus: ...
    @property
    def commands(self) -> CommandTable: ...
    @property
    def cli_commands(self) -> Registry[CliCommand]: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def plugin_skills(self) -> PluginSkills: ...
    @property
    def model_providers(self) -> ProviderCatalog: ...
    @property
    def auxiliary_tasks(self) -> Registry[AuxiliaryTask]: ...
    @property
    def platforms(self) -> PlatformRegistry: ...
    @property
    def slack_actions(self) -> SlackActions: ...
    @property
    def extensions(self) -> ExtensionStores: ...
    @property
    def injected(self) -> InjectedMessages: ...
    @property
    def running_gateway(self) -> Callable[[], ConnectedPlatforms | None]:
        """Return the gateway of this process, or None if it serves no chat platforms."""
        ...

    @property
    def subagents(self) -> Subagents: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def account(self) -> UsageAccount: ...
    def reread_config(self) -> list[str]:
        """Read the config and the secrets again; return the changed settings that need a restart.

        Raises:
            ConfigError: a setting is invalid; the old config stays in effect.
        """
        ...

    @property
    def stores(self) -> Stores:
        """The stores in which a plugin registers; a failed `register` is undone in all of them."""
        ...


class StagedHost:
    """View of the host for a plugin that loads while other plugins, or its older version, run.

    Every store is a fork until `commit`; everything else is the host's. A plugin that is never committed leaves no
    registration, however late its threads register something.

    Args:
        owner: key of the plugin; the forks lack its earlier registrations.
    """

    def __init__(self, services: HostServices, owner: str) -> None:
        self._services = services
        self._owner = owner
        self._forks: Stores = services.stores.fork(owner)
        self._staged = dict(zip(map(id, services.stores), self._forks, strict=True))
        self._live = False

    def __getattr__(self, name: str) -> Any:
        return self.stand_in(getattr(self._services, name))

    @property
    def stores(self) -> Stores:
        """The forks, or after `commit` the host's stores."""
        return self._services.stores if self._live else self._forks

    def stand_in(self, store: Any) -> Any:
        """Return the fork of `store`, or `store` itself if it has none or after `commit`."""
        return store if self._live else self._staged.get(id(store), store)

    def commit(self) -> None:
        """Replace the plugin's earlier registrations by its present ones."""
        self._services.stores.adopt(self._owner, self._forks)
        self._live = True
