"""Loading of the built-in features: `register(ctx, deps)` of each module in `features.txt`, in order.

`deps` is a NamedTuple. Its fields name the services that the feature needs: attributes of the host, or services that an
earlier feature provided. A feature provides services by returning a NamedTuple. So the host names no feature.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import hermes_agent
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.contracts.tool import ApprovalRequest, Effect
from hermes_agent.core.registry import BUILTIN
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.context_registrations import PluginLookup
from hermes_agent.plugins.handles import PluginRegistration
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.registration import register_tool

T = TypeVar("T")

TABLE = Path(hermes_agent.__file__).with_name("features.txt")


class BuiltinContext(PluginContext):
    """The context of built-in features, a `Registrar`: the context of a plugin with the owner `builtin`."""

    def __init__(self, services: HostServices, plugins: PluginLookup) -> None:
        record = LoadedPlugin(PluginManifest(BUILTIN, source="bundled", key=BUILTIN), "enabled")
        super().__init__(services, record, PluginSettings(), plugins)
        self.close_calls: list[Callable[[], Awaitable[object]]] = []
        self.reload_calls: list[Callable[[], object]] = []
        self.loaded_calls: list[Callable[[], object]] = []
        self.daily_calls: list[Callable[[], int]] = []

    def register_tool(
        self,
        name: str,
        toolset: str | None = None,
        schema: dict[str, Any] | None = None,
        handler: Callable[..., Any] | None = None,
        check_fn: Callable[[], Any] | None = None,
        requires_env: list[str] | None = None,
        is_async: bool = False,
        description: str = "",
        emoji: str = "",
        override: bool = False,
        *,
        parallel_safe: bool | Callable[[dict[str, Any]], str] = False,
        idempotent: bool = False,
        effect: Effect | None = None,
        approval: Callable[[dict[str, Any]], ApprovalRequest | str | None] | None = None,
        dynamic_schema_overrides: Callable[[], dict[str, Any]] | None = None,
        max_result_size_chars: float | None = None,
        destinations: Callable[[Mapping[str, Any]], Iterable[str]] | None = None,
    ) -> PluginRegistration | None:
        """Register a tool, with what only built-in tools may declare (`Registrar.register_tool`)."""
        return register_tool(
            self.registration,
            name,
            toolset,
            schema,
            handler,
            override=override,
            check_fn=check_fn,
            requires_env=requires_env,
            is_async=is_async,
            description=description,
            emoji=emoji,
            parallel_safe=parallel_safe,
            idempotent=idempotent,
            effect=effect,
            approval=approval,
            dynamic_schema_overrides=dynamic_schema_overrides,
            max_result_size_chars=max_result_size_chars,
            destinations=destinations,
        )

    def register_slash_command(self, command: SlashCommand) -> None:
        """Register a slash command with its rights, front ends, aliases and confirmation."""
        self._services.commands.register(command, owner=BUILTIN)

    def on_close(self, close: Callable[[], Awaitable[object]]) -> None:
        """Call `close` when the host closes, in the order of registration."""
        self.close_calls.append(close)

    def on_reload(self, apply: Callable[[], object]) -> None:
        """Call `apply`, in a worker, after the host read the config again."""
        self.reload_calls.append(apply)

    def on_plugins_loaded(self, apply: Callable[[], object]) -> None:
        """Call `apply` after the plugins of the start were loaded."""
        self.loaded_calls.append(apply)

    def every_day(self, prune: Callable[[], int]) -> None:
        """Call `prune` once a day in a worker; it returns the number of removed items."""
        self.daily_calls.append(prune)


class FeatureServices:
    """The services of a host by name: its own attributes, and what features provided.

    Args:
        host: the attributes of this object are services.
    """

    def __init__(self, host: object) -> None:
        self._host = host
        self._provided: dict[str, Any] = {}

    def load(self, ctx: BuiltinContext) -> None:
        """Register every feature.

        Raises:
            LookupError: a feature needs a service that neither the host nor an earlier feature has.
        """
        for name in feature_modules():
            module = importlib.import_module(name)
            deps = getattr(module, module.register.__annotations__["deps"])
            provided = module.register(ctx, deps(*(self._find_service(name, field) for field in deps._fields)))
            if provided is not None:
                self._provided |= provided._asdict()

    def __getitem__(self, name: str) -> Any:
        """Return a service that a feature provided."""
        return self._provided[name]

    def find(self, kind: type[T]) -> T:
        """Return the service of a class that a feature provided.

        Raises:
            LookupError: no feature provided it.
        """
        for service in self._provided.values():
            if isinstance(service, kind):
                return service
        raise LookupError(f"no feature provides a {kind.__name__}; those of {TABLE.name} are registered")

    def _find_service(self, feature: str, name: str) -> Any:
        if name in self._provided:
            return self._provided[name]
        try:
            return getattr(self._host, name)
        except AttributeError:
            raise LookupError(
                f"{feature} needs `{name}`: the host has no such attribute, and no feature above it in {TABLE.name}"
                " provides it"
            ) from None


def feature_modules() -> list[str]:
    """Return the modules of the built-in features, in load order."""
    return TABLE.read_text(encoding="utf-8").split()
