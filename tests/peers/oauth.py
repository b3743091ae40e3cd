"""A server to sign in at, written from the RFCs alone: 6749 (codes, refresh), 7636 (PKCE), 8628 (devices).

It is strict where they allow it: a code and a refresh token work once, PKCE is demanded, polling too soon is refused.
Beside that it serves chat completions to who has the present token.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

__all__ = ["OAuthServer", "oauth_server"]

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


class OAuthServer(ThreadingHTTPServer):
    """A running server."""

    client_id = "hermes-test"
    interval = 0.05
    """Seconds between two polls of a device."""
    pending = 0
    """Polls that are answered with `authorization_pending`."""
    denies = False
    lives_s = 3600
    """How long a token lives, as it says."""
    scope = "models"
    refusal_status = 400
    """Status of a refused token; GitHub refuses with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.codes: dict[str, tuple[str, str]] = {}
        self.devices: dict[str, float] = {}
        self.access = self.refresh = ""
        self.renewals = 0
        self.asked: list[str] = []
        """The tokens of requests to the model."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def settings(self) -> dict[str, str]:
        """For `providers.<name>.oauth`."""
        return {
            "client_id": self.client_id,
            "token_url": f"{self.url}/token",
            "device_url": f"{self.url}/device",
            "authorize_url": f"{self.url}/authorize",
            "scope": self.scope,
        }

    def tokens(self) -> dict[str, Any]:
        self.access, self.refresh = f"at-{secrets.token_hex(12)}", f"rt-{secrets.token_hex(12)}"
        return {
            "access_token": self.access,
            "refresh_token": self.refresh,
            "expires_in": self.lives_s,
            "token_type": "Bearer",
        }


class _Handler(BaseHTTPRequestHandler):
    server: OAuthServer

    def do_GET(self) -> None:
        given = dict(parse_qsl(urlsplit(self.path).query))
        assert given["response_type"] == "code" and given["client_id"] == self.server.client_id
        assert given["code_challenge_method"] == "S256" and given["redirect_uri"].startswith("http://127.0.0.1:")
        if self.server.denies:
            back = {"error": "access_denied", "state": given["state"]}
        else:
            code = secrets.token_hex(8)
            self.server.codes[code] = (given["code_challenge"], given["redirect_uri"])
            back = {"code": code, "state": given["state"]}
        self.send_response(302)
        self.send_header("location", f"{given['redirect_uri']}?{urlencode(back)}")
        self.end_headers()

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"])).decode()
        with self.server.lock:
            if self.path == "/v1/chat/completions":
                self._complete()
            elif self.path == "/device":
                self._device(dict(parse_qsl(data)))
            else:
                self._token(dict(parse_qsl(data)))

    def _device(self, given: dict[str, str]) -> None:
        assert given == {"client_id": self.server.client_id, "scope": self.server.scope}
        code = secrets.token_hex(8)
        self.server.devices[code] = time.monotonic()
        place = f"{self.server.url}/activate"
        self._send(
            {
                "device_code": code,
                "user_code": "WDJB-MJHT",
                "verification_uri": place,
                "expires_in": 60,
                "interval": self.server.interval,
            }
        )

    def _token(self, given: dict[str, str]) -> None:
        server = self.server
        assert given.pop("client_id") == server.client_id
        error = self._refusal(given)
        if error:
            self._send({"error": error, "error_description": error.replace("_", " ")}, server.refusal_status)
        else:
            server.renewals += given["grant_type"] == "refresh_token"
            self._send(server.tokens())

    def _refusal(self, given: dict[str, str]) -> str:
        """Return why no token is given; empty when one is."""
        server, grant = self.server, given["grant_type"]
        if grant == "authorization_code":
            challenge, uri = server.codes.pop(given["code"], ("", ""))
            verifier = given["code_verifier"]
            digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
            good = digest == challenge and uri == given["redirect_uri"] and 43 <= len(verifier) <= 128
            return "" if good else "invalid_grant"
        if grant == "refresh_token":
            return "" if given["refresh_token"] == server.refresh else "invalid_grant"
        if grant != DEVICE or given["device_code"] not in server.devices:
            return "invalid_request"
        too_soon = time.monotonic() - server.devices[given["device_code"]] < server.interval * 0.9
        server.devices[given["device_code"]] = time.monotonic()
        if too_soon:
            return "slow_down"
        if server.pending:
            server.pending -= 1
            return "authorization_pending"
        return "access_denied" if server.denies else ""

    def _complete(self) -> None:
        token = self.headers["authorization"].removeprefix("Bearer ")
        self.server.asked.append(token)
        if token == self.server.access:
            self._send({"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]})
        else:
            self._send({"error": {"message": "token expired"}}, 401)

    def _send(self, value: Any, status: int = 200) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None: ...


@contextlib.contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    """Run the server on a free port while the block lasts."""
    server = OAuthServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
