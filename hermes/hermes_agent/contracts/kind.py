"""`Kind`, the record of an extension kind, and the base of providers that the config selects by name.

Source: plugin contract §8.
"""

from __future__ import annotations

import abc
import importlib
import logging
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
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
    "import_sdk",
    "install_hint",
    "is_provider_available",
    "read_setting",
    "select_available",
    "select_by_name",
]


class Kind(LazyNamedTuple):
    """Description of an extension kind.

    Attributes:
        name: the term in code, docs and reports (`tool`).
        ctx_method: the method of `ctx` that registers an extension (`register_tool`).
        label: the term in messages (`slash command`).
        is_used: whether this release calls such extensions; otherwise it registers, lists and selects them only.
    """

    name: str
    ctx_method: str
    label: str
    is_used: bool = False


logger = logging.getLogger(__name__)

T = TypeVar("T")


class Provider(abc.ABC):
    """A service that the config selects by its name."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name that selects it in the config: short and lower case."""

    @property
    def display_name(self) -> str:
        """The name that users see; by default the name in title case."""
        return self.name.replace("-", " ").replace("_", " ").title()

    def is_available(self) -> bool:
        """Return whether it can be used now, without a network request."""
        return True

    def get_setup_schema(self) -> dict[str, Any]:
        """Return what the setup shows: `name`, `badge`, `tag`, `env_vars` (`key`, `prompt`, `url`, `default`)."""
        return {"name": self.display_name, "badge": "", "tag": "", "env_vars": []}


class ModelService(Provider):
    """A provider with several models."""

    def list_models(self) -> list[dict[str, Any]]:
        """Return the models, each with at least `id`."""
        return []

    def default_model(self) -> str | None:
        """Return the id of the model that is used by default: the first of the list."""
        return first_id(self.list_models())


class SelectedProvider(LazyNamedTuple, Generic[T]):
    """The provider that the config selects."""

    provider: T | None
    reason: str
    """One sentence for users: why it is selected, or why there is none."""


class ProviderLookup(Protocol):
    """The providers that plugins registered, by kind."""

    def __getitem__(self, kind: str, /) -> Registry[Any]:
        """Return the providers of a kind."""
        ...

    def choose(self, kind: str, values: Mapping[str, Any]) -> SelectedProvider[Any]:
        """Return the provider of a kind that the effective config selects, with the reason."""
        ...


def read_setting(values: Mapping[str, Any], path: str) -> str:
    """Return the stripped text at a dotted path of the effective config; "" if there is none."""
    value: Any = values
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value.strip() if isinstance(value, str) else ""


def is_provider_available(provider: Any) -> bool:
    """Return the result of `is_available()`; a provider that raises is logged and counts as unavailable."""
    try:
        return bool(provider.is_available())
    except Exception as exc:  # noqa: BLE001 - plugin code: a failing provider must not hide the others
        logger.warning("provider '%s': is_available() failed: %s: %s", provider.name, type(exc).__name__, exc)
        return False


def describe_unregistered(path: str, name: str, what: str) -> str:
    """Return the sentence about a configured name that no plugin registered.

    Args:
        what: the kind of backend (`image gen`).
    """
    return (
        f"{path}='{name}' is set but no plugin registered that name. Run `hermes plugins list` to see available "
        f"{what} backends."
    )


def select_by_name(
    providers: Mapping[str, T], values: Mapping[str, Any], path: str, what: str
) -> SelectedProvider[T] | None:
    """Return the provider that the config names at `path`, available or not; None if it names none.

    Args:
        what: the kind of backend, as for `describe_unregistered`.
    """
    name = read_setting(values, path)
    if not name:
        return None
    if name in providers:
        return SelectedProvider(providers[name], f"{path} names it")
    return SelectedProvider(None, describe_unregistered(path, name, what))


def select_available(providers: Mapping[str, T], path: str, *, otherwise: str = "") -> SelectedProvider[T]:
    """Return the only available provider; of several, the provider named `otherwise`, or none."""
    usable = [name for name, provider in providers.items() if is_provider_available(provider)]
    if len(usable) == 1:
        return SelectedProvider(providers[usable[0]], f"`{usable[0]}` is the only one available")
    if otherwise in usable:
        return SelectedProvider(providers[otherwise], f"{path} is not set; `{otherwise}` is used of several")
    if usable:
        return SelectedProvider(None, f"several are available ({', '.join(usable)}); set {path}")
    return SelectedProvider(None, "none is available")


def choose_by_name(
    providers: Mapping[str, Any], values: Mapping[str, Any], section: str, builtin: frozenset[str]
) -> SelectedProvider[Any]:
    """Return the provider that `<section>.provider` names, in this order: built in, program, plugin."""
    path = f"{section}.provider"
    name = read_setting(values, path)
    if name in builtin:
        return SelectedProvider(None, f"{path} names `{name}`, which is built in")
    if name and read_setting(values, f"{section}.providers.{name}.command"):
        return SelectedProvider(None, f"{path} names `{name}`, a program under {section}.providers")
    return select_by_name(providers, values, path, section) or SelectedProvider(None, f"{path} is not set")


def first_id(entries: list[dict[str, Any]]) -> str | None:
    """Return the `id` of the first entry, or None."""
    return str(entries[0]["id"]) if entries and entries[0].get("id") else None


def import_sdk(module: str, extra: str) -> Any:
    """Return the module of the SDK that an extra installs.

    Raises:
        UserError: the SDK is not installed; the text names the extra and the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name != module:
            raise
        raise UserError(
            f"the package {module} is not installed: the extra `{extra}` has it, {install_hint(extra)}"
        ) from exc
