"""What plugins stand on: the parts of a host that they register with, or forks of them. `host` passes itself in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hermes_agent.agent.inbox import InjectedMessages
from hermes_agent.commands import CommandTable
from hermes_agent.config.load import Layer
from hermes_agent.contracts.auxiliary_task import AuxiliaryTask
from hermes_agent.contracts.cli_command import CliCommand
from hermes_agent.contracts.platform.registry import PlatformRegistry
from hermes_agent.contracts.platform.slack_actions import SlackActions
from hermes_agent.core.registry import Registry
from hermes_agent.hooks import HookBus
from hermes_agent.plugins.account import UsageAccount
from hermes_agent.plugins.gate import SecretLookup
from hermes_agent.plugins.providers import Providers
from hermes_agent.sessions import UsageLedger
from hermes_agent.skills.registry import PluginSkills
from hermes_agent.tools import Dispatcher, ToolRegistry

if TYPE_CHECKING:
    from hermes_agent.io.bridge import Bridge
    from hermes_agent.models.catalogue import ProviderCatalog
    from hermes_agent.models.chosen import ClientPool
    from hermes_agent.models.selection import ModelSelection

__all__ = ["HostServices", "ModelServices", "ConfigValues", "StagedHost", "RegistrationStore"]


class ConfigValues(Protocol):
    """The effective configuration."""

    @property
    def values(self) -> dict[str, Any]:
        """Every setting, defaults included."""
        ...

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The files that it comes from, weakest first."""
        ...


class RegistrationStore(Protocol):
    """Where plugins register something: it can go back to how it was, and change what one plugin has."""

    def snapshot(self) -> Any: ...
    def restore(self, state: Any) -> None: ...
    def owned_by(self, owner: str) -> list[str]:
        """Return the names of what `owner` has here."""
        ...

    def remove_owner(self, owner: str) -> list[str]:
        """Forget everything of `owner` and return its names; what it had replaced comes back."""
        ...

    def fork(self, without: str) -> Any:
        """Return a store of its own with the same content, but for that of `without`: a new load registers there."""
        ...

    def adopt(self, owner: str, fork: Any) -> None:
        """Replace, in one step, what `owner` has here by what it has in `fork`."""
        ...


class ModelServices(Protocol):
    """What it takes to ask a model."""

    @property
    def home(self) -> Path: ...
    @property
    def config(self) -> ConfigValues: ...
    @property
    def bridge(self) -> Bridge: ...
    @property
    def clients(self) -> ClientPool: ...
    @property
    def ledger(self) -> UsageLedger | None:
        """Where calls are written down; None writes nothing."""
        ...

    def select_model(
        self, *, model: str = "", provider: str = "", profile: str = "", settings: Mapping[str, Any] | None = None
    ) -> ModelSelection:
        """Choose a model.

        Args:
            model: takes the place of the configured one.
            provider: takes the place of the configured one.
            profile: which of the provider's keys (`providers.<name>.profiles`).
            settings: take the place of the config's block `model`.

        Raises:
            UserError: there is none to be had.
            ValueError: the provider has no such profile.
        """
        ...


class HostServices(ModelServices, Protocol):
    """The parts of a host that a plugin touches."""

    @property
    def working_directory(self) -> Path:
        """Where tools work outside of a session; resolved."""
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
    def injected(self) -> InjectedMessages: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def account(self) -> UsageAccount: ...
    def reread_config(self) -> list[str]:
        """Read the config and the secrets again; return what changed and needs a restart.

        Raises:
            ConfigError: a setting is wrong; everything stays as it was.
        """
        ...

    @property
    def stores(self) -> tuple[RegistrationStore, ...]:
        """Every place where a plugin registers something; a failed `register` is undone in all of them."""
        ...


class StagedHost:
    """The host as a plugin sees it that is loaded while others, or its own older version, serve.

    Every store is a fork until `commit`; everything else is the host's. A plugin that is never committed leaves no
    trace, however late its threads register something.

    Args:
        owner: key of the plugin; the forks do not have what it registered before.
    """

    def __init__(self, ground: HostServices, owner: str) -> None:
        self._services = ground
        self._owner = owner
        self._forks: dict[int, tuple[RegistrationStore, Any]] = {
            id(store): (store, store.fork(owner)) for store in ground.stores
        }
        self._live = False

    def __getattr__(self, name: str) -> Any:
        return self.stand_in(getattr(self._services, name))

    @property
    def stores(self) -> tuple[RegistrationStore, ...]:
        """The forks, or after `commit` the host's stores."""
        return tuple(self.stand_in(store) for store in self._services.stores)

    def stand_in(self, store: Any) -> Any:
        """Return the fork that stands for `store`; anything else, and everything after `commit`, is itself."""
        if self._live:
            return store
        known = self._forks.get(id(store))
        return store if known is None else known[1]

    def commit(self) -> None:
        """Replace what the plugin had registered by what it has registered now."""
        for store, fork in self._forks.values():
            store.adopt(self._owner, fork)
        self._live = True
