"""The providers that plugins registered: a registry for each kind, and which one the config selects.

Source: plugin contract §2.2, §8.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from hermes_agent.contracts.browser import BROWSER, BrowserProvider, choose_browser
from hermes_agent.contracts.context_engine import CONTEXT_ENGINE, ContextEngine, choose_context_engine
from hermes_agent.contracts.cron_scheduler import CRON_SCHEDULER, CronScheduler, choose_cron_scheduler
from hermes_agent.contracts.dashboard_auth import DASHBOARD_AUTH, DashboardAuthProvider
from hermes_agent.contracts.image_gen import IMAGE_GEN, ImageGenProvider, choose_image_gen
from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.memory import MEMORY, MemoryProvider, check_memory_provider, choose_memory
from hermes_agent.contracts.provider import SelectedProvider
from hermes_agent.contracts.secret_source import SECRET_SOURCE, SecretSource, check_secret_source
from hermes_agent.contracts.terminal_env import (
    BUILTIN_BACKENDS,
    TERMINAL_ENV,
    TerminalEnvironmentProvider,
    choose_terminal_env,
)
from hermes_agent.contracts.transcription import (
    BUILTIN_STT,
    TRANSCRIPTION,
    TranscriptionProvider,
    choose_transcription,
)
from hermes_agent.contracts.tts import BUILTIN_TTS, TTS, TTSProvider, choose_tts
from hermes_agent.contracts.video_gen import VIDEO_GEN, VideoGenProvider, choose_video_gen
from hermes_agent.contracts.web_search import WEB_SEARCH, WebSearchProvider, choose_web_search
from hermes_agent.core.registry import BUILTIN, Conflict, Registry, RegistryEntry

__all__ = ["KINDS", "ProviderKind", "Providers", "WrongProviderType", "provider_name"]


class WrongProviderType(Exception):
    """What a plugin wants to register is not of the kind; the text ends its log line."""


class ProviderKind(NamedTuple):
    """How providers of one kind are registered and selected."""

    kind: Kind
    contract: type[Any]
    choose: Callable[[Mapping[str, Any], Mapping[str, Any]], SelectedProvider[Any]] | None = None
    """`choose(providers, config values)`; None where all of them are used."""
    refuse: Callable[[Any], str] | None = None
    """Returns why something is not of the kind, empty when it is; None asks for a subclass of the contract."""
    reserved: frozenset[str] = frozenset()
    """Names that the agent keeps for itself."""
    single: bool = False
    """There is one for the process; whoever comes first."""
    lenient: bool = False
    """An unusable name is refused with a line in the log; elsewhere it raises."""


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


class Providers:
    """A registry for each of `KINDS`; each is empty until a plugin registers something."""

    def __init__(self) -> None:
        self._registries: dict[str, Registry[Any]] = {n: Registry(k.kind.label) for n, k in KINDS.items()}
        self.memory_plugin = ""
        """Key of the plugin that `memory.provider` names; what it registers is chosen, whatever its own name is."""

    def __getitem__(self, kind: str) -> Registry[Any]:
        """Return the registry of a kind.

        Raises:
            KeyError: there is no such kind.
        """
        return self._registries[kind]

    def add(self, kind: str, provider: Any, *, owner: str) -> str:
        """Register a provider and return its name.

        Raises:
            WrongProviderType: it is not of the kind.
            ValueError: it has no usable name.
            Conflict: somebody else has the name.
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

    def snapshot(self) -> dict[str, dict[str, RegistryEntry[Any]]]:
        """Return the state for `restore`."""
        return {kind: registry.snapshot() for kind, registry in self._registries.items()}

    def restore(self, state: dict[str, dict[str, RegistryEntry[Any]]]) -> None:
        """Go back to a `snapshot`."""
        for kind, registered in state.items():
            self._registries[kind].restore(registered)

    def fork(self, without: str) -> Self:
        """Return providers of their own with the same content, but for those of `without`."""
        fork = copy.copy(self)
        fork._registries = {kind: registry.fork(without) for kind, registry in self._registries.items()}
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace what `owner` has here by what it has in `fork`."""
        for kind, registry in self._registries.items():
            registry.adopt(owner, fork[kind])

    def remove_owner(self, owner: str) -> list[str]:
        """Forget the providers of `owner` and return their names."""
        return [name for registry in self._registries.values() for name in registry.remove_owner(owner)]

    def owned_by(self, owner: str) -> list[str]:
        """Return the names of the providers of `owner`."""
        return [name for registry in self._registries.values() for name in registry.owned_by(owner)]


def provider_name(kind: Kind, provider: Any) -> str:
    """Return the provider's name.

    Raises:
        ValueError: it is empty or no text.
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
