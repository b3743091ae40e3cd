"""Google's application-default credentials.

https://google.aip.dev/auth/4110

The file that GOOGLE_APPLICATION_CREDENTIALS names, that of `gcloud auth application-default login`, the metadata server
of the machine, in this order. A token is kept until it is about to end.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.contracts.model_provider import NotSignedIn

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL = "https://oauth2.googleapis.com/token"
METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
LEEWAY_S = 120.0
"""A token that ends so soon is renewed before it is used."""
TIMEOUT_S = 8.0
METADATA_TIMEOUT_S = 2.0
"""On a machine outside Google Cloud no server answers."""
LOGIN = "`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS=FILE"


class Token(NamedTuple):
    """An access token, and until when (seconds of `time.monotonic`) it is used."""

    text: str
    until: float


class GoogleCredentials(NamedTuple):
    """Credentials. `file`: None for those of the machine."""

    file: Path | None
    stamp: float
    value: Mapping[str, Any]

    @property
    def description(self) -> str:
        if self.file is None:
            return "the service account of this machine"
        who = self.value.get("client_email") or self.value.get("type")
        return f"{self.file} ({who})"


class GoogleTokens:
    """The token of this process; asks Google when it ends, or when the provider refused it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: tuple[GoogleCredentials, Token] | None = None

    def token(self, *, refused: str = "") -> str:
        """Return a token other than `refused`. Raises NotSignedIn."""
        with self._lock:
            found = credentials()
            if self._current is not None:
                whose, token = self._current
                if whose == found and token.text != refused and time.monotonic() < token.until:
                    return token.text
            token = _request_token(found)
            self._current = (found, token)
            return token.text

    @property
    def last(self) -> str:
        """The token that was given out last; empty before."""
        return "" if self._current is None else self._current[1].text


def credentials() -> GoogleCredentials:
    """Return the credentials of a file, but not those of the machine. Raise NotSignedIn for a broken file."""
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    gcloud = os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    file = Path(named or Path(gcloud, "application_default_credentials.json")).expanduser()
    try:
        stamp = file.stat().st_mtime
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        if named:
            why = f"GOOGLE_APPLICATION_CREDENTIALS names {file}, which is not there."
            raise NotSignedIn(why, "Correct the path, or unset the variable.") from None
        return GoogleCredentials(None, 0.0, {})
    except (OSError, ValueError) as exc:
        raise NotSignedIn(f"{file} cannot be read: {type(exc).__name__}.", f"Create it again: {LOGIN}.") from None
    if not isinstance(value, dict) or value.get("type") not in ("authorized_user", "service_account"):
        kind = value.get("type") if isinstance(value, dict) else None
        why = f"{file} has credentials of the type {kind!r}; authorized_user and service_account are supported."
        raise NotSignedIn(why, f"{LOGIN}; or set VERTEX_ACCESS_TOKEN.")
    return GoogleCredentials(file, stamp, value)


def _request_token(found: GoogleCredentials) -> Token:
    if found.file is None:
        return _from_machine()
    try:
        form = _refresh(found.value) if found.value["type"] == "authorized_user" else _assertion(found.value)
    except KeyError as exc:
        raise NotSignedIn(f"{found.file} has no {exc.args[0]!r}.", f"Create it again: {LOGIN}.") from None
    url = str(found.value.get("token_uri") or TOKEN_URL)
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise NotSignedIn(f"{found.file} names the address {url}, which is no https://.", "Correct the file.")
    try:
        return _token(_fetch(urllib.request.Request(url, urllib.parse.urlencode(form).encode()), TIMEOUT_S))
    except urllib.error.HTTPError as exc:
        raise NotSignedIn(
            f"Google does not renew the token of {found.description}: {_error_text(exc)}.", f"Again: {LOGIN}."
        ) from None
    except (OSError, ValueError) as exc:
        raise NotSignedIn(f"{parts.hostname} gives no token: {exc}.", "Check the network.") from None


def _refresh(value: Mapping[str, Any]) -> dict[str, str]:
    names = ("client_id", "client_secret", "refresh_token")
    return {"grant_type": "refresh_token", **{name: str(value[name]) for name in names}}


def _assertion(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the form of RFC 7523: a claim that is signed with the account's key."""
    now = int(time.time())
    head = {"alg": "RS256", "typ": "JWT", "kid": value["private_key_id"]}
    audience = str(value.get("token_uri") or TOKEN_URL)
    claim = {"iss": value["client_email"], "scope": SCOPE, "aud": audience, "iat": now, "exp": now + 3600}
    text = ".".join(_b64(json.dumps(part).encode()) for part in (head, claim))
    assertion = f"{text}.{_b64(_rs256(str(value['private_key']), text.encode()))}"
    return {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}


def _rs256(key: str, text: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError:
        hint = "Install the extra `vertex` (`hermes doctor` says how; on NixOS extraDependencyGroups)."
        raise NotSignedIn("A service account's key signs with cryptography, which is not installed.", hint) from None
    try:
        private = serialization.load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, rsa.RSAPrivateKey):
        raise NotSignedIn("The private_key of the service account is no RSA key.", "Make a new key in the console.")
    return private.sign(text, padding.PKCS1v15(), hashes.SHA256())


def _from_machine() -> Token:
    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    request = urllib.request.Request(f"http://{host}{METADATA_PATH}", headers={"Metadata-Flavor": "Google"})
    try:
        direct = urllib.request.ProxyHandler({})  # a proxy would be shown the token, which comes in plain text
        return _token(_fetch(request, METADATA_TIMEOUT_S, direct))
    except (OSError, ValueError):
        why = "There are no application-default credentials, and this machine is none of Google Cloud."
        raise NotSignedIn(why, f"{LOGIN}; or set VERTEX_ACCESS_TOKEN.") from None


def _fetch(request: urllib.request.Request, timeout_s: float, *handlers: urllib.request.BaseHandler) -> Any:
    class Stay(urllib.request.HTTPRedirectHandler):
        """The secret would go along."""

        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    with urllib.request.build_opener(Stay, *handlers).open(request, timeout=timeout_s) as answer:
        return json.loads(answer.read(1 << 20))


def _token(value: Any) -> Token:
    if not isinstance(value, dict) or not isinstance(value.get("access_token"), str):
        raise ValueError("its answer has no access_token")
    return Token(value["access_token"], time.monotonic() + float(value.get("expires_in") or 0) - LEEWAY_S)


def _error_text(exc: urllib.error.HTTPError) -> str:
    try:
        value = json.loads(exc.read(1 << 16))
        return str(value.get("error_description") or value["error"])
    except (ValueError, KeyError, AttributeError, OSError):
        return f"status {exc.code}"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
