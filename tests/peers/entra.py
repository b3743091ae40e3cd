"""A stand-in of Microsoft's Azure: an authority of Entra ID over TLS, and models for the token that it gave last."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Self

from aiohttp import web

from peers.irc import certificate
from peers.threaded import Threaded
from peers.wires import WireModel

__all__ = ["Azure"]

TENANT, CLIENT, SECRET = "tenant-1", "client-1", "secret-of-client-1"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class _Authority(Threaded):
    """Gives tokens for the client secret, or for the assertion that `assertion` names."""

    def __init__(self, folder: Path) -> None:
        self.certificate = certificate(folder, "DNS:localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, folder / "key.pem")
        super().__init__(tls=context)
        self.assertion = ""
        self.grants: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"https://localhost:{self.address.rpartition(':')[2]}"

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get(f"/{TENANT}/v2.0/.well-known/openid-configuration", self._configuration)
        app.router.add_post(f"/{TENANT}/oauth2/v2.0/token", self._token)

    async def _configuration(self, request: web.Request) -> web.Response:
        base = f"{self.url}/{TENANT}"
        return web.json_response(
            {
                "issuer": f"{base}/v2.0",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "token_endpoint": f"{base}/oauth2/v2.0/token",
            }
        )

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        asserted = form.get("client_assertion_type") == ASSERTION and form.get("client_assertion") == self.assertion
        if form.get("client_id") != CLIENT or not (asserted or form.get("client_secret") == SECRET):
            said = "AADSTS7000215: Invalid client secret provided. Trace ID: 1 Correlation ID: 2"
            return web.json_response({"error": "invalid_client", "error_description": said}, status=401)
        self.grants.append(form)
        return web.json_response({"token_type": "Bearer", "expires_in": 3600, "access_token": self.token})

    @property
    def token(self) -> str:
        return f"entra-token-number-{len(self.grants)}"


class Azure(WireModel):
    """Models for the bearer of the last token of `authority`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.authority = _Authority(folder)

    def __enter__(self) -> Self:
        self.authority.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.authority.__exit__(*error)

    async def _chat(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.authority.token}":
            error = {"code": "401", "message": "Access denied due to invalid subscription key or wrong API endpoint."}
            return web.json_response({"error": error}, status=401)
        return await super()._chat(request)
