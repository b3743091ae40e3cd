"""Which providers there are: the bundled profiles, and those that plugins registered. Source: plugin contract §8.1."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from hermes_agent.contracts.model_provider import MODEL_PROVIDER, ProviderProfile
from hermes_agent.core.registry import BUILTIN, Conflict, Registry
from hermes_agent.models.bundled import BUNDLED_ORDER, bundled_profile
from hermes_agent.models.providers import ModelProvider, provider_from_profile

__all__ = ["ProviderCatalog"]

logger = logging.getLogger(__name__)


class ProviderCatalog:
    """Profiles by name and alias. A plugin's stands in for a bundled one of its name; of two plugins the first stays.

    The bundled ones are read one by one as they are asked for by name, and all of them when an alias, a host or the
    list is wanted.
    """

    def __init__(self, registered: Registry[ProviderProfile] | None = None) -> None:
        self._registered = Registry[ProviderProfile](MODEL_PROVIDER.label) if registered is None else registered
        self.owned_by, self.remove_owner = self._registered.owned_by, self._registered.remove_owner
        self.snapshot, self.restore = self._registered.snapshot, self._registered.restore
        self.refusals: list[Conflict] = []
        """What `providers.register_provider` could not take, since somebody else has the name."""

    def register(self, profile: ProviderProfile, owner: str) -> str:
        """Take a profile and return its name.

        Raises:
            Conflict: another plugin has the name; or, for code that no plugin owns, the agent has it.
            ValueError: it has no usable name.
        """
        name = profile.name.strip().lower() if isinstance(profile.name, str) else ""
        if not name:
            raise ValueError(
                f"a {MODEL_PROVIDER.label} needs a name: {type(profile).__name__}.name is {profile.name!r}"
            )
        if name in BUNDLED_ORDER and not owner:
            raise Conflict(MODEL_PROVIDER.label, name, BUILTIN, owner)
        self._registered.add(name, profile, owner=owner)
        if name in BUNDLED_ORDER:
            logger.warning("the model provider `%s` of plugin `%s` replaces the bundled one", name, owner)
        return name

    def profile(self, name: str) -> ProviderProfile | None:
        """Return the profile with this name or alias; case does not matter, names go before aliases."""
        wanted = name.strip().lower()
        found = self._registered.get(wanted)
        if found is not None:
            return found
        if wanted in BUNDLED_ORDER:
            return bundled_profile(wanted)
        own = [profile for _, profile in self._registered.items()]
        return next((p for p in (*own, *self.profiles()) if wanted in p.aliases), None)

    def get(self, name: str) -> ModelProvider | None:
        """Return the provider with this name or alias."""
        found = self.profile(name)
        return None if found is None else provider_from_profile(found)

    def profiles(self) -> list[ProviderProfile]:
        """Return every profile: the bundled ones in their order, those that stand in for them, then the others."""
        registered = dict(self._registered.items())
        bundled = [registered.pop(name) if name in registered else bundled_profile(name) for name in BUNDLED_ORDER]
        return [*bundled, *registered.values()]

    def providers(self) -> list[ModelProvider]:
        """Return every provider, in the order of `profiles`."""
        return [provider_from_profile(profile) for profile in self.profiles()]

    def names(self) -> list[str]:
        """Return every name; no profile is read for it."""
        return [*BUNDLED_ORDER, *(name for name in self._registered.names() if name not in BUNDLED_ORDER)]

    def find_by_url(self, base_url: str) -> ModelProvider | None:
        """Return the provider at whose host `base_url` points; None for a server that none of them runs."""
        try:
            host = urlsplit(base_url).hostname or ""
        except ValueError:
            return None
        found = (provider_from_profile(profile) for profile in self.profiles() if host and _hostname(profile) == host)
        return next((provider for provider in found if provider.needs_key), None)

    def owner(self, name: str) -> str | None:
        """Return whose the profile is: a plugin's key, or `builtin`."""
        return self._registered.owner(name) or (BUILTIN if name in BUNDLED_ORDER else None)

    def fork(self, without: str) -> ProviderCatalog:
        """Return a catalogue of its own with the same content, but for what `without` registered."""
        return ProviderCatalog(self._registered.fork(without))

    def adopt(self, owner: str, fork: ProviderCatalog) -> None:
        """Replace, in one step, what `owner` has here by what it has in `fork`."""
        self._registered.adopt(owner, fork._registered)


def _hostname(profile: ProviderProfile) -> str:
    try:
        return profile.get_hostname()
    except Exception as exc:  # noqa: BLE001 - a plugin's code: one that fails must not hide the others
        logger.warning("model provider `%s` cannot say its host: %s: %s", profile.name, type(exc).__name__, exc)
        return ""
