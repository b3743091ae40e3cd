"""What every request must show before anything is done for it: a Host that is ours, no foreign Origin, the key.

The Host is checked because a page of another site can have its own name resolve to this machine (DNS rebinding);
the Origin, because a browser sends requests of any page to a loopback address.

The key that every request bears: as configured, or a file of the home that is made at the first start.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import stat
import time
from dataclasses import replace
from email.utils import formatdate
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
"""Answer without a key; `health` tells more with it."""
WEBHOOKS = "/webhooks/"
"""Below it a signature takes the place of the key."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]+)")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+(?: ?, ?[A-Za-z0-9-]+)*")
_PORTS = {"http": "80", "https": "443"}
_NEEDED = frozenset({b"host", b"origin", b"authorization"})
_EXPOSED = b"X-Hermes-Session-Id, Retry-After"
_PREFLIGHT_S = b"600"


class RequestGuard:
    """ASGI middleware; also dates every answer, and lets pages of allowed origins read it.

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
        """Refuse, or pass on with the answer to who is asking in the scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        common: Headers = ((b"date", self._now()),)
        answer: HttpReply | None
        try:
            headers = _headers(scope)
            host = self._check_host(scope, headers.get(b"host"))
            origin = self._check_origin(host, headers.get(b"origin"))
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
        """Return the origin when it is not our own."""
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
        """Answer a browser's question whether a page of an allowed origin may send a request."""
        if origin is None or scope["method"] != "OPTIONS":
            return None
        wanted = dict(scope["headers"]).get(b"access-control-request-headers", b"").decode("latin-1")
        allowed = wanted if _HEADER_NAMES.fullmatch(wanted) else "authorization, content-type, x-hermes-session-id"
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
        if right or (scope["path"] in OPEN_PATHS and given is None):
            return
        what = "the key is wrong" if given is not None else "a key is needed: `Authorization: Bearer KEY`"
        raise HttpError(
            401,
            f"{what}; on the machine of the agent `hermes gateway key` prints it",
            code="invalid_api_key",
            headers=((b"www-authenticate", b'Bearer realm="hermes-agent"'),),
        )

    def _now(self) -> bytes:
        second = int(time.time())
        if second != self._date[0]:
            self._date = (second, formatdate(second, usegmt=True).encode())
        return self._date[1]


def _headers(scope: Scope) -> dict[bytes, str]:
    """The headers that are checked; a second one of a name is refused, for two readers could take different ones."""
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in _NEEDED:
            if name in found:
                raise HttpError(400, f"two headers {name.decode()}", code="invalid_request")
            found[name] = value.decode("latin-1")
    return found


def _bare_name(name: str) -> str:
    """An IPv6 address without its brackets, a name without the dot of the root."""
    return name[1:-1] if name.startswith("[") else name.rstrip(".")


def _local_address(scope: Scope) -> str:
    """The address that the connection reached: a name that was made to resolve to it is never written so."""
    server = scope.get("server")
    if not server:
        return ""
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
"""Randomness of a key that we make."""
LONGEST_FILE = 4096
SHORT = 16
"""A configured key with fewer characters than this can be guessed."""

_KEY = re.compile(r"[\x21-\x7e]+")


def with_key(settings: HttpSettings, home: Path) -> HttpSettings:
    """Return `settings` with its key, from the file of `home` when none is configured; the redactor learns it.

    Raises:
        UserError: the file cannot be used.
    """
    if not settings.key:
        settings = replace(settings, key=file_key(home))
    elif len(settings.key) < SHORT:
        logger.warning("the HTTP server's key has %d characters: take 32 or more at random", len(settings.key))
    redactor.learn([settings.key])
    return settings


def file_key(home: Path) -> str:
    """Return the key of the file `api_server.key`; it is made when it is not there.

    Of two processes that make it at once, both return the key of the one that was first.

    Raises:
        UserError: others can read the file, it belongs to somebody else, or it has no key in it.
    """
    path = home / KEY_NAME
    key = _read(path)
    if key is None:
        _make(path)
        key = _read(path)
    if key is None:
        raise UserError(f"the key file {path} vanished while it was read", hint="Start again.")
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
        raise UserError(f"the key file {path} has no key in it: expected one word of ASCII", hint=_hint(path))
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
            hint=f"Whoever had the key can use the agent. {_hint(path)} To keep the key: `chmod 600 {path}`.",
        )


def _make(path: Path) -> None:
    """Write a key beside the place and link it there: it appears whole, and never over another one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o600)  # whatever the umask and a default ACL say
                file.write(f"{secrets.token_urlsafe(KEY_BYTES)}\n".encode())
                file.flush()
                os.fsync(fd)
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(draft, path)
                logger.info("made a key for the HTTP server: %s (`hermes gateway key` prints it)", path)
        finally:
            draft.unlink()
    except OSError as exc:
        raise UserError(
            f"cannot make the key file {path}: {exc.strerror}",
            hint="The home must exist and be writable. Or set API_SERVER_KEY to a key of your own.",
        ) from exc


def _hint(path: Path) -> str:
    return f"Remove {path} and start again to get a new key, or set API_SERVER_KEY to a key of your own."
