"""AWS Signature Version 4.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"


class Keys(NamedTuple):
    """Keys of a signature; `session_token` belongs to temporary keys, `source` is their origin in words."""

    access_key: str
    secret_key: str
    session_token: str = ""
    source: str = ""


def sign_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: Keys,
    *,
    region: str,
    service: str,
    now: datetime,
) -> dict[str, str]:
    """Return the headers to add to a request.

    Args:
        headers: those of the request that are signed with it.
        now: in UTC.
    """
    parts = urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": stamp, **({"x-amz-security-token": keys.session_token} if keys.session_token else {})}
    bound = {"host": _host(url), **{name.lower(): " ".join(value.split()) for name, value in headers.items()}, **added}
    names = ";".join(sorted(bound))
    canonical = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/-_.~"),
            _query(parts.query),
            *(f"{name}:{bound[name]}" for name in sorted(bound)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join((ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"{keys.access_key}/{scope}"
    added["authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return added


def _host(url: str) -> str:
    """Return the Host header, which names a port only where it is not the usual one."""
    parts = urlsplit(url)
    usual = {"https": 443, "http": 80}.get(parts.scheme)
    host = parts.netloc.rpartition("@")[2]
    return host.removesuffix(f":{usual}") if parts.port == usual else host


def _query(query: str) -> str:
    pairs = [(quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parse_qsl(query, True)]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
