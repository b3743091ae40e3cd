"""Dashboard sign-in: a service that says who somebody is. Source: plugin contract §8.12, §11.2.

All that are registered are offered; none is selected.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.kind import Kind

__all__ = [
    "DASHBOARD_AUTH",
    "DashboardAuthProvider",
    "InvalidCodeError",
    "InvalidCredentialsError",
    "LoginStart",
    "ProviderError",
    "RefreshExpiredError",
    "Session",
]

DASHBOARD_AUTH = Kind("dashboard_auth", "register_dashboard_auth_provider", "dashboard auth provider")


class ProviderError(Exception):
    """The service could not be asked, or gave no sense."""


class InvalidCodeError(Exception):
    """The code of a sign-in is wrong or used up."""


class InvalidCredentialsError(Exception):
    """Name or password is wrong."""


class RefreshExpiredError(Exception):
    """The session cannot be renewed: sign in again."""


@dataclass(frozen=True)
class LoginStart:
    """Where a sign-in begins."""

    redirect_url: str
    cookie_payload: Any
    """What is kept in a cookie until the person comes back."""


@dataclass(frozen=True)
class Session:
    """Somebody who is signed in."""

    user_id: str
    email: str
    display_name: str
    org_id: str
    provider: str
    expires_at: int
    """Seconds since 1970."""
    access_token: str
    refresh_token: str


class DashboardAuthProvider(abc.ABC):
    """Signs people in."""

    name: str = ""
    display_name: str = ""
    supports_password: bool = False
    supports_token: bool = False
    supports_session: bool = True

    @abc.abstractmethod
    def start_login(self, *, redirect_uri: str) -> LoginStart:
        """Begin a sign-in.

        Raises:
            ProviderError: the service cannot be asked.
        """

    @abc.abstractmethod
    def complete_login(self, *, code: str, state: str, code_verifier: str, redirect_uri: str) -> Session:
        """End a sign-in.

        Raises:
            InvalidCodeError: the code is wrong or used up.
            ProviderError: the service cannot be asked.
        """

    @abc.abstractmethod
    def verify_session(self, *, access_token: str) -> Session | None:
        """Return whose token it is, None when it is nobody's or has run out."""

    @abc.abstractmethod
    def refresh_session(self, *, refresh_token: str) -> Session:
        """Return a session with new tokens.

        Raises:
            RefreshExpiredError: sign in again.
        """

    @abc.abstractmethod
    def revoke_session(self, *, refresh_token: str) -> None:
        """Sign out."""

    def complete_password_login(self, *, username: str, password: str) -> Session:
        """Sign in by name and password, with `supports_password`.

        Raises:
            InvalidCredentialsError: one of them is wrong.
        """
        raise NotImplementedError(f"dashboard auth provider '{self.name}' takes no passwords")

    def verify_token(self, *, token: str) -> Any:
        """Return whose API token it is, None when it is nobody's; with `supports_token`."""
        raise NotImplementedError(f"dashboard auth provider '{self.name}' takes no tokens")
