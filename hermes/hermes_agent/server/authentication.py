"""Checks of every request: the Host header, the Origin header and the key; and the key file.

The Host is checked because another site can let its own name resolve to this machine (DNS rebinding). The Origin is
checked because a browser sends requests of any page to a loopback address.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import socket
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.server.http_types import Headers, HttpError, HttpReply
from hermes_agent.server.settings import HttpSettings

if TYPE_CHECKING:
    from hermes_agent.server.http_types import App, Message, Receive, Scope, Send


BEARS_KEY = "hermes.bears_key"
"""Key of the ASGI scope: whether the request has the right key."""
OPEN_PATHS = frozenset({"/health", "/ready"})
"""Paths that need no key; `/health` shows more with it."""
WEBHOOKS = "/webhooks/"
"""Path prefix where a signature replaces the key."""
PROPOSALS = "/proposals"
"""Path of the page of proposals, where a session of the browser replaces the key."""
OTHER_ORIGIN = "hermes.other_origin"
"""Key of the ASGI scope: whether a page of another, allowed origin sends the request."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]+)")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+(?: ?, ?[A-Za-z0-9-]+)*")
_PORTS = {"http": "80", "https": "443"}
_NEEDED = frozenset({b"host", b"origin", b"authorization"})
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EXPOSED = b"X-Hermes-Session-Id, Retry-After"
_PREFLIGHT_S = b"600"


class RequestGuard:
    """ASGI middleware that checks requests, dates replies, and lets pages of allowed origins read them.

    Args:
        settings: with a key.
    """

    def __init__(self, app: App, settings: HttpSettings) -> None:
        if not settings.key:
            raise ValueError("the server needs a key")
        self._app = app
        self._key = settings.key.encode()
        self._hosts = LOOPBACK | settings.allowed_hosts | {_bare_name(settings.host.lower())}
        self._origins = settings.allowed_origins
        self._date = (0, b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it on with the result of the key check in the scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        common: Headers = ((b"date", self._now()),)
        answer: HttpReply | None
        try:
            headers = _headers(scope)
            host = self._check_host(scope, headers.get(b"host"))
            origin = self._check_origin(host, headers.get(b"origin"))
            scope[OTHER_ORIGIN] = origin is not None
            if origin is not None:
                common += _cors_headers(origin)
            answer = self._preflight(scope, origin)
            if answer is None:
                self._check_key(scope, headers.get(b"authorization"))
        except HttpError as refusal:
            answer = refusal.reply()
        await (answer or self._app)(scope, receive, _with_headers(send, common))

    def _check_host(self, scope: Scope, given: str | None) -> str:
        host = (given or "").lower()
        match = _HOST.fullmatch(host)
        if match is None:
            raise HttpError(400, "the Host header is missing or malformed", code="invalid_host")
        name = _bare_name(match[1])
        if name not in self._hosts and host not in self._hosts and name != _local_address(scope):
            raise HttpError(
                421,
                f"this server does not answer for the host {host[:200]!r}; add it to server.allowed_hosts",
                code="host_not_allowed",
            )
        return host

    def _check_origin(self, host: str, given: str | None) -> str | None:
        """Return the origin if it is another one than the server's."""
        if given is None:
            return None
        origin = given.lower()
        if origin in self._origins:
            return given
        match = _ORIGIN.fullmatch(origin)
        if match is not None and match[1] in _PORTS:
            own = _HOST.fullmatch(host)
            theirs = _HOST.fullmatch(match[2])
            port = _PORTS[match[1]]
            if own and theirs and (own[1], own[2] or port) == (theirs[1], theirs[2] or port):
                return None
        raise HttpError(
            403,
            f"pages of {given[:200]!r} may not use this server; add the origin to server.allowed_origins",
            code="origin_not_allowed",
        )

    def _preflight(self, scope: Scope, origin: str | None) -> HttpReply | None:
        """Return the reply to a preflight request of a page of an allowed origin."""
        if origin is None or scope["method"] != "OPTIONS":
            return None
        requested = dict(scope["headers"]).get(b"access-control-request-headers", b"").decode("latin-1")
        allowed = (
            requested if _HEADER_NAMES.fullmatch(requested) else "authorization, content-type, x-hermes-session-id"
        )
        headers = (
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", allowed.encode()),
            (b"access-control-max-age", _PREFLIGHT_S),
        )
        return HttpReply(204, headers=headers)

    def _check_key(self, scope: Scope, given: str | None) -> None:
        scheme, _, key = (given or "").partition(" ")
        right = scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode("latin-1"), self._key)
        scope[BEARS_KEY] = right
        if scope["path"].startswith(WEBHOOKS):
            return
        path = scope["path"]
        is_page = path == PROPOSALS or path.startswith(f"{PROPOSALS}/")
        if right or (given is None and (is_page or path in OPEN_PATHS)):
            return
        what = "the key is wrong" if given is not None else "a key is needed: `Authorization: Bearer KEY`"
        raise HttpError(
            401,
            f"{what}; `hermes gateway key` prints it on the machine of the agent",
            code="invalid_api_key",
            headers=((b"www-authenticate", b'Bearer realm="hermes-agent"'),),
        )

    def _now(self) -> bytes:
        second = int(time.time())
        if second != self._date[0]:
            self._date = (second, _http_date(second))
        return self._date[1]


def _headers(scope: Scope) -> dict[bytes, str]:
    """Return the headers to check; a duplicate is rejected, as two readers could use different ones."""
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in _NEEDED:
            if name in found:
                raise HttpError(400, f"two headers {name.decode()}", code="invalid_request")
            found[name] = value.decode("latin-1")
    return found


def _http_date(second: int) -> bytes:
    """Return a time as the header `Date` has it, in any locale.

    `email.utils` would add 0.3 MiB to a daemon.
    """
    at = time.gmtime(second)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {time.strftime('%H:%M:%S', at)} GMT".encode()


def is_ipv4(address: str) -> bool:
    """Return whether a text is an IPv4 address; most connections have one, and need no `ipaddress`."""
    try:
        socket.inet_pton(socket.AF_INET, address)
    except OSError:
        return False
    return True


def _bare_name(name: str) -> str:
    """Return an IPv6 address without brackets, or a name without the dot of the root."""
    return name[1:-1] if name.startswith("[") else name.rstrip(".")


def _local_address(scope: Scope) -> str:
    """Return the local address of the connection, or "".

    A page that uses DNS rebinding sends a name in the Host header, never this address."""
    server = scope.get("server")
    if not server:
        return ""
    if is_ipv4(server[0]):
        return str(server[0])
    try:
        address = ipaddress.ip_address(server[0])
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _cors_headers(origin: str) -> Headers:
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    )


def _with_headers(send: Send, headers: Headers) -> Send:
    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    return adding


logger = logging.getLogger(__name__)

KEY_NAME = "api_server.key"
KEY_BYTES = 32
"""Random bytes of a created key."""
LONGEST_FILE = 4096
SHORT = 16
"""A configured key with fewer characters can be guessed."""

_KEY = re.compile(r"[\x21-\x7e]+")


def with_key(settings: HttpSettings, home: Path) -> HttpSettings:
    """Return `settings` with a key, by default that of the file in `home`; add it to the redactor.

    Raises:
        UserError: the file is not usable.
    """
    if not settings.key:
        settings = replace(settings, key=file_key(home))
    elif len(settings.key) < SHORT:
        logger.warning("http server: the key has %d characters: use 32 random characters or more", len(settings.key))
    redactor.learn([settings.key])
    return settings


def file_key(home: Path) -> str:
    """Return the key of the file `api_server.key`, which is created if it is missing.

    If two processes create it, both return the key of the first.

    Raises:
        UserError: other users can read or own the file, or it contains no key.
    """
    path = home / KEY_NAME
    key = _read(path)
    if key is None:
        _make(path)
        key = _read(path)
    if key is None:
        raise UserError(f"the key file {path} was removed while it was read", hint="Start again.")
    return key


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise UserError(f"cannot read the key file {path}: {exc.strerror}", hint=_hint(path)) from exc
    with os.fdopen(fd, "rb") as file:
        _check(path, os.fstat(fd))
        text = file.read(LONGEST_FILE + 1).decode("ascii", "replace").strip()
    if not _KEY.fullmatch(text) or len(text) > LONGEST_FILE:
        raise UserError(f"the key file {path} contains no key: expected one word of ASCII", hint=_hint(path))
    return text


def _check(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise UserError(f"the key file {path} is not a regular file", hint=_hint(path))
    if info.st_uid != os.geteuid():
        raise UserError(
            f"the key file {path} belongs to uid {info.st_uid}, and the daemon runs as uid {os.geteuid()}",
            hint=_hint(path),
        )
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o077:
        raise UserError(
            f"the key file {path} can be read by others (mode {mode:04o})",
            hint=f"Anyone with the key can use the agent. {_hint(path)} To keep the key: `chmod 600 {path}`.",
        )


def _make(path: Path) -> None:
    """Write a key to a temporary file and link it in place: it is complete and replaces no other key."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o600)  # regardless of umask and default ACL
                file.write(f"{secrets.token_urlsafe(KEY_BYTES)}\n".encode())
                file.flush()
                os.fsync(fd)
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(draft, path)
                logger.info("http server: key created: %s (`hermes gateway key` prints it)", path)
        finally:
            draft.unlink()
    except OSError as exc:
        raise UserError(
            f"cannot create the key file {path}: {exc.strerror}",
            hint="The home must exist and be writable. Or set API_SERVER_KEY to a key of your own.",
        ) from exc


def _hint(path: Path) -> str:
    return f"Remove {path} and start again to get a new key, or set API_SERVER_KEY to a key of your own."
