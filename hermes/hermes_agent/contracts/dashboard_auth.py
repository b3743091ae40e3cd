"""Dashboard sign-in: a service that authenticates the users of a dashboard.

Published plugins register such providers. This release lists them and has no dashboard that uses them
(`Kind.is_used`). Source: plugin contract §8.12, §11.2.
"""

from __future__ import annotations

import abc
from typing import Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.core.lazy_types import lazy_dataclass

__all__ = [
    "DASHBOARD_AUTH",
    "DashboardAuthProvider",
    "InvalidCodeError",
    "InvalidCredentialsError",
    "LoginStart",
    "ProviderError",
    "RefreshExpiredError",
    "Session",
    "TokenPrincipal",
]

DASHBOARD_AUTH = Kind("dashboard_auth", "register_dashboard_auth_provider", "dashboard auth provider")


class ProviderError(Exception):
    """Error: the service is unreachable or sent an invalid answer."""


class InvalidCodeError(Exception):
    """Error: the code of a sign-in is wrong or already used."""


class InvalidCredentialsError(Exception):
    """Error: the user name or password is wrong."""


class RefreshExpiredError(Exception):
    """Error: the session cannot be renewed; the user must sign in again."""


@lazy_dataclass(frozen=True)
class LoginStart:
    """Start of a sign-in."""

    redirect_url: str
    cookie_payload: Any
    """Value for a cookie that the browser sends back at the end of the sign-in."""


@lazy_dataclass(frozen=True)
class Session:
    """Session of a signed-in user."""

    user_id: str
    email: str
    display_name: str
    org_id: str
    provider: str
    expires_at: int
    """Seconds since 1970."""
    access_token: str
    refresh_token: str


@lazy_dataclass(frozen=True)
class TokenPrincipal:
    """Caller of the HTTP interface that an API token identifies."""

    principal: str
    provider: str
    """Name of the provider that accepted the token."""
    scopes: tuple[str, ...] = ()
    """What the token allows; empty means no limit of its own."""


class DashboardAuthProvider(abc.ABC):
    """A provider that signs users in."""

    name: str = ""
    display_name: str = ""
    supports_password: bool = False
    supports_token: bool = False
    supports_session: bool = True

    @abc.abstractmethod
    def start_login(self, *, redirect_uri: str) -> LoginStart:
        """Start a sign-in.

        Raises:
            ProviderError: the service is unreachable.
        """

    @abc.abstractmethod
    def complete_login(self, *, code: str, state: str, code_verifier: str, redirect_uri: str) -> Session:
        """Complete a sign-in.

        Raises:
            InvalidCodeError: the code is wrong or already used.
            ProviderError: the service is unreachable.
        """

    @abc.abstractmethod
    def verify_session(self, *, access_token: str) -> Session | None:
        """Return the session of a token, or None if the token is unknown or expired."""

    @abc.abstractmethod
    def refresh_session(self, *, refresh_token: str) -> Session:
        """Return a session with new tokens.

        Raises:
            RefreshExpiredError: the user must sign in again.
        """

    @abc.abstractmethod
    def revoke_session(self, *, refresh_token: str) -> None:
        """Sign the user out."""

    def complete_password_login(self, *, username: str, password: str) -> Session:
        """Sign in by user name and password, if `supports_password`.

        Raises:
            InvalidCredentialsError: one of them is wrong.
        """
        raise NotImplementedError(f"dashboard auth provider '{self.name}' does not support passwords")

    def verify_token(self, *, token: str) -> TokenPrincipal | None:
        """Return the caller of an API token, or None if it is unknown; if `supports_token`."""
        raise NotImplementedError(f"dashboard auth provider '{self.name}' does not support API tokens")
