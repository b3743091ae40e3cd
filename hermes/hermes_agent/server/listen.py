"""Open the sockets that the server listens on; what goes wrong names the setting."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from functools import partial

from hermes_agent.core.errors import UserError
from hermes_agent.server.settings import HttpSettings
from hermes_agent.service.handover import SocketHandover

__all__ = ["BACKLOG", "address_of", "is_loopback", "listen", "peer_name"]

BACKLOG = 256
"""Connections that wait to be accepted; as many are accepted at once."""


def listen(settings: HttpSettings, handover: SocketHandover | None = None) -> list[socket.socket]:
    """Return listening sockets: one for each address that `settings.host` stands for, all with one port.

    Args:
        handover: a socket that it has for an address is used; it keeps all of them for the next process.

    Raises:
        UserError: the port is taken or may not be used, or the host is not an address of this machine.
    """
    sockets: list[socket.socket] = []
    port, missing = settings.port, None
    try:
        for family, address in _addresses(settings):
            try:
                passed = handover.take(partial(_is_at, family, address, port)) if handover is not None else None
                one = passed or _open_socket(family, address, port)
            except OSError as exc:
                if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = exc  # `localhost` also stands for ::1 where IPv6 is switched off
                continue
            sockets.append(one)
            port = one.getsockname()[1]
        if not sockets and missing is not None:
            raise missing
    except OSError as exc:
        for one in sockets:
            one.close()
        raise _explain_failure(settings, exc) from exc
    if handover is not None:
        handover.keep("http", sockets)
    return sockets


def _is_at(family: socket.AddressFamily, address: str, port: int, one: socket.socket) -> bool:
    """Say whether a socket listens there (`port` 0: anywhere at the address)."""
    return one.family == family and one.getsockname()[0] == address and port in (0, one.getsockname()[1])


def address_of(one: socket.socket) -> str:
    """Return `host:port` as it stands in a URL."""
    host, port = one.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_name(address: str) -> str:
    """Return whom an address stands for: itself, or the network that one IPv6 subscriber has."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found) if found.is_loopback else str(ipaddress.ip_network((found, 64), strict=False))


def is_loopback(one: socket.socket) -> bool:
    """Whether only this machine reaches the socket."""
    host: str = one.getsockname()[0]
    return host == "::1" or host.startswith("127.")


def _addresses(settings: HttpSettings) -> list[tuple[socket.AddressFamily, str]]:
    host = settings.host.strip("[]")
    try:
        # ASCII as bytes: for text Python imports the tables of names in other scripts
        found = socket.getaddrinfo(
            host.encode("ascii") if host.isascii() else host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as exc:
        why = exc.strerror if isinstance(exc, socket.gaierror) else "not a name"
        raise UserError(f"cannot listen on {settings.host!r}: {why}", hint=_host_hint(settings)) from exc
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _open_socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as stack:
        # The protocol is named: asyncio sets TCP_NODELAY only then, and without it each answer waits 40 ms for an ACK.
        one = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        one.bind((address, port))
        one.listen(BACKLOG)
        one.setblocking(False)
        stack.pop_all()
        return one


def _explain_failure(settings: HttpSettings, exc: OSError) -> UserError:
    at = f"{settings.host}:{settings.port}"
    if exc.errno == errno.EADDRINUSE:
        return UserError(
            f"port {settings.port} on {settings.host} is in use",
            hint=f"Stop what uses it, or choose another one with {settings.port_from}"
            + (" or the variable API_SERVER_PORT." if settings.port_from == "server.port" else "."),
        )
    if exc.errno == errno.EACCES:
        return UserError(
            f"may not listen on {at}: {exc.strerror}", hint=f"Choose a port above 1023 with {settings.port_from}."
        )
    return UserError(f"cannot listen on {at}: {exc.strerror}", hint=_host_hint(settings))


def _host_hint(settings: HttpSettings) -> str:
    return "server.host (or the variable API_SERVER_HOST) must be an address of this machine, as 127.0.0.1 or 0.0.0.0."
