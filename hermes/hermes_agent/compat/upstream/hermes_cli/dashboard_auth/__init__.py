"""Dashboard sign-in. Source: plugin contract §8.12, §11.2."""

from typing import Any as _Any

from hermes_agent.compat import provider_names as _names
from hermes_agent.contracts.dashboard_auth import DashboardAuthProvider as DashboardAuthProvider
from hermes_agent.contracts.dashboard_auth import InvalidCodeError as InvalidCodeError
from hermes_agent.contracts.dashboard_auth import InvalidCredentialsError as InvalidCredentialsError
from hermes_agent.contracts.dashboard_auth import LoginStart as LoginStart
from hermes_agent.contracts.dashboard_auth import ProviderError as ProviderError
from hermes_agent.contracts.dashboard_auth import RefreshExpiredError as RefreshExpiredError
from hermes_agent.contracts.dashboard_auth import Session as Session


def list_providers() -> list[_Any]:
    """Return the registered providers, in order of registration."""
    return _names.list_providers("dashboard_auth")
