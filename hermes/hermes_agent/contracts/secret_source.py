"""Secret source: a store from which secrets are fetched at the start.

A source has the settings `secrets.<name>`; `secrets.sources` sets the order of sources. A mapped source returns the
names that its settings list; a bulk source returns all that it has. `credentials.secret_sources` fetches from the
enabled ones after the plugins are loaded. Source: plugin contract §8.11, §11.2; contract of 0.23 §9.6.
"""

from __future__ import annotations

import abc
import enum
import logging
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from hermes_agent.contracts.kind import Kind
from hermes_agent.core.lazy_types import lazy_dataclass

__all__ = [
    "API_VERSION",
    "SECRET_SOURCE",
    "SHAPES",
    "ErrorKind",
    "FetchResult",
    "PooledCredential",
    "SecretSource",
    "is_valid_env_name",
    "check_secret_source",
    "secret_sources_in_order",
]

logger = logging.getLogger(__name__)

SECRET_SOURCE = Kind("secret_source", "register_secret_source", "secret source", is_used=True)

API_VERSION = 1
SHAPES = ("mapped", "bulk")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ErrorKind(enum.StrEnum):
    """Reason of a failed fetch."""

    NOT_CONFIGURED = "not_configured"
    BINARY_MISSING = "binary_missing"
    AUTH_FAILED = "auth_failed"
    AUTH_EXPIRED = "auth_expired"
    REF_INVALID = "ref_invalid"
    NETWORK = "network"
    EMPTY_VALUE = "empty_value"
    TIMEOUT = "timeout"
    INTERNAL = "internal"


@lazy_dataclass
class FetchResult:
    """Result of a fetch; the source fills it in."""

    secrets: dict[str, str] = field(default_factory=dict)
    """Values by variable name."""
    applied: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    error_kind: ErrorKind | None = None
    binary_path: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether the fetch succeeded."""
        return self.error is None

    @classmethod
    def fail(cls, error: Any, error_kind: Any = None, **fields: Any) -> FetchResult:
        """Return a failed result, from text and kind in either order."""
        if isinstance(error, ErrorKind) and not isinstance(error_kind, ErrorKind):
            error, error_kind = error_kind or error.value, error
        return cls(error=str(error), error_kind=error_kind, **fields)


class SecretSource(abc.ABC):
    """A store of secrets."""

    api_version: ClassVar[int] = API_VERSION
    name: str = ""
    """The name of its settings: `secrets.<name>`."""
    label: str = ""
    """The name that users see."""
    shape: str = "mapped"
    """One of `SHAPES`."""
    scheme: str | None = None
    """Prefix of its references."""

    @abc.abstractmethod
    def fetch(self, cfg: dict[str, Any], home_path: Path) -> FetchResult:
        """Fetch the secrets. It must not raise or prompt.

        Args:
            cfg: the settings at `secrets.<name>`.
        """

    def is_enabled(self, cfg: dict[str, Any]) -> bool:
        """Return whether its settings enable it: `enabled: true`."""
        return bool(isinstance(cfg, Mapping) and cfg.get("enabled"))

    def override_existing(self, cfg: dict[str, Any]) -> bool:
        """Return whether its values replace those of `.env` and the environment."""
        return bool(isinstance(cfg, Mapping) and cfg.get("override_existing"))

    def protected_env_vars(self, cfg: dict[str, Any]) -> frozenset[str]:
        """Return the variables that no source may set, such as the credential of this source."""
        return frozenset()

    def fetch_timeout_seconds(self, cfg: dict[str, Any]) -> float:
        """Return the time limit of a fetch, in seconds."""
        return 120.0

    def token_env(self, cfg: dict[str, Any]) -> str:
        """Return the variable of its own credential (`token_env` in its settings); no source may set it."""
        return str(cfg.get("token_env") or "") if isinstance(cfg, Mapping) else ""

    def remediation(self, kind: ErrorKind | None, cfg: dict[str, Any]) -> str:
        """Return what the user can do after a failure of this kind, or ""."""
        return ""

    def config_schema(self) -> dict[str, Any]:
        """Return its settings by name, each with `description` and `default`."""
        return {}


def check_secret_source(source: Any) -> str:
    """Return the reason why `source` cannot be registered; "" if it can."""
    if not isinstance(source, SecretSource):
        return f"does not inherit from {SecretSource.__name__}"
    if source.api_version != API_VERSION:
        return f"has api_version {source.api_version!r}, this release supports {API_VERSION}"
    if source.shape not in SHAPES:
        return f"has shape {source.shape!r}: expected one of {', '.join(SHAPES)}"
    return ""


def secret_sources_in_order(sources: Mapping[str, SecretSource], values: Mapping[str, Any]) -> list[SecretSource]:
    """Return the enabled sources in the order in which they are fetched.

    Mapped sources come before bulk sources. Within a shape, the order is that of
    `secrets.sources`, then of registration.
    """
    block = values.get("secrets")
    settings: Mapping[str, Any] = block if isinstance(block, Mapping) else {}
    listed = settings.get("sources")
    wanted = [name for name in listed if name in sources] if isinstance(listed, list) else []
    order = list(dict.fromkeys((*wanted, *sources)))
    enabled = [sources[name] for name in order if _enabled(sources[name], settings.get(name))]
    return sorted(enabled, key=lambda source: SHAPES.index(source.shape))


def is_valid_env_name(name: str) -> bool:
    """Return whether a variable can have this name: letters, digits and `_`, not a digit first."""
    return isinstance(name, str) and _ENV_NAME.fullmatch(name) is not None


def _enabled(source: SecretSource, cfg: Any) -> bool:
    try:
        return bool(source.is_enabled(dict(cfg) if isinstance(cfg, Mapping) else {}))
    except Exception as exc:  # noqa: BLE001 - plugin code: a failing source must not hide the others
        logger.warning("secret source '%s': is_enabled() failed: %s: %s", source.name, type(exc).__name__, exc)
        return False


@lazy_dataclass
class PooledCredential:
    """A sign-in at a provider, as a plugin's `auth_handler` stores it and `refresh_credential` reads it."""

    provider: str
    id: str = ""
    label: str = ""
    auth_type: str = "oauth"
    priority: int = 0
    source: str = ""
    access_token: str = ""
    refresh_token: str | None = None
    base_url: str | None = None
    expires_at: float | str | None = None
    """End of the token, in seconds since the epoch; `expires_at_ms` goes before it."""
    expires_at_ms: int | None = None
    last_refresh: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
