"""Upstream's `hermes_cli.urllib_security`: a request with a key, which goes to its own host alone."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

__all__ = ["KeepingCredentials", "open_credentialed_url", "url_origin"]

SAFE_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "range", "user-agent"})
"""Headers that are sent on to another place."""
PORTS = {"http": 80, "https": 443}


def url_origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").rstrip(".").lower(), parts.port or PORTS.get(scheme)


class KeepingCredentials(urllib.request.HTTPRedirectHandler):
    """Follows redirects. To another scheme, host or port only `SAFE_HEADERS` headers go with it, and no cookie.

    Args:
        original_url: where the request was meant for.
    """

    def __init__(self, original_url: str) -> None:
        self._origin = url_origin(original_url)

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the next request."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and url_origin(following.full_url) != self._origin:
            for name, _ in list(following.header_items()):
                if name.lower() not in SAFE_HEADERS:
                    following.remove_header(name)
        return following


def open_credentialed_url(
    request: urllib.request.Request, *, timeout: float, opener_factory: Callable[..., Any] | None = None
) -> Any:
    """Open a request whose headers hold a credential, and return the response.

    Args:
        opener_factory: makes the opener of the redirect handler that it is given; `urllib.request.build_opener` else.
    """
    opener = (opener_factory or urllib.request.build_opener)(KeepingCredentials(request.full_url))
    return opener.open(request, timeout=timeout)
