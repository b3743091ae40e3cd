"""Is a webhook's request from who has the secret? Each service proves it in its own way."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal

__all__ = ["CHECKS", "MAX_AGE_S", "Check", "delivery_id", "event_name", "fingerprint", "is_signature_valid"]

Check = Literal["hmac", "github", "gitlab", "slack"]
CHECKS: tuple[Check, ...] = ("hmac", "github", "gitlab", "slack")
MAX_AGE_S = 300.0
"""Longest time between a signed moment and now, so that what was overheard is of no use later."""

Headers = Mapping[str, str]
"""Names in lower case."""

_IDS = ("x-github-delivery", "x-gitlab-event-uuid", "idempotency-key", "webhook-id", "x-request-id", "x-delivery-id")
_EVENTS = ("x-github-event", "x-gitlab-event", "x-event-type")


def is_signature_valid(check: Check, secret: str, header: str, headers: Headers, body: bytes, now: float) -> bool:
    """Say whether a request proves that its sender has the secret.

    Args:
        header: of `hmac`, where the signature is.
        now: seconds since the epoch.
    """
    key = secret.encode()
    if check == "gitlab":
        return hmac.compare_digest(headers.get("x-gitlab-token", "").encode("latin-1"), key)
    if check == "slack":
        stamp = headers.get("x-slack-request-timestamp", "")
        if not (stamp.isascii() and stamp.isdigit() and abs(now - int(stamp[:12])) <= MAX_AGE_S):
            return False
        mac = hmac.new(key, b"v0:" + stamp.encode() + b":" + body, hashlib.sha256)
        return _is_equal(headers.get("x-slack-signature", ""), "v0=" + mac.hexdigest())
    mac = hmac.new(key, body, hashlib.sha256)
    if check == "github":
        return _is_equal(headers.get("x-hub-signature-256", ""), "sha256=" + mac.hexdigest())
    given = headers.get(header.lower(), "").removeprefix("sha256=")
    return _is_equal(given.lower(), mac.hexdigest()) or _is_equal(given, base64.b64encode(mac.digest()).decode())


def fingerprint(check: Check, headers: Headers, body: bytes) -> str:
    """Return a hash of what the signature covers: the body, for Slack also the time.

    The id of a delivery is a header that nobody signs: it does not tell a new request from one that was overheard.
    """
    stamp = headers.get("x-slack-request-timestamp", "") if check == "slack" else ""
    return hashlib.sha256(stamp.encode() + b":" + body).hexdigest()


def delivery_id(id_header: str, headers: Headers, payload: object) -> str:
    """Return the sender's id of this delivery, the same when it tries again; empty when it gives none."""
    for name in (id_header.lower(), *_IDS):
        if name and (value := headers.get(name)):
            return value[:200]
    found = payload.get("event_id") if isinstance(payload, dict) else None  # Slack
    return str(found)[:200] if found else ""


def event_name(headers: Headers, payload: object) -> str:
    """Return what happened, in the sender's words; empty when it does not say."""
    for name in _EVENTS:
        if value := headers.get(name):
            return value[:100]
    if isinstance(payload, dict):
        inner = payload.get("event")
        found = inner.get("type") if isinstance(inner, dict) else payload.get("type")
        return str(found)[:100] if isinstance(found, str) else ""
    return ""


def _is_equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode("latin-1", "replace"), right.encode())
