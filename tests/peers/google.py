"""A stand-in of Google: where tokens are renewed, the metadata server, and models for who has the present token."""

from __future__ import annotations

import base64
import json
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from peers.wires import WireModel

__all__ = ["Google"]


class Google(WireModel):
    """`renewed`: the grants that it gave tokens for. `key`: of the service account."""

    def __init__(self) -> None:
        super().__init__()
        self.key = rsa.generate_private_key(65537, 2048)
        self.renewed: list[str] = []
        self.lives_s = 3600
        self.revoked = False
        """The refresh token."""
        self.on_machine = False

    @property
    def token(self) -> str:
        return f"ya29.token-number-{len(self.renewed)}"

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.router.add_post("/token", self._token)
        app.router.add_get("/computeMetadata/v1/instance/service-accounts/default/token", self._metadata)

    async def _chat(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            error = {"message": "Request had invalid authentication credentials.", "status": "UNAUTHENTICATED"}
            return web.json_response([{"error": {"code": 401, **error}}], status=401)
        return await super()._chat(request)

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        kind = str(form["grant_type"])
        if kind == "refresh_token":
            good = (form["client_id"], form["client_secret"], form["refresh_token"]) == ("id-1", "secret-1", "rt-1")
            good = good and not self.revoked
        else:
            good = kind == "urn:ietf:params:oauth:grant-type:jwt-bearer" and self._signed(str(form["assertion"]))
        if not good:
            said = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
            return web.json_response(said, status=400)
        return self._given(kind)

    async def _metadata(self, request: web.Request) -> web.Response:
        if not self.on_machine or request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=404)
        return self._given("metadata")

    def _given(self, kind: str) -> web.Response:
        self.renewed.append(kind)
        return web.json_response({"access_token": self.token, "expires_in": self.lives_s, "token_type": "Bearer"})

    def _signed(self, assertion: str) -> bool:
        head, claim, signature = assertion.split(".")
        text = f"{head}.{claim}".encode()
        self.key.public_key().verify(_bytes(signature), text, padding.PKCS1v15(), hashes.SHA256())
        value: dict[str, Any] = json.loads(_bytes(claim))
        assert json.loads(_bytes(head)) == {"alg": "RS256", "typ": "JWT", "kid": "kid-1"}
        assert value["exp"] - value["iat"] <= 3600 and value["scope"].endswith("/auth/cloud-platform")
        return (value["iss"], value["aud"]) == ("robot@project.example", f"http://{self.address}/token")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
