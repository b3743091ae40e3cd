"""A stand-in of Bedrock that checks each signature by itself, from the bytes that came, as AWS's documentation says."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from peers.wires import Reply, WireModel

__all__ = ["SignedModel"]


class SignedModel(WireModel):
    """Answers who signs with the key: `keys`, by access key, of secret and session token."""

    def __init__(self, keys: dict[str, tuple[str, str]], region: str = "us-east-1", *replies: Reply) -> None:
        super().__init__(*replies)
        self.keys, self.region = keys, region
        self.refused: list[str] = []

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/openai/v1/chat/completions", self._checked)

    @property
    def url(self) -> str:
        return f"http://{self.address}/openai/v1"

    async def _checked(self, request: web.Request) -> web.Response:
        if why := self._fault(request, await request.read()):
            self.refused.append(why)
            return web.json_response({"message": why}, status=403)
        return await self._chat(request)

    def _fault(self, request: web.Request, body: bytes) -> str:
        kind, _, rest = request.headers.get("Authorization", "").partition(" ")
        if kind != "AWS4-HMAC-SHA256":
            return "Missing Authentication Token"
        said = dict(part.strip().split("=", 1) for part in rest.split(","))
        access, day, region, service, end = said["Credential"].split("/")
        secret, session = self.keys.get(access, ("", ""))
        stamp = request.headers["X-Amz-Date"]
        when = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        signed: list[str] = said["SignedHeaders"].split(";")
        if not secret:
            return "The security token included in the request is invalid."
        if abs(datetime.now(UTC) - when) > timedelta(minutes=5) or day != stamp[:8]:
            return "Signature expired"
        if (region, service, end) != (self.region, "bedrock", "aws4_request"):
            return f"Credential should be scoped to a valid region, not '{region}'."
        if request.headers.get("X-Amz-Security-Token", "") != session or "host" not in signed:
            return "The security token included in the request is expired"
        if session and "x-amz-security-token" not in signed:
            return "x-amz-security-token is not signed"
        lines: list[Any] = [request.method, request.raw_path.partition("?")[0], request.query_string]
        lines += [f"{name}:{request.headers[name].strip()}" for name in signed]
        lines += ["", said["SignedHeaders"], hashlib.sha256(body).hexdigest()]
        text = "\n".join(lines)
        scope = [day, region, service, end]
        digest = hashlib.sha256(text.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{'/'.join(scope)}\n{digest}"
        key = ("AWS4" + secret).encode()
        for word in (*scope, to_sign):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        return "" if hmac.compare_digest(key.hex(), said["Signature"]) else "The request signature does not match"
