"""Dashboard sign-in (docs/plugins/kinds/dashboard_auth.md): the suite."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.dashboard_auth import (
    DashboardAuthProvider,
    InvalidCodeError,
    InvalidCredentialsError,
    LoginStart,
    RefreshExpiredError,
    Session,
)
from hermes_agent.host import Host


class InMemory(DashboardAuthProvider):
    """Knows one session at a time; its code is `ada`."""

    name = "memory"
    display_name = "Memory"

    def __init__(self) -> None:
        self.session: Session | None = None
        self.count = 0

    def start_login(self, *, redirect_uri: str) -> LoginStart:
        return LoginStart(redirect_uri, {"state": "s"})

    def complete_login(self, *, code: str, state: str, code_verifier: str, redirect_uri: str) -> Session:
        if code != "ada":
            raise InvalidCodeError(code)
        self.count += 1
        end = int(time.time()) + 60
        self.session = Session("ada", "", "Ada", "", self.name, end, f"a{self.count}", f"r{self.count}")
        return self.session

    def verify_session(self, *, access_token: str) -> Session | None:
        return self.session if self.session is not None and self.session.access_token == access_token else None

    def refresh_session(self, *, refresh_token: str) -> Session:
        if self.session is None or self.session.refresh_token != refresh_token:
            raise RefreshExpiredError
        return self.complete_login(code="ada", state="", code_verifier="", redirect_uri="")

    def revoke_session(self, *, refresh_token: str) -> None:
        self.session = None


@pytest.fixture(params=["in memory", "example plugin"])
def provider(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> DashboardAuthProvider:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("dashboard_auth")
    assert isinstance(made, DashboardAuthProvider)
    return made


def sign_in(provider: DashboardAuthProvider) -> Session:
    return provider.complete_login(code="ada", state="s", code_verifier="", redirect_uri="https://example.org/back")


def test_it_says_who_it_is(provider: DashboardAuthProvider) -> None:
    assert provider.name and provider.display_name
    flags = (provider.supports_password, provider.supports_token, provider.supports_session)
    assert all(isinstance(flag, bool) for flag in flags)


def test_a_sign_in_begins_with_an_address(provider: DashboardAuthProvider) -> None:
    begun = provider.start_login(redirect_uri="https://example.org/back")

    assert isinstance(begun, LoginStart)
    assert begun.redirect_url.startswith("https://")


def test_a_session_lives_from_sign_in_to_sign_out(provider: DashboardAuthProvider) -> None:
    session = sign_in(provider)

    assert (session.provider, session.expires_at > time.time()) == (provider.name, True)
    assert provider.verify_session(access_token=session.access_token) == session
    fresh = provider.refresh_session(refresh_token=session.refresh_token)
    assert (fresh.user_id, fresh.access_token != session.access_token) == (session.user_id, True)
    provider.revoke_session(refresh_token=fresh.refresh_token)
    assert provider.verify_session(access_token=fresh.access_token) is None
    with pytest.raises(RefreshExpiredError):
        provider.refresh_session(refresh_token=fresh.refresh_token)


def test_a_wrong_code_is_refused(provider: DashboardAuthProvider) -> None:
    with pytest.raises(InvalidCodeError):
        provider.complete_login(code="eve", state="s", code_verifier="", redirect_uri="")


def test_passwords_and_tokens_are_taken_or_it_says_that_they_are_not(provider: DashboardAuthProvider) -> None:
    wrong = InvalidCredentialsError if provider.supports_password else NotImplementedError
    with pytest.raises(wrong):
        provider.complete_password_login(username="eve", password="x")
    if not provider.supports_token:
        with pytest.raises(NotImplementedError, match=f"'{provider.name}' does not support API tokens"):
            provider.verify_token(token="x")


def test_plugins_see_the_registered_ones(start: Callable[..., Host], served: None) -> None:
    start("dashboard_auth")
    import hermes_cli.dashboard_auth as upstream
    from hermes_cli.dashboard_auth import base

    assert [p.name for p in upstream.list_providers()] == ["example-one-person"]
    assert upstream.DashboardAuthProvider is base.DashboardAuthProvider is DashboardAuthProvider
    assert upstream.RefreshExpiredError is RefreshExpiredError


def test_one_without_a_name_is_left_out_with_a_warning(
    home: Path, served: None, caplog: pytest.LogCaptureFixture
) -> None:
    place = home / "plugins" / "nameless"
    place.mkdir()
    (place / "plugin.yaml").write_text("name: nameless\n")
    names = ("start_login", "complete_login", "verify_session", "refresh_session", "revoke_session")
    body = "".join(f"    def {name}(self, **kw): ...\n" for name in names)
    (place / "__init__.py").write_text(
        "from hermes_cli.dashboard_auth import DashboardAuthProvider\n"
        f"class P(DashboardAuthProvider):\n{body}"
        "def register(ctx): ctx.register_dashboard_auth_provider(P())\n"
    )
    (home / "config.yaml").write_text("plugins:\n  enabled: [nameless]\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()

    (record,) = host.plugins.records
    assert (record.enabled, record.providers_registered) == (True, [])
    assert (
        "Plugin 'nameless' could not register a dashboard auth provider: a dashboard auth provider needs a name: "
        in (caplog.text)
    )
