"""A small authorization server for `mcp_server`: everybody who asks is let in; codes and refresh tokens work once.

The routes, registration and PKCE are the published SDK's.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from mcp.server.auth.provider import AccessToken, AuthorizationCode, AuthorizationParams, RefreshToken
from mcp.server.auth.provider import construct_redirect_uri as redirect
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

__all__ = ["Provider", "settings"]

Client = OAuthClientInformationFull
SCOPES = ["user"]


def settings(url: str, issuer: str, path: str = "mcp") -> AuthSettings:
    return AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(f"{url}/{path}"),
        validate_token_resource=False,
        required_scopes=SCOPES,
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES),
    )


class Provider:
    """What was registered and given out."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> Client | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: Client) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: Client, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or SCOPES,
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return redirect(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Client, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Client, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code.scopes)

    async def load_refresh_token(self, client: Client, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: Client, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._tokens(client, scopes)

    def _tokens(self, client: Client, scopes: list[str]) -> OAuthToken:
        given: dict[str, Any] = {"client_id": client.client_id, "scopes": scopes}
        access = AccessToken(token=secrets.token_urlsafe(16), expires_at=int(time.time()) + 3600, **given)
        refresh = RefreshToken(token=secrets.token_urlsafe(16), **given)
        self.access[access.token], self.refresh[refresh.token] = access, refresh
        return OAuthToken(
            access_token=access.token, expires_in=3600, scope=" ".join(scopes), refresh_token=refresh.token
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
