"""Signs one person in."""

import secrets
import time

from hermes_cli.dashboard_auth import (
    DashboardAuthProvider,
    InvalidCodeError,
    InvalidCredentialsError,
    LoginStart,
    RefreshExpiredError,
    Session,
)


class OnePerson(DashboardAuthProvider):
    """Everybody who knows the code is Ada."""

    name = "example-one-person"
    display_name = "One person"
    supports_password = True

    def __init__(self):
        self.sessions = {}

    def start_login(self, *, redirect_uri):
        return LoginStart(redirect_url=f"{redirect_uri}?code=ada&state=s", cookie_payload={"state": "s"})

    def complete_login(self, *, code, state, code_verifier, redirect_uri):
        if code != "ada":
            raise InvalidCodeError(code)
        return self._new()

    def complete_password_login(self, *, username, password):
        if (username, password) != ("ada", "lovelace"):
            raise InvalidCredentialsError(username)
        return self._new()

    def verify_session(self, *, access_token):
        return next((s for s in self.sessions.values() if s.access_token == access_token), None)

    def refresh_session(self, *, refresh_token):
        if self.sessions.pop(refresh_token, None) is None:
            raise RefreshExpiredError("sign in again")
        return self._new()

    def revoke_session(self, *, refresh_token):
        self.sessions.pop(refresh_token, None)

    def _new(self):
        session = Session(
            user_id="ada",
            email="ada@example.org",
            display_name="Ada",
            org_id="",
            provider=self.name,
            expires_at=int(time.time()) + 3600,
            access_token=secrets.token_hex(),
            refresh_token=secrets.token_hex(),
        )
        self.sessions[session.refresh_token] = session
        return session


def register(ctx):
    ctx.register_dashboard_auth_provider(OnePerson())
