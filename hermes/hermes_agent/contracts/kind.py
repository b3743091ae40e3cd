"""What is the same for every extension kind.

What the services that the operator picks by name have in common: web, browser, images, video, speech.

A provider has a `name`; a key of the config selects it. Source: plugin contract §8.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from hermes_agent.core.registry import Registry
from hermes_agent.system.installation import install_hint

__all__ = [
    "Kind",
    "ModelService",
    "Provider",
    "ProviderLookup",
    "SelectedProvider",
    "choose_by_name",
    "describe_unregistered",
    "first_id",
    "install_hint",
    "is_provider_available",
    "read_setting",
    "select_available",
    "select_by_name",
]


class Kind(NamedTuple):
    """One kind of extension.

    Attributes:
        name: the word for it in code, docs and reports (`tool`).
        ctx_method: how a plugin registers one (`register_tool`).
        label: the words for people (`slash command`).
        used: something in this release asks it; false for what is registered, listed and selected alone.
    """

    name: str
    ctx_method: str
    label: str
    is_used: bool = False


logger = logging.getLogger(__name__)

T = TypeVar("T")


class Provider(abc.ABC):
    """A service by name."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What the config calls it; short and lower case."""

    @property
    def display_name(self) -> str:
        """What people call it; by default the name as a title."""
        return self.name.replace("-", " ").replace("_", " ").title()

    def is_available(self) -> bool:
        """Say whether it could be used now; without asking the network."""
        return True

    def get_setup_schema(self) -> dict[str, Any]:
        """Return what setup shows: `name`, `badge`, `tag`, and `env_vars` (`key`, `prompt`, `url`, `default`)."""
        return {"name": self.display_name, "badge": "", "tag": "", "env_vars": []}


class ModelService(Provider):
    """A service that has several models."""

    def list_models(self) -> list[dict[str, Any]]:
        """Return the models, each with at least `id`."""
        return []

    def default_model(self) -> str | None:
        """Return the model that is used when none is named: the first of the list."""
        return first_id(self.list_models())


class SelectedProvider(NamedTuple, Generic[T]):
    """Which provider the config selects."""

    provider: T | None
    reason: str
    """The reason, also when there is none: one sentence for people."""


class ProviderLookup(Protocol):
    """The providers that plugins registered, by kind."""

    def __getitem__(self, kind: str, /) -> Registry[Any]:
        """Return the providers of a kind."""
        ...

    def choose(self, kind: str, values: Mapping[str, Any]) -> SelectedProvider[Any]:
        """Return the provider of a kind that the effective config selects, with the reason."""
        ...


def read_setting(values: Mapping[str, Any], path: str) -> str:
    """Return the text at a dotted path of the effective config, stripped; empty when there is none."""
    value: Any = values
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value.strip() if isinstance(value, str) else ""


def is_provider_available(provider: Any) -> bool:
    """Ask `is_available()`; a provider that raises is not available, and the log says so."""
    try:
        return bool(provider.is_available())
    except Exception as exc:  # noqa: BLE001 - a plugin's code: one that fails must not hide the others
        logger.warning(
            "provider '%s' cannot say whether it is available: %s: %s", provider.name, type(exc).__name__, exc
        )
        return False


def describe_unregistered(path: str, name: str, what: str) -> str:
    """Return the sentence for a name in the config that no plugin registered.

    Args:
        what: the kind of backend, in words (`image gen`).
    """
    return (
        f"{path}='{name}' is set but no plugin registered that name. Run `hermes plugins list` to see available "
        f"{what} backends."
    )


def select_by_name(
    providers: Mapping[str, T], values: Mapping[str, Any], path: str, what: str
) -> SelectedProvider[T] | None:
    """Return the provider that the config names at `path`, also one that is not available; None when it names nobody.

    Args:
        what: as for `describe_unregistered`.
    """
    name = read_setting(values, path)
    if not name:
        return None
    if name in providers:
        return SelectedProvider(providers[name], f"{path} names it")
    return SelectedProvider(None, describe_unregistered(path, name, what))


def select_available(providers: Mapping[str, T], path: str, *, otherwise: str = "") -> SelectedProvider[T]:
    """Return the one provider that is available; of several the one called `otherwise`, else none."""
    usable = [name for name, provider in providers.items() if is_provider_available(provider)]
    if len(usable) == 1:
        return SelectedProvider(providers[usable[0]], f"`{usable[0]}` is the only one available")
    if otherwise in usable:
        return SelectedProvider(providers[otherwise], f"{path} is not set; of several `{otherwise}` is taken")
    if usable:
        return SelectedProvider(None, f"several are available ({', '.join(usable)}): {path} says which")
    return SelectedProvider(None, "none is available")


def choose_by_name(
    providers: Mapping[str, Any], values: Mapping[str, Any], section: str, builtin: frozenset[str]
) -> SelectedProvider[Any]:
    """Return what `<section>.provider` names: the agent's own names win, then programs, then plugins."""
    path = f"{section}.provider"
    name = read_setting(values, path)
    if name in builtin:
        return SelectedProvider(None, f"{path} names `{name}`, which is not a plugin's")
    if name and read_setting(values, f"{section}.providers.{name}.command"):
        return SelectedProvider(None, f"{path} names `{name}`, a program under {section}.providers")
    return select_by_name(providers, values, path, section) or SelectedProvider(None, f"{path} is not set")


def first_id(entries: list[dict[str, Any]]) -> str | None:
    """Return the `id` of the first entry, None when there is none."""
    return str(entries[0]["id"]) if entries and entries[0].get("id") else None
