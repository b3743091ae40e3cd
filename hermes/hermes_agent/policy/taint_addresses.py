"""Addresses in a text, parsed for comparison: URLs, mail addresses, hosts, IP addresses, git remotes.

Two addresses are compared by scheme, host, port, user and path, never by their words: a page that names
`evil.example/a` does not name `secret.evil.example`, `evil.example:5353`, `s@evil.example` or `evil.example/a=secret`.

The site of a host is its registered name, found with the public suffix list of the library. Where the list lacks a
suffix, the site is larger than one owner, and more addresses need approval. All functions are pure.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from hermes_agent.core.lazy_types import LazyNamedTuple

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


@functools.cache
def vocabulary() -> Mapping[str, Any]:
    """Return the lists of words in `taint_vocabulary.toml`."""
    import tomllib  # with the first untrusted text

    return tomllib.loads(Path(__file__).with_name("taint_vocabulary.toml").read_text(encoding="utf-8"))


@functools.cache
def word_set(name: str) -> frozenset[str]:
    """Return a list of the vocabulary as a set."""
    return frozenset(vocabulary()[name])


_NUMBER = r"(?:0x[0-9a-f]+|\d+)"
_NUMERIC = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}\.?")
_FULL_STOPS = str.maketrans("\u3002\uff0e\uff61", "...")


def canonical_host(host: str) -> str:
    """Return a host in ASCII and lower case; a number becomes the IP address that it means."""
    host = host.translate(_FULL_STOPS).strip("[]").rstrip(".").lower()
    if ":" in host or _NUMERIC.fullmatch(host):
        return _ip(host) or host
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:  # not a valid name, and so equal to no other host
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
    """Return the public suffix list: 3 MB, loaded in 15 to 25 ms when the first untrusted text arrives."""
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_encoded_idn=False)  # with names in ASCII, too, loading takes three times as long


def site_of(host: str) -> str:
    """Return the registered name of a canonical host: `example.co.uk` of `a.b.example.co.uk`."""
    if host.replace(".", "").isdigit() or ":" in host:
        return host
    labels = _as_listed(host).split(".")
    suffix = _suffixes().publicsuffix(".".join(labels)) or labels[-1]
    return ".".join(host.split(".")[-suffix.count(".") - 2 :])


def _as_listed(host: str) -> str:
    """Return a canonical host as the suffix list spells it: in Unicode."""
    if "xn--" not in host:
        return host
    try:
        return host.encode().decode("idna")
    except UnicodeError:  # not a valid name
        return host


def is_domain(name: str, *, surely: bool) -> bool:
    """Return whether a name with dots can be a domain.

    Args:
        surely: the context does not show that it is one, so that a possible name of a file or a method does not count.
    """
    top = name.rstrip(".").rpartition(".")[2].lower()
    if top in word_set("domain_endings") or top.startswith("xn--"):
        return True
    return not surely and (not top.isascii() or _suffixes().publicsuffix(top, accept_unknown=False) is not None)


MOST_NESTED = 8
"""Most nested URLs that are read from one word of a text."""
MOST_SEGMENTS = 12
"""Most segments of a path of which each prefix counts as given, too."""
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


class Address(LazyNamedTuple):
    """The parts of an address."""

    scheme: str
    """`mail` for a mail address; empty when the text has none."""
    user: str
    host: str
    """The canonical host; it begins with `*.` when its first labels are computed (`$(…).example.org`)."""
    port: int
    """0 is the default port of the scheme."""
    path: str
    query: str
    """The query and the fragment."""

    @property
    def site(self) -> str:
        """The registered name of the host."""
        return site_of(self.host.removeprefix("*."))


def find_addresses(text: str, *, networked: bool = False, given: bool = False) -> Iterator[tuple[str, Address]]:
    """Yield the addresses of a text, each as written and parsed.

    Args:
        networked: the text is about hosts, so that names that could be files, and plain numbers, are addresses.
        given: the text is a source of addresses: what follows a bracket or a comma may or may not belong to one, so
            that both readings are yielded.
    """
    text = _visible(text)
    tokens = _TOKEN.findall(text)
    if given:  # a sentence may begin right after an address: `example.org.It says`
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
    """Return the address that the whole text is, or None; any character may be part of it."""
    text = _visible(text.strip())
    head = _SCHEME.match(text)
    if head is not None:
        return _url(head[1].lower(), text[head.end() :])
    head = _BARE.match(text.lstrip("/")) if not text.startswith(("/", ".", "~")) or text.startswith("//") else None
    return None if head is None or _bare(head, text, networked=True) is None else _url("", text)


def _visible(text: str) -> str:
    """Return a text in compatibility form without invisible characters."""
    if text.isascii():
        return text
    import unicodedata  # few texts need it

    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf").replace("。", ".")


def _urls(scheme: str, text: str, head: int, given: bool) -> Iterator[tuple[str, Address]]:
    whole = _trim_end(text)
    texts = {whole: None}
    if given:
        texts |= {_trim_end(whole[: cut.start()]): None for cut in list(_CUTS.finditer(whole))[:8]}
    for url in texts:
        yield url, _url(scheme, url[head:])


def _url(scheme: str, rest: str) -> Address:
    rest = rest.replace("\\", "/").lstrip("/")
    place = re.search(r"[/?#]", rest)
    net, more = (rest[: place.start()], rest[place.start() :]) if place else (rest, "")
    user, _, host = net.rpartition("@")
    name, port = _split_port(host)
    return _address(scheme, user, name, port, more)


def _trim_end(text: str) -> str:
    """Return a URL without the punctuation after it: ends of sentences, unmatched closing brackets."""
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
        return _address("ssh", user, name, 0, f"/{colon[1:].lstrip('/')}{more}")
    return _address("", user, name, int(colon[1:] or 0), more)


def _address(scheme: str, user: str, host: str, port: int, more: str) -> Address:
    path, mark, query = more.partition("?")
    if not mark:
        path, mark, query = more.partition("#")
    computed = re.match(r".*[^\w.:\[\]*-]\.?", host)
    if computed:  # $(…).example.org, {x}.example.org
        host = f"*.{host[computed.end() :]}"
    path = unquote(re.sub(r"/{2,}", "/", path)).rstrip("/").removesuffix(".git")
    port = 0 if port == _PORTS.get(scheme, 0) or (scheme == "" and port in (80, 443)) else port
    return Address(scheme, user, canonical_host(host), port, path, mark + query)


def canonical_address(address: Address) -> Address:
    """Return the form in which an address is looked up: without `www.` and the user `git`."""
    user = "" if (address.scheme, address.user) == ("ssh", "git") else address.user
    return address._replace(host=address.host.removeprefix("www."), user=user)


def address_forms(address: Address) -> Iterator[Address]:
    """Yield the addresses that a given one makes known: itself, and each prefix of its path.

    An address of http makes that of https known, one without a scheme both.
    """
    schemes = {"": _WEB, "http": _WEB, "https": ("", "https")}.get(address.scheme, (address.scheme,))
    parts = address.path.split("/")[: MOST_SEGMENTS + 1]
    paths = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for scheme in schemes:
        known = canonical_address(address)._replace(scheme=scheme)
        yield known
        yield from (known._replace(path=path, query="") for path in paths)


def parent_hosts(address: Address) -> Iterator[Address]:
    """Yield the parent domains of an address within its site; with a port or a user also its host."""
    labels, site = address.host.removeprefix("*.").split("."), address.site
    first = 0 if address.user or address.port or address.host.startswith("*.") else 1
    for begin in range(first, len(labels)):
        host = ".".join(labels[begin:])
        if len(host) < len(site):
            return
        yield Address("", "", host, 0, "", "")
