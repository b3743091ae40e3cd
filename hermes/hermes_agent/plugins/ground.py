"""What plugins stand on: the parts of a host that they register with. `host` passes itself in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from hermes_agent.commands import CommandRegistry
from hermes_agent.contracts.cli_command import CliCommand
from hermes_agent.core.registry import Registry
from hermes_agent.hooks import HookBus
from hermes_agent.plugins.gate import Secrets
from hermes_agent.tools import Dispatcher, ToolRegistry

__all__ = ["Ground", "Settings"]


class Settings(Protocol):
    """The effective configuration."""

    @property
    def values(self) -> dict[str, Any]:
        """Every setting, defaults included."""
        ...


class Ground(Protocol):
    """The parts of a host that a plugin touches."""

    @property
    def home(self) -> Path: ...
    @property
    def config(self) -> Settings: ...
    @property
    def credentials(self) -> Secrets: ...
    @property
    def tools(self) -> ToolRegistry: ...
    @property
    def hooks(self) -> HookBus: ...
    @property
    def commands(self) -> CommandRegistry: ...
    @property
    def cli_commands(self) -> Registry[CliCommand]: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
