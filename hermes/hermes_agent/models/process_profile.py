"""Model providers that are programs of this machine: profiles with `process_command`.

A program is asked over the Agent Client Protocol (ACP) on its standard input and output. A profile that overrides
`create_client` brings another client. The operator selects such a provider by name: nothing else starts the program.

Source: plugin contract of 0.23 §9.8.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from hermes_agent.contracts.model_client import ClientProfile, ClientServices, ModelClient, SetupHint
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.core.errors import ConfigError
from hermes_agent.core.lazy_types import lazy_dataclass


@lazy_dataclass
class ProcessProfile(ClientProfile):
    """The profile of a plugin's program, as a provider that brings its own client."""

    given: ProviderProfile = field(kw_only=True)
    """The profile as the plugin registered it."""

    @property
    def brings_client(self) -> bool:
        """Whether the plugin has a client of its own for the program."""
        return type(self.given).create_client is not ProviderProfile.create_client

    def find_model(self, services: ClientServices) -> str:
        """Return the requested model, else the profile's first; "" if the provider is not named."""
        if not services.is_selected:
            return ""
        program = find_program(self.given)
        if program is None:
            raise ConfigError(
                f"model.provider: {self.name} needs the program `{self._command}`, which is not on the PATH",
                hint=self._how_to_install(),
            )
        named = (services.model, self.default_model, *self.fallback_models, self.default_aux_model)
        return next(filter(None, named), self.name)

    def make_client(self, services: ClientServices) -> ModelClient:
        """Return the client; it starts nothing before its first request."""
        from hermes_agent.models.process_client import AcpModelClient, OwnModelClient

        client = OwnModelClient if self.brings_client else AcpModelClient
        return client(self.given, self.command)

    def command(self) -> list[str]:
        """Return the path of the program, and its arguments."""
        name, *arguments = program_command(self.given)
        return [find_program(self.given) or name, *arguments]

    def setup_hint(self, services: ClientServices) -> SetupHint | None:
        """Return how to select the program; None for a hidden one."""
        if self.hidden:
            return None
        first = "" if find_program(self.given) else f"     {self._how_to_install()}\n"
        name = self.display_name or self.name
        return SetupHint(
            f"{name}, the program `{self._command}` of this machine:\n{first}"
            f"     hermes config set model.provider {self.name}"
        )

    def fetch_models(
        self, *, api_key: str | None = None, base_url: str | None = None, timeout: float = 8.0
    ) -> list[str] | None:
        """Return the models that the plugin's own method names; None without such a method."""
        if type(self.given).fetch_models is ProviderProfile.fetch_models:
            return None
        return self.given.fetch_models(api_key=api_key, base_url=base_url, timeout=timeout)

    @property
    def _command(self) -> str:
        return program_command(self.given)[0]

    def _how_to_install(self) -> str:
        names = " or ".join(self.given.process_command_env_vars)
        return f"Install `{self._command}`" + (f", or set {names} to its path." if names else ".")


def profile_of_program(profile: ProviderProfile) -> ProcessProfile:
    """Return a profile with `process_command` as one that brings its client."""
    values: dict[str, Any] = {each.name: getattr(profile, each.name) for each in fields(ProviderProfile)}
    values["needs_key"] = False
    values["description"] = profile.description or f"a program of this machine, `{profile.process_command}`"
    sees = profile.supports_vision and type(profile).create_client is not ProviderProfile.create_client
    return ProcessProfile(**values, takes_images=sees, given=profile)


def program_command(profile: ProviderProfile, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the program of a profile and its arguments; variables that the profile names override both."""
    values = os.environ if environ is None else environ
    named = (values.get(name, "").strip() for name in profile.process_command_env_vars)
    given = values.get(profile.process_args_env_var, "").strip() if profile.process_args_env_var else ""
    arguments = shlex.split(given) if given else [str(each) for each in profile.process_args]
    return [next(filter(None, named), profile.process_command), *arguments]


def find_program(profile: ProviderProfile) -> str | None:
    """Return the path of a profile's program, or None if it is not there."""
    return shutil.which(str(Path(program_command(profile)[0]).expanduser()))
