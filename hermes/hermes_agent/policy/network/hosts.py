"""Hosts as they are asked for, whatever their spelling, and entries of a list that name them."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple

__all__ = ["WEB_PORTS", "HostEntry", "InvalidHost", "parse_entry", "format_entry", "is_address", "parse_host"]

WEB_PORTS = frozenset({22, 80, 443})
"""Ports that an entry without a port covers: SSH, HTTP and HTTPS."""

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_WITH_PORT = re.compile(r"(\[[^\]]*\](?:/[0-9]+)?|[^:]*):([^:]*)")
"""A host and a port; an IPv6 address without brackets has more colons."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class InvalidHost(ValueError):
    """A text is no host; the message says which and why."""


def parse_host(text: str) -> str:
    """Return the one spelling of a host: a lower-case ASCII name without the last dot, or an IP address.

    Numbers count as `getaddrinfo` takes them: `0x7f.1`, `2130706433` and `::ffff:127.0.0.1` are 127.0.0.1.

    Raises:
        InvalidHost: it is neither a name nor an address.
    """
    given = text.strip("[]") if text.startswith("[") and text.endswith("]") else text
    if ":" in given or text != given:
        return str(_address(given, text))
    try:
        name = given.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError as exc:
        raise InvalidHost(f"{text[:100]!r} is not a host: {exc}") from None
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return str(_address(_dotted(name, text), text))
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidHost(f"{text[:100]!r} is not a host: expected a name such as `example.org`, or an address")
    return name


def _dotted(name: str, text: str) -> str:
    """Return a number as an IPv4 address, as the C library reads it."""
    if all(_NUMBER.fullmatch(label) for label in name.split(".")):
        try:
            return socket.inet_ntoa(socket.inet_aton(name))
        except OSError:
            pass
    raise InvalidHost(f"{text[:100]!r} is not a host: its last part is a number, and it is no address")


def _address(given: str, text: str) -> Address:
    try:
        found = ipaddress.ip_address(given)
    except ValueError:
        raise InvalidHost(f"{text[:100]!r} is not an IP address") from None
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        raise InvalidHost(f"{text[:100]!r} names an interface of this machine")
    return getattr(found, "ipv4_mapped", None) or found


def is_address(host: str) -> bool:
    """Say whether a host, as `parse_host` returns it, is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


class HostEntry(NamedTuple):
    """One entry of a list of hosts."""

    name: str
    """The name; empty for addresses."""
    below: bool
    """It is the hosts below `name`, and not that host itself."""
    addresses: Network | None
    ports: frozenset[int] | None
    """None: each."""

    def covers(self, host: str, port: int) -> bool:
        """Say whether a host, as `parse_host` returns it, and a port are meant."""
        if self.ports is not None and port not in self.ports:
            return False
        if self.addresses is not None:
            return self.contains_address(host)
        return host.endswith(f".{self.name}") if self.below else host == self.name

    def contains_address(self, address: str) -> bool:
        """Say whether an IP address is one of the entry's."""
        try:
            return self.addresses is not None and ipaddress.ip_address(address) in self.addresses
        except ValueError:
            return False


def parse_entry(text: str, *, ports: frozenset[int] | None = WEB_PORTS) -> HostEntry:
    """Return what an entry names: `host`, `*.domain`, an address or `network/bits`, each with or without `:port`.

    Args:
        ports: those of an entry without a port; None: each. `:*` stands for each.

    Raises:
        InvalidHost: it names nothing.
    """
    given = text.strip()
    if (split := _WITH_PORT.fullmatch(given)) is not None:
        given, ports = split[1], _ports(split[2], text)
    if "/" in given:
        try:
            return HostEntry("", False, ipaddress.ip_network(given.replace("[", "").replace("]", "")), ports)
        except ValueError as exc:
            raise InvalidHost(f"{text[:100]!r} is not a network: {exc}") from None
    below = given.startswith("*.")
    name = parse_host(given.removeprefix("*."))
    try:
        address = ipaddress.ip_network(name)
    except ValueError:
        return HostEntry(name, below, None, ports)
    if below:
        raise InvalidHost(f"{text[:100]!r}: there are no hosts below an address")
    return HostEntry("", False, address, ports)


def format_entry(host: str, port: int) -> str:
    """Return the entry that names a host, as `parse_host` returns it, and a port."""
    name = f"[{host}]" if ":" in host else host
    return name if port in WEB_PORTS else f"{name}:{port}"


def _ports(port: str, text: str) -> frozenset[int] | None:
    if port == "*":
        return None
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise InvalidHost(f"{text[:100]!r} has no port from 1 to 65535, nor `*`, behind its last colon")
    return frozenset({int(port)})
