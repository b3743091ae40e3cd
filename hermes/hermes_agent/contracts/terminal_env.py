"""Terminal environments: a place where commands run that is not one of the agent's own backends.

Selected by `terminal.backend`. Source: plugin contract §4.12; the provider's names are upstream's later ones, which
published plugins import.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Mapping
from typing import Any, Protocol

from hermes_agent.contracts.kind import Kind, Provider, SelectedProvider, describe_unregistered, read_setting

__all__ = [
    "BUILTIN_BACKENDS",
    "TERMINAL_ENV",
    "TerminalEnvironment",
    "TerminalEnvironmentProvider",
    "choose_terminal_env",
]

TERMINAL_ENV = Kind(
    "terminal_env", "register_terminal_environment_provider", "terminal environment provider", is_used=True
)

BUILTIN_BACKENDS = frozenset(
    {"local", "docker", "ssh", "singularity", "modal", "managed_modal", "daytona", "vercel_sandbox", "systemd", "bwrap"}
)
"""Names that are the agent's, or upstream's; a plugin cannot have one."""


class TerminalEnvironment(Protocol):
    """What `create_environment` returns: one place, for one task, until `cleanup`."""

    def execute(
        self, command: str, cwd: str = "", *, timeout: float | None = None, stdin_data: str | None = None
    ) -> Mapping[str, Any]:
        """Run a shell command and wait for it; keywords that it does not know are not passed.

        Returns:
            `output`, and `returncode` or `exit_code`; 124 means that the time was over.
        """
        ...

    def cleanup(self) -> None:
        """Give back what it holds."""
        ...


class TerminalEnvironmentProvider(Provider):
    """Makes terminal environments."""

    is_remote: bool = True
    """The commands run on another machine."""
    is_container: bool = True
    """It has a file system of its own, away from this machine's."""
    session_isolated_when_nonpersistent: bool = False
    """With `terminal.container_persistent: false` each session has its own."""

    @property
    def description(self) -> str:
        """What it is, in one sentence for people."""
        return f"Run commands in {self.display_name}."

    @property
    def skip_container_guards(self) -> bool:
        """Whether it can be thrown away, so that nobody is asked about dangerous commands in it."""
        return self.is_container

    @property
    def cache_path_base(self) -> str | None:
        """Where the agent's cached files appear in it; None when nothing is copied there."""
        return None

    @property
    def strip_env_keys(self) -> frozenset[str]:
        """Variables that no process of the agent may be given, though `terminal.env_passthrough` names them."""
        return frozenset()

    @property
    def env_description(self) -> str:
        """Where commands run, as the model is told."""
        return f"a {self.display_name} environment"

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Say whether it could be used now; without asking the network."""

    @abc.abstractmethod
    def create_environment(
        self,
        *,
        cwd: str,
        timeout: int,
        task_id: str = "default",
        image: str | None = None,
        container_config: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> TerminalEnvironment:
        """Make the environment of one task.

        Args:
            cwd: where commands begin; empty means its own choice.
            timeout: of a command that names none, in seconds.
            kwargs: `backend_config`, and what later versions add.
        """

    def check_requirements(self, config: dict[str, Any]) -> bool:
        """Say whether it can be used with these settings; by default `is_available()`."""
        return self.is_available()

    def probe(self) -> tuple[str, str]:
        """Return `ready`, `needs_setup` or `unavailable`, and a sentence about it."""
        return ("ready", "") if self.is_available() else ("needs_setup", f"{self.display_name} is not configured.")

    def probe_with_config(self, config: Mapping[str, Any]) -> tuple[str, str]:
        """`probe` with the settings; by default without them."""
        return self.probe()

    def setup_instructions(self) -> list[str]:
        """Return the lines that setup prints once it is selected."""
        return []

    def post_setup(self) -> None:
        """Ask for what it needs, when setup selected it."""
        return

    def doctor_checks(self) -> list[tuple[bool, str, str]]:
        """Return rows of `(ok, label, detail)` for people who look for a fault."""
        status, detail = self.probe()
        return [(status == "ready", f"{self.display_name} backend", detail)]

    def get_config_schema(self) -> dict[str, dict[str, Any]]:
        """Return the settings under `terminal.backends.<name>`: name to `type`, `description`, …"""
        return {}

    def resolve_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with defaults and secrets filled in; by default a copy."""
        return copy.deepcopy(dict(config))


def choose_terminal_env(
    providers: Mapping[str, TerminalEnvironmentProvider], values: Mapping[str, Any]
) -> SelectedProvider[TerminalEnvironmentProvider]:
    """Return the provider that `terminal.backend` names; none when it is one of the agent's own."""
    path = "terminal.backend"
    name = read_setting(values, path).lower()
    if not name or name in BUILTIN_BACKENDS:
        return SelectedProvider(None, f"{path} is `{name or 'local'}`, one of the agent's own")
    if name in providers:
        return SelectedProvider(providers[name], f"{path} names it")
    return SelectedProvider(None, describe_unregistered(path, name, "terminal"))
