"""Sign-in of a plugin's model provider: upstream's helpers, and the sign-ins that it stores.

`pkce_auth_handler` and `pkce_refresh_credential` make the hooks of a profile from an `OAuthPKCEConfig`; a plugin with a
flow of its own uses the steps. `hermes auth login PROVIDER` calls the hook. The sign-ins are in `auth.json`, with
those of the agent. A plugin reads only those of providers that sign in through a plugin.
Source: plugin contract of 0.23 §5.4, §9.8.
"""

from __future__ import annotations

import functools
import os
import secrets
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from hermes_agent.compat.agent import host
from hermes_agent.config import hermes_home
from hermes_agent.contracts.model_provider import PooledCredential
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.credentials import oauth
from hermes_agent.credentials.logins import LoginStore

LOOPBACK = ("127.0.0.1", "::1")
SOURCE = "manual:loopback_pkce"
Fail = Callable[[str, str], Exception]
"""Makes the error of a message and its code."""


class AuthError(RuntimeError):
    """Error: a sign-in or its refresh failed.

    Args:
        message: what happened.
        provider: the provider.
        code: a word for programs, such as `oauth_state_mismatch`; that of the server where it says one.
        relogin_required: whether only a new sign-in helps.
    """

    def __init__(
        self, message: str, *, provider: str = "", code: str | None = None, relogin_required: bool = False
    ) -> None:
        super().__init__(message)
        self.provider, self.code, self.relogin_required = provider, code, relogin_required


@lazy_dataclass(frozen=True)
class OAuthPKCEConfig:
    """Addresses and identity of a public OAuth client; PKCE stands in for a secret."""

    client_id: str
    authorize_url: str
    token_url: str
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0
    """Port of this machine that the browser returns to; 0 takes any."""
    redirect_path: str = "/callback"
    audience: str | None = None
    extra_authorize_params: Mapping[str, str] = field(default_factory=dict)
    extra_token_params: Mapping[str, str] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = ()
    """Hosts of `token_url`, with their subdomains; none: the host of `authorize_url`."""
    timeout_seconds: float = 180.0
    """Time that the user has."""
    label: str = ""
    """Name of the sign-in; empty: the provider's."""


class SignInPool:
    """The sign-ins of one provider.

    Args:
        provider: name of a provider that signs in through a plugin.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self._logins = LoginStore(hermes_home() / "auth.json")

    def entries(self) -> list[PooledCredential]:
        """Return the sign-ins in their order."""
        return [oauth.pooled_credential(login) for login in self._logins.entries(self.provider)]

    def has_credentials(self) -> bool:
        """Return whether there is a sign-in."""
        return bool(self._logins.entries(self.provider))

    def add_entry(self, entry: PooledCredential) -> PooledCredential:
        """Store a sign-in, in place of the one with its label, and return it with its id.

        Raises:
            ValueError: it has no token, or is another provider's.
        """
        if entry.provider != self.provider:
            raise ValueError(f"a sign-in of {entry.provider!r} is not stored among those of {self.provider!r}")
        entry.id = entry.id or new_id("cred")
        self._logins.put(oauth.login_of(entry))
        return entry

    def remove_index(self, index: int) -> PooledCredential | None:
        """Remove the sign-in at that place, counted from 1, and return it; None if there is none."""
        entries = self.entries()
        if not 1 <= index <= len(entries):
            return None
        self._logins.remove(self.provider, entries[index - 1].label)
        return entries[index - 1]


def load_pool(provider: str, **_environment: Any) -> SignInPool:
    """Return the sign-ins of a provider that signs in through a plugin.

    Raises:
        PermissionError: the provider's keys are the agent's, or there is no such provider.
    """
    known = host().model_providers.get(provider)
    if known is None or known.profile.auth_handler is None:
        raise PermissionError(
            f"load_pool({provider!r}): the agent keeps the keys of its providers; a plugin reads the sign-ins of a"
            " profile with `auth_handler`, and ctx.llm asks every provider"
        )
    return SignInPool(known.name)


def validate_config(provider: str, config: OAuthPKCEConfig) -> None:
    """Refuse a client with addresses that would send the code or a token to another place.

    Raises:
        AuthError: no id, an address that is not encrypted, or a token address at a host that is not allowed.
    """
    if not str(config.client_id or "").strip():
        raise auth_error(provider, "the OAuth client has no client_id.", "oauth_client_id_missing")
    hosts = []
    for name in ("authorize_url", "token_url"):
        url = str(getattr(config, name) or "")
        parts = urllib.parse.urlsplit(url)
        known = (parts.hostname or "").lower()
        if not known or not (parts.scheme == "https" or (parts.scheme == "http" and known in LOOPBACK)):
            raise auth_error(provider, f"{name} is {url!r}, expected https://….", "oauth_endpoint_invalid")
        hosts.append(known)
    allowed = [name.lower() for name in config.allowed_hosts] or hosts[:1]
    if not any(hosts[1] == name or hosts[1].endswith(f".{name}") for name in allowed):
        raise auth_error(
            provider,
            f"token_url is at {hosts[1]!r}, which is none of {', '.join(allowed)} (`allowed_hosts`).",
            "oauth_token_host_rejected",
        )
    if not 0 <= int(config.redirect_port) <= 65535:
        raise auth_error(provider, f"redirect_port is {config.redirect_port}.", "oauth_redirect_invalid")


def auth_error(provider: str, message: str, code: str) -> AuthError:
    """Return an error that names the provider."""
    ended = code in oauth.GRANT_ENDED
    return AuthError(f"{provider}: {message}", provider=provider, code=code, relogin_required=ended)


def post_token(provider: str, config: OAuthPKCEConfig, form: Mapping[str, str], *, code: str) -> dict[str, Any]:
    """Ask the provider for tokens; return the fields of a `PooledCredential` that they fill.

    Raises:
        AuthError: there is none; its code is the server's error, or `code`.
    """
    sent = {**config.extra_token_params, **form, "client_id": config.client_id}
    if config.audience:
        sent.setdefault("audience", config.audience)
    try:
        status, answer = oauth.post_form(config.token_url, sent)
    except UserError as exc:
        raise auth_error(provider, exc.message, code) from exc
    token = str(answer.get("access_token") or "").strip()
    if status >= 400 or not token:
        error = answer.get("error")
        known = error if isinstance(error, str) and error in oauth.GRANT_ENDED else ""
        said = known or ("no access_token" if status < 400 else f"status {status}")
        raise auth_error(provider, f"the token request failed ({said}).", known or code)
    lives = answer.get("expires_in")
    lives_s = float(lives) if isinstance(lives, int | float) or (isinstance(lives, str) and lives.isdecimal()) else 0.0
    return {
        "access_token": token,
        "refresh_token": str(answer.get("refresh_token") or form.get("refresh_token") or "").strip() or None,
        "expires_at_ms": int((time.time() + lives_s) * 1000) if lives_s else None,
        "last_refresh": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def login(provider: str, config: OAuthPKCEConfig, *, open_browser: bool = True) -> dict[str, Any]:
    """Sign in with a browser; return what `post_token` returns.

    Raises:
        AuthError: the sign-in was refused, forged, or not completed in time.
    """
    validate_config(provider, config)
    fail = functools.partial(auth_error, provider)
    path = "/" + config.redirect_path.lstrip("/")
    handler, result = callback_handler(path, display_name=config.label or provider)
    server = bind_callback_server(
        LOOPBACK[0], config.redirect_port, handler, err=fail, bind_failed_code="oauth_callback_bind_failed"
    )
    redirect = f"http://{LOOPBACK[0]}:{server.server_address[1]}{path}"
    verifier, state = oauth.code_verifier(), secrets.token_urlsafe(32)
    query = {
        **config.extra_authorize_params,
        "client_id": config.client_id,
        "response_type": "code",
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": oauth.code_challenge(verifier),
        "code_challenge_method": "S256",
        "scope": " ".join(config.scopes),
        "audience": config.audience or "",
    }
    mark = "&" if urllib.parse.urlsplit(config.authorize_url).query else "?"
    address = config.authorize_url + mark + urllib.parse.urlencode({k: v for k, v in query.items() if v})
    print(f"Sign in at:\n{address}", flush=True)
    print_ssh_hint(redirect)
    if open_browser and can_open_browser():
        import webbrowser  # its import searches for browsers

        webbrowser.open(address)
    given = serve_callback(
        server, result, timeout_seconds=config.timeout_seconds, err=fail, timeout_code="oauth_callback_timeout"
    )
    if given.get("error"):
        said = given.get("error_description") or given["error"]
        raise fail(f"the sign-in was refused: {said}", "oauth_authorization_denied")
    if not secrets.compare_digest(str(given.get("state") or "").encode(), state.encode()):
        raise fail("the browser's answer is not that of this sign-in (state).", "oauth_state_mismatch")
    code = str(given.get("code") or "").strip()
    if not code:
        raise fail("the browser's answer has no code.", "oauth_no_code")
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
    return post_token(provider, config, form, code="oauth_token_exchange_failed")


def pkce_auth_handler(config: OAuthPKCEConfig) -> Callable[[str, Any], bool]:
    """Return an `auth_handler` that signs in with a browser."""

    def handle(action: str, args: Any) -> bool:
        pool = load_pool(str(getattr(args, "provider", "") or "").strip().lower())
        name = pool.provider
        if action == "add":
            tokens = login(name, config, open_browser=not getattr(args, "no_browser", False))
            label = getattr(args, "label", "") or config.label or name
            entry = pool.add_entry(PooledCredential(name, label=label, source=SOURCE, **tokens))
            print(f"Signed in at {config.label or name} as {entry.label!r}.")
        elif action == "status":
            print(f"{name}: {'signed in' if pool.has_credentials() else 'signed out'}")
        elif action == "logout":
            gone = [pool.remove_index(index) for index in range(len(pool.entries()), 0, -1)]
            print(f"Signed out of {name} ({len(gone)} removed).")
        else:
            return False
        return True

    return handle


def pkce_refresh_credential(config: OAuthPKCEConfig) -> Callable[[PooledCredential], Mapping[str, Any]]:
    """Return a `refresh_credential`: it asks with the refresh token, which works once.

    The agent calls it while no other process refreshes this sign-in.
    """

    def renew(entry: PooledCredential) -> Mapping[str, Any]:
        validate_config(entry.provider, config)
        if not entry.refresh_token:
            raise auth_error(entry.provider, "the sign-in cannot be renewed.", "invalid_grant")
        form = {"grant_type": "refresh_token", "refresh_token": entry.refresh_token, "scope": " ".join(config.scopes)}
        wanted = {name: value for name, value in form.items() if value}
        return post_token(entry.provider, config, wanted, code="oauth_refresh_failed")

    return renew


def callback_handler(path: str, *, display_name: str = "") -> tuple[type[BaseHTTPRequestHandler], dict[str, Any]]:
    """Return a handler of the browser's return to `path`, and the dict that it fills."""
    result: dict[str, Any] = dict.fromkeys(("code", "state", "error", "error_description"))

    class Returning(BaseHTTPRequestHandler):
        """Takes the first answer that has a code or an error."""

        def do_GET(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            given = dict(urllib.parse.parse_qsl(parts.query))
            heard = parts.path == path and bool(given.get("code") or given.get("error"))
            if heard and not (result["code"] or result["error"]):
                result.update({name: given.get(name) for name in result})
            self.send_response(200 if heard and not given.get("error") else 400)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(oauth.DONE_PAGE if heard and not given.get("error") else oauth.FAILED_PAGE)

        def log_message(self, *args: Any) -> None: ...

    return Returning, result


def bind_callback_server(
    host_name: str,
    port: int,
    handler: type[BaseHTTPRequestHandler],
    *,
    err: Fail | None = None,
    bind_failed_code: str = "oauth_callback_bind_failed",
) -> HTTPServer:
    """Return a server for the browser's return, on this machine alone.

    Raises:
        AuthError: or what `err` makes: the port is in use, or the address is not of this machine.
    """
    fail = err or functools.partial(auth_error, "sign-in")
    if host_name not in (*LOOPBACK, "localhost"):
        raise fail(f"{host_name!r} is not this machine (expected {LOOPBACK[0]}).", bind_failed_code)
    try:
        return HTTPServer((host_name, port), handler)
    except OSError as exc:
        raise fail(f"port {port} of {host_name} cannot be used: {exc.strerror}", bind_failed_code) from exc


def serve_callback(
    server: HTTPServer,
    result: dict[str, Any],
    *,
    timeout_seconds: float = 180.0,
    err: Fail | None = None,
    timeout_code: str = "oauth_callback_timeout",
) -> dict[str, Any]:
    """Answer requests until `result` has a code or an error; return it, and close the server.

    Raises:
        AuthError: or what `err` makes: the time is over.
    """
    end = time.monotonic() + timeout_seconds
    server.timeout = 1.0
    with server:
        while not (result.get("code") or result.get("error")):
            if time.monotonic() >= end:
                fail = err or functools.partial(auth_error, "sign-in")
                raise fail(f"the sign-in was not completed within {timeout_seconds:g} seconds.", timeout_code)
            server.handle_request()
    return result


def can_open_browser() -> bool:
    """Return whether a browser with windows can be opened here."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and not os.environ.get("SSH_CONNECTION")


def print_ssh_hint(redirect: str) -> None:
    """Say, in a session over SSH, how a browser of another machine reaches the port of this machine."""
    if os.environ.get("SSH_CONNECTION"):
        port = urllib.parse.urlsplit(redirect).port
        print(f"If the browser is on another machine, run there first: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE")
