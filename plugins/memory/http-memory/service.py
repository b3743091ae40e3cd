"""API of the memory service, over the HTTP client of the standard library; blocks its worker thread."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

__all__ = ["MemoryServiceClient", "MemoryServiceUnreachable", "settings", "write_settings"]

TIMEOUT_S = 4.0
FAILURES, PAUSE_S = 3, 60.0
"""Failures in a row, and seconds without requests after them: a dead service must not hold up every turn."""
MAX_BYTES = 1024 * 1024
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class MemoryServiceUnreachable(Exception):
    """The service did not answer, or not with what the API says."""


def settings(home: str = "") -> dict[str, str]:
    """Return `url`, `api_key` and `recall_count`: the environment's, then those of `http-memory.json`."""
    file = Path(home or os.environ.get("HERMES_HOME") or Path.home() / ".hermes") / "http-memory.json"
    try:
        kept = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        kept = {}
    url = os.environ.get("HTTP_MEMORY_URL") or str(kept.get("url") or "")
    count = str(kept.get("recall_count") or "5")
    return {
        "url": url.rstrip("/"),
        "api_key": os.environ.get("HTTP_MEMORY_KEY", ""),
        "recall_count": count if count.isdigit() else "5",
    }


def write_settings(values: dict[str, Any], home: str) -> None:
    """Keep address and count, whole or not at all."""
    kept = {k: str(values[k]) for k in ("url", "recall_count") if values.get(k)}
    fresh = Path(home) / ".http-memory.json.new"
    fresh.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    fresh.replace(Path(home) / "http-memory.json")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class MemoryServiceClient:
    """The memories of one user.

    Args:
        url: base URL of the API.
        key: sent as a bearer token; "" sends none.
        user: owner of the memories.

    Raises:
        ValueError: the URL is invalid, or would send the key unencrypted to another machine.
    """

    def __init__(self, url: str, key: str, *, user: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"HTTP_MEMORY_URL is {url!r}: expected http://… or https://…")
        if parts.scheme == "http" and key and parts.hostname not in LOOPBACK:
            raise ValueError(f"{url} would send HTTP_MEMORY_KEY over the network in the clear: use https")
        self._url, self._key, self._user = url, key, user
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._failures, self._until = 0, 0.0

    def recall(self, query: str, limit: int, session: str) -> list[dict[str, str]]:
        """Return memories, `id` and `text` each, best first."""
        body = {"user": self._user, "session": session, "query": query, "limit": limit}
        found = self._ask("POST", "/v1/recall", body).get("memories")
        if not isinstance(found, list):
            raise MemoryServiceUnreachable(f"{self._url} answered /v1/recall without a list of memories")
        return [
            {"id": str(m.get("id") or ""), "text": str(m["text"])}
            for m in found
            if isinstance(m, dict) and m.get("text")
        ]

    def learn(self, messages: list[dict[str, str]], session: str) -> None:
        """Hand over a turn."""
        self._ask("POST", "/v1/turns", {"user": self._user, "session": session, "messages": messages})

    def store(self, text: str) -> str:
        """Keep a fact and return its id."""
        return str(self._ask("POST", "/v1/memories", {"user": self._user, "text": text}).get("id") or "")

    def delete(self, number: str) -> None:
        """Delete a memory."""
        self._ask("DELETE", f"/v1/memories/{quote(number, safe='')}?user={quote(self._user, safe='')}")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if time.monotonic() < self._until:
            raise MemoryServiceUnreachable(f"{self._url} failed {FAILURES} times; it is asked again in a minute")
        try:
            answer = self._send(method, path, body)
        except MemoryServiceUnreachable:
            self._failures += 1
            if self._failures >= FAILURES:
                self._failures, self._until = 0, time.monotonic() + PAUSE_S
            raise
        self._failures = 0
        return answer

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Accept": "application/json"}, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                text = response.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as exc:
            raise MemoryServiceUnreachable(
                f"{self._url}{path.partition('?')[0]} answered with status {exc.code}"
            ) from None
        except (OSError, http.client.HTTPException) as exc:
            raise MemoryServiceUnreachable(f"{self._url} cannot be reached: {exc}") from None
        if len(text) > MAX_BYTES:
            raise MemoryServiceUnreachable(f"{self._url} answered with more than {MAX_BYTES} bytes")
        try:
            answer = json.loads(text or b"{}")
        except ValueError:
            raise MemoryServiceUnreachable(f"{self._url} answered with something that is no JSON") from None
        if not isinstance(answer, dict):
            raise MemoryServiceUnreachable(f"{self._url} answered with something that is no JSON object")
        return answer
