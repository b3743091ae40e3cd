"""Which site a host belongs to: its name below the suffix that a registry or a host of many customers gives out.

The suffixes are those of the public suffix list, which the library brings. Some providers are not in it; a suffix that
is missing makes a site larger, so that more addresses count as those of one owner, and more of them ask.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

__all__ = ["canonical_host", "is_domain", "site_of"]


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PLAIN = _set(
    "arpa aero asia biz bond buzz cfd click cloud club com coop cyou edu example fun gov icu internal invalid lan life"
    " live lol local mil mobi museum net onion online org pro pub rest sbs shop site space store tech test today top"
    " vip website wiki work world xyz zone"
)
"""Top-level names that are hardly ever the end of a file's or a method's name."""
_NUMBER = r"(?:0x[0-9a-f]+|\d+)"
_NUMERIC = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}\.?")
_FULL_STOPS = str.maketrans("\u3002\uff0e\uff61", "...")


def canonical_host(host: str) -> str:
    """Return a host as it is asked for: in ASCII and lower case, numbers as the address that they are."""
    host = host.translate(_FULL_STOPS).strip("[]").rstrip(".").lower()
    if ":" in host or _NUMERIC.fullmatch(host):
        return _ip(host) or host
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:  # no name that can be asked for, and therefore like no other
        return host


def _ip(host: str) -> str:
    try:
        if ":" not in host:
            return str(ipaddress.IPv4Address(socket.inet_aton(host)))
        found = ipaddress.IPv6Address(host.partition("%")[0])
        return str(found.ipv4_mapped or found)
    except (OSError, ValueError):
        return ""


@functools.cache
def _suffixes() -> PublicSuffixList:
    """The public suffix list: 3 MB, and 15 to 25 ms when it is first needed, which is after a foreign text."""
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_encoded_idn=False)  # its names in ASCII beside would take three times as long


def site_of(host: str) -> str:
    """Return the part of a canonical host that one owner has: `a.b.example.co.uk` is of `example.co.uk`."""
    if host.replace(".", "").isdigit() or ":" in host:
        return host
    labels = _as_listed(host).split(".")
    suffix = _suffixes().publicsuffix(".".join(labels)) or labels[-1]
    return ".".join(host.split(".")[-suffix.count(".") - 2 :])


def _as_listed(host: str) -> str:
    """Return a canonical host as the list writes it: names in their own letters."""
    if "xn--" not in host:
        return host
    try:
        return host.encode().decode("idna")
    except UnicodeError:  # no name that can be asked for
        return host


def is_domain(name: str, *, surely: bool) -> bool:
    """Say whether a name with dots can be a domain.

    Args:
        surely: nothing around it says so; then it must not be the name of a file or a method either.
    """
    top = name.rstrip(".").rpartition(".")[2].lower()
    if top in _PLAIN or top.startswith("xn--"):
        return True
    return not surely and (not top.isascii() or _suffixes().publicsuffix(top, accept_unknown=False) is not None)
