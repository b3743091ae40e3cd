"""Survey of the machine before the setup: keys in the environment, model servers, own clients.

Nothing is written. Only servers on this machine, and addresses that the operator configured, are contacted.
"""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from hermes_agent.config.settings import plain
from hermes_agent.contracts.model_client import ClientProfile
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.host import Host
from hermes_agent.models.model_catalog import fetch_model_ids
from hermes_agent.models.providers import ModelEndpoint, ModelProvider
from hermes_agent.models.selection import is_selected_by_key

CONNECT_S = 0.5
"""Time limit for a connection to a model server, in seconds."""


class FoundKey(LazyNamedTuple):
    """A key of a model provider, found in the environment or the home."""

    provider: ModelProvider
    variable: str
    """Name of the variable that has the key."""


class FoundServer(LazyNamedTuple):
    """A running model server that lists its models."""

    provider: ModelProvider
    base_url: str
    models: tuple[str, ...]


class FoundClient(LazyNamedTuple):
    """A provider that brings its own client."""

    provider: ModelProvider
    profile: ClientProfile
    problem: str
    """Why it cannot answer yet; "" if it can."""


class SetupSurvey(LazyNamedTuple):
    """Everything that the survey found."""

    keys: tuple[FoundKey, ...]
    servers: tuple[FoundServer, ...]
    clients: tuple[FoundClient, ...]

    def lines(self) -> list[str]:
        """Return one line for each model server, each key, and each own client that can answer."""
        found = [
            f"{server.provider.display_name} at {server.base_url}: {_models(server.models)}" for server in self.servers
        ]
        found += [f"a key of {key.provider.display_name} ({key.variable})" for key in self.keys]
        return found + [client.provider.display_name for client in self.clients if not client.problem]


def _models(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return f"the model {names[0]}"
    return f"{len(names)} models" if names else "no model is loaded"


def discover(host: Host) -> SetupSurvey:
    """Look for keys, model servers and providers with their own client; this takes at most a few seconds."""
    providers = [provider for provider in host.model_providers.providers() if provider.profile.listed()]
    return SetupSurvey(
        tuple(key for provider in providers if (key := _find_key(host, provider)) is not None),
        tuple(server for provider in providers if (server := _find_server(host, provider)) is not None),
        tuple(
            FoundClient(provider, provider.profile, explain_client(host, provider.name))
            for provider in providers
            if isinstance(provider.profile, ClientProfile)
        ),
    )


def explain_client(host: Host, name: str) -> str:
    """Return why a provider with its own client cannot answer, or "" if it can."""
    own = plain(host.config.settings.model).get(name)
    try:
        host.select_model(settings={"provider": name, name: own or {}})
    except UserError as exc:
        return exc.message
    return ""


def _find_key(host: Host, provider: ModelProvider) -> FoundKey | None:
    if not is_selected_by_key(provider):
        return None
    named = next((name for name in provider.key_names if (host.credentials.get(name) or "").strip()), None)
    return None if named is None else FoundKey(provider, named)


def _find_server(host: Host, provider: ModelProvider) -> FoundServer | None:
    """Return the model server at the address in a provider's variable or profile, or None."""
    if not provider.profile.has_own_models:
        return None
    named = next((address for name in provider.base_url_names if (address := host.credentials.get(name))), "")
    address = (named or provider.base_url).rstrip("/")
    place = urlsplit(address)
    if not named and place.hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    with contextlib.suppress(OSError, ValueError):
        with socket.create_connection((place.hostname or "", place.port or 80), CONNECT_S):
            pass
        models = fetch_model_ids(ModelEndpoint(provider, address, "", ""))
        if models is not None:
            return FoundServer(provider, address, tuple(models))
    return None
