"""How the server is set: the config's section `server`, and the variables `API_SERVER_*` that win over it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from hermes_agent.core.errors import ConfigError

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
_KEY = re.compile(r"[\x21-\x7e]+")


class ConfigLookup(Protocol):
    """The part of the config that is read."""

    def get(self, key: str, /) -> Any:
        """Return the effective value of a dotted key."""


class ServerSecrets(Protocol):
    """The part of `credentials.Credentials` that is used."""

    def get(self, name: str, /) -> str | None:
        """Return the value of `name`; None when no place has it."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Everything that can be set about the server, checked."""

    enabled: bool = True
    host: str = "127.0.0.1"
    """Name or address to listen on; `0.0.0.0` and `::` mean every address."""
    port: int = 8642
    """0 takes a free one."""
    port_from: str = "server.port"
    """The setting that said so, for messages."""
    key: str = ""
    """What every request bears; empty until `key.with_key` has filled it in."""
    allowed_hosts: frozenset[str] = frozenset()
    """Further names in the Host header, lower case, each with a port or without (then any port)."""
    allowed_origins: frozenset[str] = frozenset()
    """Origins of pages that may call, lower case, `scheme://host[:port]`."""
    drain_timeout_s: float = 20.0
    """Longest wait for running turns at the end."""
    grace_s: float = 4.0
    """How long an interrupted turn may take to end before it is cancelled."""
    max_concurrent_turns: int = 8
    """Turns that run at once."""
    max_queued_turns: int = 64
    """Turns that wait for that; beyond it callers get 503."""
    max_queued_per_session: int = 8
    """Turns that wait for one session; beyond it callers get 429."""
    max_body_bytes: int = 10 * 1024 * 1024
    """Largest request body; beyond it callers get 413."""
    max_connections: int = 512
    """Connections that are open at once; beyond it who waits gives way, and when nobody does callers get 503."""
    max_connections_per_address: int = 256
    """Those of one address (of IPv6: of one /64)."""
    head_timeout_s: float = 30.0
    """Longest wait for a request's head."""
    body_timeout_s: float = 60.0
    """Longest wait for a request's body."""
    keepalive_s: float = 15.0
    """Silence of a stream after which a comment is sent, so that nothing between takes it for dead."""

    def __repr__(self) -> str:
        return f"ServerSettings(host={self.host!r}, port={self.port}, enabled={self.enabled})"


def read_settings(config: ConfigLookup, secrets: ServerSecrets) -> HttpSettings:
    """Return the settings; what `API_SERVER_ENABLED`, `_HOST`, `_PORT` and `_KEY` say wins over the config.

    Raises:
        ConfigError: a value cannot be used; the variable or the key is named.
    """
    port, port_from = _port(config, secrets)
    return HttpSettings(
        enabled=_enabled(config, secrets),
        host=(secrets.get("API_SERVER_HOST") or str(config.get("server.host"))).strip(),
        port=port,
        port_from=port_from,
        key=_key(config, secrets),
        allowed_hosts=frozenset(_hosts(config.get("server.allowed_hosts") or ())),
        allowed_origins=frozenset(_origins(config.get("server.allowed_origins") or ())),
        drain_timeout_s=float(config.get("server.drain_timeout_s")),
        max_concurrent_turns=int(config.get("server.max_concurrent_turns")),
        max_connections=int(config.get("server.max_connections")),
        max_connections_per_address=int(config.get("server.max_connections_per_address")),
        head_timeout_s=float(config.get("server.head_timeout_s")),
        body_timeout_s=float(config.get("server.body_timeout_s")),
    )


def _enabled(config: ConfigLookup, secrets: ServerSecrets) -> bool:
    given = (secrets.get("API_SERVER_ENABLED") or "").strip()
    if not given:
        return bool(config.get("server.enabled"))
    word = given.lower()
    if word not in _TRUE | _FALSE:
        raise ConfigError(f"API_SERVER_ENABLED is {given!r}: expected true or false")
    return word in _TRUE


def _port(config: ConfigLookup, secrets: ServerSecrets) -> tuple[int, str]:
    given = (secrets.get("API_SERVER_PORT") or "").strip()
    if not given:
        return int(config.get("server.port")), "server.port"
    if not (given.isascii() and given.isdigit() and int(given[:6]) <= 65535):
        raise ConfigError(f"API_SERVER_PORT is {given!r}: expected a port, 0 to 65535")
    return int(given), "API_SERVER_PORT"


def _key(config: ConfigLookup, secrets: ServerSecrets) -> str:
    """A key that no header can bear would lock everybody out; its value is not shown."""
    variable = (secrets.get("API_SERVER_KEY") or "").strip()
    key, name = (
        (variable, "API_SERVER_KEY") if variable else (str(config.get("server.key") or "").strip(), "server.key")
    )
    if key and not _KEY.fullmatch(key):
        raise ConfigError(f"{name} has characters that no HTTP header can bear: use ASCII without blanks")
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
