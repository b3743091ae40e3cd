"""Dashboard sign-in: what a provider is. Source: plugin contract §8.12."""

from hermes_agent.contracts.dashboard_auth import DashboardAuthProvider as DashboardAuthProvider
from hermes_agent.contracts.dashboard_auth import InvalidCodeError as InvalidCodeError
from hermes_agent.contracts.dashboard_auth import InvalidCredentialsError as InvalidCredentialsError
from hermes_agent.contracts.dashboard_auth import LoginStart as LoginStart
from hermes_agent.contracts.dashboard_auth import ProviderError as ProviderError
from hermes_agent.contracts.dashboard_auth import RefreshExpiredError as RefreshExpiredError
from hermes_agent.contracts.dashboard_auth import Session as Session
