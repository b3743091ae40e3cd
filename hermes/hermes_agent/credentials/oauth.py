"""Sign-in at a provider with OAuth 2.0: PKCE or a device code, and refresh of tokens.

Everything blocks. RFC 6749 (codes, refresh), RFC 7636 (PKCE), RFC 8252 (programs on a user's machine), RFC 8628
(devices).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import secrets
import time
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from hermes_agent.contracts.model_provider import PooledCredential
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.credentials.logins import API_KEY, OAUTH, Login, LoginExpired, is_key

TIMEOUT_S = 30.0
SIGN_IN_S = 300.0
"""Seconds that the user has to sign in, unless the provider says otherwise."""
POLL_S = 5.0
"""Seconds between requests unless the provider says otherwise (RFC 8628 §3.2), and added by `slow_down` (§3.5)."""
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
GRANT_ENDED = frozenset(("invalid_grant", "invalid_client", "unauthorized_client", "access_denied"))
"""Errors after which only a new sign-in helps (RFC 6749 §5.2)."""
DONE_PAGE = b"<!doctype html><meta charset=utf-8><title>hermes</title><p>Signed in. You can close this page."
FAILED_PAGE = b"<!doctype html><meta charset=utf-8><title>hermes</title><p>That did not work; the terminal says why."


class OAuthClient(LazyNamedTuple):
    """The registration of this program at a provider, and the provider's URLs."""

    provider: str
    client_id: str
    token_url: str
    authorize_url: str = ""
    device_url: str = ""
    scope: str = ""
    redirect_port: int = 0
    """Port of this machine that the browser returns to; 0 takes any."""
    key_url: str = ""
    """URL that exchanges the browser's code for a key."""


def sign_in_by_browser(client: OAuthClient, label: str, show: Callable[[str], None]) -> Login:
    """Sign in with a browser, which returns to a port of this machine.

    Args:
        show: called with the URL to open.

    Raises:
        UserError: the sign-in was refused or not completed in time.
    """
    verifier = code_verifier()
    challenge = code_challenge(verifier)
    state = secrets.token_urlsafe(24)
    with CallbackServer(client.redirect_port) as callback:
        redirect = f"http://127.0.0.1:{callback.server_address[1]}/callback"
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect,
            "scope": client.scope,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        mark = "&" if "?" in client.authorize_url else "?"
        show(client.authorize_url + mark + urllib.parse.urlencode({k: v for k, v in query.items() if v}))
        code = callback.code(client.provider, state)
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
    status, answer = post_form(client.token_url, {**form, "client_id": client.client_id})
    if not answer.get("access_token"):
        raise _refused(client.provider, answer, status)
    return _login(client, label, answer)


def sign_in_for_key(client: OAuthClient, label: str, show: Callable[[str], None]) -> Login:
    """Get a key for this program with a browser, as OpenRouter offers it; no client is registered.

    https://openrouter.ai/docs/guides/overview/auth/oauth

    Args:
        show: called with the URL to open.

    Raises:
        UserError: the sign-in was refused or not completed in time.
    """
    verifier = code_verifier()
    challenge = code_challenge(verifier)
    state = secrets.token_urlsafe(24)  # in the path: the provider returns nothing but the code
    with _callback(client.redirect_port) as callback:
        callback.path = f"/callback/{state}"
        query = {
            "callback_url": f"http://localhost:{callback.server_address[1]}{callback.path}",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        show(f"{client.authorize_url}?{urllib.parse.urlencode(query)}")
        code = callback.code(client.provider, "")
    given = {"code": code, "code_verifier": verifier, "code_challenge_method": "S256"}
    status, answer = post_form(client.key_url, given, as_json=True)
    key = answer.get("key")
    if not isinstance(key, str) or not key:
        raise _refused(client.provider, answer, status)
    return Login(client.provider, label, API_KEY, key)


def _callback(port: int) -> CallbackServer:
    """Return the server for the browser's answer, at another port if this one is in use."""
    with contextlib.suppress(OSError):
        return CallbackServer(port)
    return CallbackServer(0)


def code_verifier() -> str:
    """Return a new verifier of PKCE."""
    return secrets.token_urlsafe(64)


def code_challenge(verifier: str) -> str:
    """Return the challenge of a verifier (S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def sign_in_by_device(client: OAuthClient, label: str, show: Callable[[str, str], None]) -> Login:
    """Sign in with a code that the user enters on another device.

    Args:
        show: called with the URL and the code.

    Raises:
        UserError: the sign-in was refused, or the code expired.
    """
    given = {"client_id": client.client_id, "scope": client.scope}
    status, began = post_form(client.device_url, {k: v for k, v in given.items() if v})
    if status >= 400 or not began.get("device_code"):
        raise _refused(client.provider, began, status)
    show(str(began.get("verification_uri_complete") or began.get("verification_uri")), str(began.get("user_code")))
    wait_s = float(began.get("interval") or POLL_S)
    end = time.monotonic() + float(began.get("expires_in") or SIGN_IN_S)
    form = {"grant_type": DEVICE_GRANT, "device_code": began["device_code"], "client_id": client.client_id}
    while time.monotonic() + wait_s < end:
        time.sleep(wait_s)
        status, answer = post_form(client.token_url, form)
        if answer.get("access_token"):
            return _login(client, label, answer)
        error = answer.get("error")
        if error == "slow_down":
            wait_s = float(answer.get("interval") or wait_s + POLL_S)
        elif error != "authorization_pending":
            raise _refused(client.provider, answer, status)
    raise UserError(f"The code for {client.provider} was not entered in time.", hint="Try again.")


def refresh(login: Login) -> Login:
    """Return a login with a new token.

    Raises:
        LoginExpired: the user has to sign in again.
        UserError: the provider cannot be reached, or failed.
    """
    again = f"Sign in again: `hermes auth login {login.provider} --label {login.label}`."
    if not login.refresh_token or not login.token_url:
        raise LoginExpired(f"The login {login.label!r} of {login.provider} has ended.", hint=again)
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "client_id": login.client_id}
    status, answer = post_form(login.token_url, form)
    if answer.get("access_token"):
        return login._replace(refused="", **_tokens(answer, login.refresh_token))
    # GitHub refuses with status 200
    if (400 <= status < 500 and status != 429) or (status == 200 and answer.get("error")):
        said = answer.get("error_description") or answer.get("error") or f"status {status}"
        raise LoginExpired(f"{login.provider} does not renew the login {login.label!r}: {said}.", hint=again)
    raise _refused(login.provider, answer, status)


def refresh_by_plugin(renew: Callable[[PooledCredential], Mapping[str, Any]], login: Login) -> Login:
    """Return a login with the token that a plugin's `refresh_credential` got.

    Raises:
        LoginExpired: the user has to sign in again.
        UserError: the plugin did not get a token.
    """
    try:
        answer = dict(renew(pooled_credential(login)))
        fresh = login_of(pooled_credential(login), answer)
    except Exception as exc:  # a plugin's code
        said = str(exc) or type(exc).__name__
        if getattr(exc, "code", "") in GRANT_ENDED:
            again = f"Sign in again: `hermes auth login {login.provider} --label {login.label}`."
            raise LoginExpired(
                f"The login {login.label!r} of {login.provider} is not renewed: {said}", hint=again
            ) from exc
        raise UserError(
            f"The plugin of {login.provider} did not renew the login {login.label!r}: {said}", hint="Try again."
        ) from exc
    return login._replace(
        access_token=fresh.access_token,
        refresh_token=fresh.refresh_token or login.refresh_token,
        expires_at=fresh.expires_at,
        refused="",
    )


def pooled_credential(login: Login) -> PooledCredential:
    """Return a login as plugins read it."""
    ends = None if login.expires_at is None else int(login.expires_at * 1000)
    return PooledCredential(
        login.provider,
        login.id,
        login.label,
        login.auth_type,
        access_token=login.access_token,
        refresh_token=login.refresh_token or None,
        expires_at=login.expires_at,
        expires_at_ms=ends,
    )


def login_of(credential: PooledCredential, changes: Mapping[str, Any] | None = None) -> Login:
    """Return a plugin's credential as a login; `changes` are later values of its fields.

    Raises:
        ValueError: there is no token, or it is not one line of printable characters.
    """
    said = {name: getattr(credential, name) for name in ("access_token", "refresh_token", "expires_at_ms")}
    said |= {name: value for name, value in (changes or {}).items() if name in said}
    token, end = str(said["access_token"] or ""), said["expires_at_ms"]
    if not is_key(token):
        raise ValueError("it gave no access token")
    seconds = _seconds(credential.expires_at) if end is None and changes is None else end and float(end) / 1000
    kind = OAUTH if credential.auth_type.startswith(OAUTH) else API_KEY
    label = credential.label or credential.provider
    return Login(credential.provider, label, kind, token, str(said["refresh_token"] or ""), seconds, id=credential.id)


def _seconds(end: float | str | None) -> float | None:
    if isinstance(end, str):
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(end).timestamp()
        return None
    return end


def _login(client: OAuthClient, label: str, answer: Mapping[str, Any]) -> Login:
    tokens = _tokens(answer, "")
    return Login(client.provider, label, OAUTH, token_url=client.token_url, client_id=client.client_id, **tokens)


def _tokens(answer: Mapping[str, Any], refresh_token: str) -> dict[str, Any]:
    """Return the tokens of an answer; a refresh token that is not replaced stays valid (RFC 6749 §6)."""
    ends = answer.get("expires_in")
    return {
        "access_token": str(answer["access_token"]),
        "refresh_token": str(answer.get("refresh_token") or refresh_token),
        "expires_at": time.time() + float(ends) if isinstance(ends, int | float | str) and str(ends) else None,
    }


def _refused(provider: str, answer: Mapping[str, Any], status: int) -> UserError:
    error = answer.get("error")
    if isinstance(error, dict):  # OpenRouter's form
        error = error.get("message")
    said = answer.get("error_description") or error or f"it answered with status {status}"
    return UserError(f"Signing in at {provider} failed: {said}.", hint="Try again.")


def post_form(url: str, form: Mapping[str, str], *, as_json: bool = False) -> tuple[int, dict[str, Any]]:
    """Post a form, or the same as JSON; return the status and the JSON of the answer, empty without one.

    Redirects are not followed, since the secret would be sent along.

    Raises:
        UserError: there is no answer, or the URL would send secrets unencrypted.
    """
    import httpx  # 60 ms; only sign-in and refresh need it

    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise UserError(f"{url!r} is no address to sign in at.", hint="Expected https://….")
    try:
        body: dict[str, Any] = {"json" if as_json else "data": dict(form)}
        answer = httpx.post(url, headers={"Accept": "application/json"}, timeout=TIMEOUT_S, **body)
    except (httpx.HTTPError, OSError) as exc:  # OSError: the certificates of SSL_CERT_FILE are missing
        raise UserError(f"{parts.hostname} cannot be reached: {exc}", hint="Check the network.") from exc
    try:
        value = answer.json()
    except ValueError:
        value = None
    return answer.status_code, value if isinstance(value, dict) else {}


class CallbackServer(http.server.HTTPServer):
    """Waits on this machine for the browser's return."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _CallbackHandler)
        self.timeout = 1.0
        self.answer: dict[str, str] | None = None
        self.state = ""
        self.path = "/callback"

    def code(self, provider: str, state: str) -> str:
        """Return the code of the provider.

        Raises:
            UserError: the provider gave none, or the time is over.
        """
        self.state = state
        end = time.monotonic() + SIGN_IN_S
        while self.answer is None and time.monotonic() < end:
            self.handle_request()
        if self.answer is None:
            raise UserError(
                f"The sign-in at {provider} was not completed within {SIGN_IN_S:g} seconds.", hint="Try again."
            )
        if "code" not in self.answer:
            raise _refused(provider, self.answer, 400)
        return self.answer["code"]


class _CallbackHandler(http.server.BaseHTTPRequestHandler):
    server: CallbackServer

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        given = dict(urllib.parse.parse_qsl(parts.query))
        # another page of the browser may send requests here: only one with the state counts (RFC 6749 §10.12)
        there = (parts.path, self.server.path), (given.get("state", ""), self.server.state)
        heard = all(secrets.compare_digest(a.encode(), b.encode()) for a, b in there)
        if heard:
            self.server.answer = given
        good = heard and "code" in given
        self.send_response(200 if good else 400)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(DONE_PAGE if good else FAILED_PAGE)

    def log_message(self, *args: Any) -> None: ...
