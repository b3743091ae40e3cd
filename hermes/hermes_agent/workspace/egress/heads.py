"""What a program asks a proxy for: `CONNECT host:port`, or a request with a whole address."""

from __future__ import annotations

import re
from typing import NamedTuple

from hermes_agent.policy.network import InvalidHost, parse_host

__all__ = ["MAX_HEAD", "BadHead", "Head", "proxy_answer", "parse_head"]

MAX_HEAD = 16_384
"""Bytes of the longest head."""

_REQUEST = re.compile(r"([A-Z]{1,20}) ([!-~]{1,8192}) HTTP/1\.[01]")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/?#@\[\]]+)(?::([0-9]{1,5}))?")
_OWN = frozenset({"connection", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "upgrade"})
"""Fields that are for the proxy, or that it writes itself."""


class BadHead(ValueError):
    """A head that is not understood; the text says why."""


class Head(NamedTuple):
    """Where a program wants to go, and what is to be said there first."""

    host: str
    port: int
    first: bytes
    """The request for the server; empty after `CONNECT`, where the program goes on by itself."""


def parse_head(data: bytes) -> Head:
    """Return what a head asks for; `data` ends with its empty line.

    Raises:
        BadHead: it is no request for a proxy.
    """
    try:
        lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        request = _REQUEST.fullmatch(lines[0])
        fields = [_FIELD.fullmatch(line) for line in lines[1:]]
        if request is None or not all(fields):
            raise BadHead("this is no request of HTTP/1.1")
        method, target = request[1], request[2]
        if method == "CONNECT":
            return Head(*_authority(target, 0), b"")
        scheme, slashes, rest = target.partition("://")
        if not slashes or scheme.lower() != "http":
            raise BadHead("this is a proxy: ask it for `http://host/…`, or `CONNECT host:port`")
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        path = rest[len(authority) :]
        host, port = _authority(authority, 80)
    except InvalidHost as exc:
        raise BadHead(str(exc)) from None
    path = path if path.startswith("/") else f"/{path}"
    kept = [f"{field[1]}: {field[2]}" for field in fields if field is not None and field[1].lower() not in _OWN]
    # one request for each connection: the next one may be for another host
    said = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close", "", ""]
    return Head(host, port, "\r\n".join(said).encode("latin-1"))


def _authority(text: str, port: int) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise BadHead(f"{text[:100]!r} is not `host:port`; a user has no place there")
    port = int(found[2] or port)
    if not 0 < port < 65536:
        raise BadHead(f"{text[:100]!r} has no port from 1 to 65535")
    return parse_host(found[1]), port


def proxy_answer(status: str, text: str) -> bytes:
    """Return the answer of the proxy itself."""
    body = f"hermes-agent: {text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
