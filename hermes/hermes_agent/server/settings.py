"""Settings of the server: the config section `server`, overridden by variables `API_SERVER_*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from hermes_agent.config.settings import Settings, section
from hermes_agent.core.errors import ConfigError
from hermes_agent.core.lazy_types import lazy_dataclass

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
_KEY = re.compile(r"[\x21-\x7e]+")


class ServerSecrets(Protocol):
    """The used part of `credentials.Credentials`."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a secret, or None."""


@lazy_dataclass(frozen=True, slots=True)
class HttpSettings:
    """Checked settings of the server."""

    enabled: bool = True
    host: str = "127.0.0.1"
    """Name or address to listen on; `0.0.0.0` and `::` are all addresses."""
    port: int = 8642
    """0: any free port."""
    port_from: str = "server.port"
    """The setting that determined the port, for messages."""
    key: str = ""
    """The key of all requests; empty until `authentication.with_key` sets it."""
    allowed_hosts: frozenset[str] = frozenset()
    """Additional names in the Host header in lower case, each with a port or without (any port)."""
    allowed_origins: frozenset[str] = frozenset()
    """Origins of pages that may send requests, in lower case: `scheme://host[:port]`."""
    drain_timeout_s: float = 20.0
    """Time limit for running turns at the end."""
    grace_s: float = 4.0
    """Time limit for an interrupted turn before it is cancelled."""
    max_concurrent_turns: int = 8
    """Limit of running turns."""
    max_queued_turns: int = 64
    """Limit of waiting turns; above it, clients get 503."""
    max_queued_per_session: int = 8
    """Limit of waiting turns of a session; above it, clients get 429."""
    max_body_bytes: int = 10 * 1024 * 1024
    """Limit of a request body; above it, clients get 413."""
    max_connections: int = 512
    """Limit of open connections. Above it, a waiting connection is closed; if there is none, the client gets 503."""
    max_connections_per_address: int = 256
    """Limit of connections of one address (IPv6: of one /64)."""
    head_timeout_s: float = 30.0
    """Time limit for the head of a request."""
    body_timeout_s: float = 60.0
    """Time limit for the body of a request."""
    keepalive_s: float = 15.0
    """Silence of a stream after which a comment is sent, so that proxies keep the connection."""

    def __repr__(self) -> str:
        return f"ServerSettings(host={self.host!r}, port={self.port}, enabled={self.enabled})"


def read_settings(settings: Settings, secrets: ServerSecrets) -> HttpSettings:
    """Return the settings; the variables `API_SERVER_*` win over the config.

    Raises:
        ConfigError: a value is invalid; the message names the variable or key.
    """
    server = settings.server
    port, port_from = _port(server.port, secrets)
    fixed = ("grace_s", "keepalive_s", "max_queued_turns", "max_queued_per_session", "max_body_bytes")
    return section(
        HttpSettings,
        server,
        fixed,
        enabled=_enabled(server.enabled, secrets),
        host=(secrets.get("API_SERVER_HOST") or server.host).strip(),
        port=port,
        port_from=port_from,
        key=_key(server.key, secrets),
        allowed_hosts=frozenset(_hosts(server.allowed_hosts)),
        allowed_origins=frozenset(_origins(server.allowed_origins)),
    )


def _enabled(configured: bool, secrets: ServerSecrets) -> bool:
    given = (secrets.get("API_SERVER_ENABLED") or "").strip()
    if not given:
        return configured
    word = given.lower()
    if word not in _TRUE | _FALSE:
        raise ConfigError(f"API_SERVER_ENABLED is {given!r}: expected true or false")
    return word in _TRUE


def _port(configured: int, secrets: ServerSecrets) -> tuple[int, str]:
    given = (secrets.get("API_SERVER_PORT") or "").strip()
    if not given:
        return configured, "server.port"
    if not (given.isascii() and given.isdigit() and int(given[:6]) <= 65535):
        raise ConfigError(f"API_SERVER_PORT is {given!r}: expected a port, 0 to 65535")
    return int(given), "API_SERVER_PORT"


def _key(configured: str, secrets: ServerSecrets) -> str:
    """Return the key. A key that no header can contain is rejected; the message does not show it."""
    variable = (secrets.get("API_SERVER_KEY") or "").strip()
    key, name = (variable, "API_SERVER_KEY") if variable else (configured.strip(), "server.key")
    if key and not _KEY.fullmatch(key):
        raise ConfigError(f"{name} has characters that are invalid in an HTTP header: use ASCII without spaces")
    return key


def _hosts(given: Iterable[str]) -> Iterable[str]:
    for value in given:
        name = value.strip().lower()
        if not _HOST.fullmatch(name):
            raise ConfigError(f"server.allowed_hosts: {value!r} is not a host: expected `name` or `name:port`")
        yield name


def _origins(given: Iterable[str]) -> Iterable[str]:
    for value in given:
        origin = value.strip().lower().rstrip("/")
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(f"server.allowed_origins: {value!r} is not an origin: expected `https://host[:port]`")
        yield origin
