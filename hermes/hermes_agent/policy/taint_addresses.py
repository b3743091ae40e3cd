"""Which site a host belongs to: its name below the suffix that a registry or a host of many customers gives out.

The suffixes are those of the public suffix list, which the library brings. Some providers are not in it; a suffix that
is missing makes a site larger, so that more addresses count as those of one owner, and more of them ask.

Addresses in a text, taken apart: URLs, mail, hosts, numbers of hosts, remotes of git. Pure.

Two addresses are compared by scheme, host, port, user and path, never by their words: a page that names
`evil.example/a` has not named `secret.evil.example`, `evil.example:5353`, `s@evil.example` or `evil.example/a=secret`.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


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


MOST_NESTED = 8
"""URLs of a text that stand in one another."""
MOST_SEGMENTS = 12
"""Of a path whose beginnings count as given, too."""
_TOKEN = re.compile(r"[^\s\"'`<>]+")
_SCHEME = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]*):(?:[/\\]{2,}|(?<=(?:ttp|tps|ftp):)[/\\])", re.IGNORECASE)
_HOST = r"(?:[\w-]+\.)+[\w-]+\.?|\[[0-9a-f:.%]+\]|\d+|0x[0-9a-f]+|localhost"
_BARE = re.compile(
    rf"(?:^|(?<=[=,;|&(\[{{:])|(?<=//)|(?<=\)\.)|(?<=\}}\.)|(?<=^\.))(?:(?:mailto|xmpp|sips?):)?(?:([^\s@,;=()\[\]{{}}/]{{1,256}})@)?({_HOST})"
    r"(?![\w@-])(:\d+(?!\w)|:(?=[^\s:])[^\s,;|&]*)?([/?\#]\S*)?",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"\.(?=[A-Z][a-z]*$)")
_CUTS = re.compile(r"[,;|)\]}*]")
_CLOSERS = {")": "(", "]": "[", "}": "{"}
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21, "ssh": 22, "git": 9418}
_WEB = ("", "http", "https")


class Address(NamedTuple):
    """Where something leads to."""

    scheme: str
    """`mail` for a mail address; empty where none is said."""
    user: str
    host: str
    """Canonical; with `*.` before it when something is computed there."""
    port: int
    """0: the scheme's own."""
    path: str
    query: str
    """With the fragment."""

    @property
    def site(self) -> str:
        """The part of the host that one owner has."""
        return site_of(self.host.removeprefix("*."))


def find_addresses(text: str, *, networked: bool = False, given: bool = False) -> Iterator[tuple[str, Address]]:
    """Yield the addresses of a text as they are written and as they are meant.

    Args:
        networked: the text is about hosts: names that could also be files are addresses, and plain numbers are.
        given: it is a text that addresses are taken from, so that what follows one after a bracket or a comma may or
            may not belong to it.
    """
    text = _shown(text)
    tokens = _TOKEN.findall(text)
    if given:  # a sentence that begins right after an address: `example.org.It says`
        tokens += [token[: end.start()] for token in tokens if (end := _SENTENCE.search(token))]
    for token in tokens:
        starts = list(islice(_SCHEME.finditer(token), MOST_NESTED if given else 1))
        for match in starts:
            yield from _urls(match[1].lower(), token[match.start() :], len(match[0]), given)
        if not starts:
            for match in _BARE.finditer(token):
                if (found := _bare(match, token, networked)) is not None:
                    yield match[0].rstrip(".,;:!?"), found


def parse_address(text: str) -> Address | None:
    """Return the address that a text is as a whole, whatever signs are in it; None where it is none."""
    text = _shown(text.strip())
    head = _SCHEME.match(text)
    if head is not None:
        return _url(head[1].lower(), text[head.end() :])
    head = _BARE.match(text.lstrip("/")) if not text.startswith(("/", ".", "~")) or text.startswith("//") else None
    return None if head is None or _bare(head, text, networked=True) is None else _url("", text)


def _shown(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf").replace("。", ".")


def _urls(scheme: str, text: str, head: int, given: bool) -> Iterator[tuple[str, Address]]:
    whole = _ended(text)
    texts = {whole: None}
    if given:
        texts |= {_ended(whole[: cut.start()]): None for cut in list(_CUTS.finditer(whole))[:8]}
    for one in texts:
        yield one, _url(scheme, one[head:])


def _url(scheme: str, rest: str) -> Address:
    rest = rest.replace("\\", "/").lstrip("/")
    place = re.search(r"[/?#]", rest)
    net, more = (rest[: place.start()], rest[place.start() :]) if place else (rest, "")
    user, _, host = net.rpartition("@")
    name, port = _split_port(host)
    return _made(scheme, user, name, port, more)


def _ended(text: str) -> str:
    """Return a URL without what ends a sentence, or closes a bracket that it does not open."""
    while text:
        end = text[-1]
        if end in _CLOSERS and text.count(end) <= text.count(_CLOSERS[end]):
            break
        if end not in _CLOSERS and end not in ".,;:!?*|":
            break
        text = text[:-1]
    return text


def _split_port(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit() and (not name.count(":") or name.endswith("]")):
        return name, int(port)
    return (name, 0) if colon and not port else (host, 0)


def _bare(match: re.Match[str], token: str, networked: bool) -> Address | None:
    user, host, colon, more = match[1] or "", match[2], match[3] or "", match[4] or ""
    numeric = not re.search(r"[g-wyz]", host.lower()) and canonical_host(host) != host.lower().rstrip(".")
    numeric |= host.count(".") == 3 and host.replace(".", "").isdigit()
    if host.isdigit() and (not networked or int(host) < 1 << 24):
        return None
    if numeric or "[" in host:
        if not (user or networked or host.count(".") == 3 or "[" in host):
            return None
    elif host.lower() == "localhost":
        if not (colon or more):
            return None
    elif "." not in host or not (user or is_domain(host, surely=not networked)):
        return None
    computed = match.start() > 0 and token[match.start() - 1] == "."
    name = f"*.{host}" if computed else host
    if user and not colon and not more.startswith("/"):
        return Address("mail", user.lower(), canonical_host(name), 0, "", more)
    if colon and not colon[1:].isdigit():  # host:path, as git, scp and rsync write it
        return _made("ssh", user, name, 0, f"/{colon[1:].lstrip('/')}{more}")
    return _made("", user, name, int(colon[1:] or 0), more)


def _made(scheme: str, user: str, host: str, port: int, more: str) -> Address:
    path, mark, query = more.partition("?")
    if not mark:
        path, mark, query = more.partition("#")
    odd = re.match(r".*[^\w.:\[\]*-]\.?", host)
    if odd:  # $(…).example.org, {x}.example.org
        host = f"*.{host[odd.end() :]}"
    path = unquote(re.sub(r"/{2,}", "/", path)).rstrip("/").removesuffix(".git")
    port = 0 if port == _PORTS.get(scheme, 0) or (scheme == "" and port in (80, 443)) else port
    return Address(scheme, user, canonical_host(host), port, path, mark + query)


def canonical_address(address: Address) -> Address:
    """Return what an address is looked up as."""
    user = "" if (address.scheme, address.user) == ("ssh", "git") else address.user
    return address._replace(host=address.host.removeprefix("www."), user=user)


def address_forms(address: Address) -> Iterator[Address]:
    """Yield the addresses that are known with one: itself, without its query, and what its path lies below.

    One of http counts for https, one without a scheme for both.
    """
    schemes = {"": _WEB, "http": _WEB, "https": ("", "https")}.get(address.scheme, (address.scheme,))
    parts = address.path.split("/")[: MOST_SEGMENTS + 1]
    paths = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for scheme in schemes:
        known = canonical_address(address)._replace(scheme=scheme)
        yield known
        yield from (known._replace(path=path, query="") for path in paths)


def parent_hosts(address: Address) -> Iterator[Address]:
    """Yield the hosts that the host of an address lies below, within its site, and itself without port and user."""
    labels, site = address.host.removeprefix("*.").split("."), address.site
    first = 0 if address.user or address.port or address.host.startswith("*.") else 1
    for begin in range(first, len(labels)):
        host = ".".join(labels[begin:])
        if len(host) < len(site):
            return
        yield Address("", "", host, 0, "", "")
