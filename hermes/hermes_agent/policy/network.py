"""The table of network hosts: which hosts commands and tools may reach.

The config keys are `network.hosts`, `network.deny` and `security.website_blocklist`. Entries name hosts, networks or
groups of hosts (`groups.toml`). Hosts are compared in one spelling (`parse_host`). Source: plugin contract §11.3.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from hermes_agent.config.settings import Settings
from hermes_agent.core.errors import ConfigError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.safe_http import is_allowed_address

logger = logging.getLogger(__name__)

WEB_PORTS = frozenset({22, 80, 443})
"""Ports that an entry without a port covers: SSH, HTTP and HTTPS."""

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_WITH_PORT = re.compile(r"(\[[^\]]*\](?:/[0-9]+)?|[^:]*):([^:]*)")
"""A host and a port; an IPv6 address without brackets has more than one colon and does not match."""

GROUP = "group:"
"""Prefix of an entry that names a group."""

Mode = Literal["off", "ask", "hosts", "on"]
"""Treatment of a host that no list names: `on` allows it, `ask` asks the user, `hosts` refuses it.

`off` refuses listed hosts, too.
"""
MODES: tuple[Mode, ...] = get_args(Mode)

_CONTAINERS = ("docker", "singularity")
"""Backends in which commands have the network of the container engine, or none."""


def blocked_site(block: Any, url: str) -> dict[str, str] | None:
    """Return why `security.website_blocklist` forbids `url`, or None when it does not.

    Args:
        block: `{"enabled": true, "domains": ["bad.example", "*.worse.example"]}`; a domain covers its subdomains.

    Returns:
        `host`, `rule`, `source` and `message`.
    """
    if not isinstance(block, Mapping) or block.get("enabled") is False:
        return None
    host = _ascii((urlsplit(url if "://" in url else f"https://{url}").hostname or "").rstrip("."))
    for rule in block.get("domains") or ():
        pattern = _ascii(str(rule).strip())
        if pattern and (
            host == pattern or host.endswith(f".{pattern.removeprefix('*.')}") or fnmatchcase(host, pattern)
        ):
            message = f"Blocked by website policy: '{host}' matches '{pattern}' of security.website_blocklist"
            return {"host": host, "rule": pattern, "source": "config", "message": message}
    return None


def _ascii(host: str) -> str:
    """Return a host in ASCII: `bücher.example` and `ｂücher.example` are `xn--bcher-kva.example`."""
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:  # a glob, or not a host
        return host.lower()


class InvalidHost(ValueError):
    """A text that is not a host; the message has the text and the reason."""


def parse_host(text: str) -> str:
    """Return the canonical spelling of a host: a lower-case ASCII name, or an IP address.

    Numbers are read as by `getaddrinfo`: `0x7f.1`, `2130706433` and `::ffff:127.0.0.1` are 127.0.0.1.

    Raises:
        InvalidHost: `text` is neither a name nor an address.
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
    raise InvalidHost(f"{text[:100]!r} is not a host: its last part is a number, but it is not an IPv4 address")


def _address(given: str, text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        found = ipaddress.ip_address(given)
    except ValueError:
        raise InvalidHost(f"{text[:100]!r} is not an IP address") from None
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        raise InvalidHost(f"{text[:100]!r} names a network interface of this machine")
    return getattr(found, "ipv4_mapped", None) or found


def is_address(host: str) -> bool:
    """Return whether a host from `parse_host` is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


class HostEntry(LazyNamedTuple):
    """One entry of a list of hosts."""

    name: str
    """The name; empty for an entry of addresses."""
    below: bool
    """Whether the entry covers the subdomains of `name`, and not `name` itself."""
    addresses: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    ports: frozenset[int] | None
    """None covers every port."""

    def covers(self, host: str, port: int) -> bool:
        """Return whether the entry covers a host from `parse_host` and a port."""
        if self.ports is not None and port not in self.ports:
            return False
        if self.addresses is not None:
            return self.contains_address(host)
        return host.endswith(f".{self.name}") if self.below else host == self.name

    def contains_address(self, address: str) -> bool:
        """Return whether the entry covers an IP address."""
        try:
            return self.addresses is not None and ipaddress.ip_address(address) in self.addresses
        except ValueError:
            return False


def parse_entry(text: str, *, ports: frozenset[int] | None = WEB_PORTS) -> HostEntry:
    """Parse an entry: `host`, `*.domain`, an address or `network/bits`, each with or without `:port`.

    Args:
        text: the entry; the port `:*` covers every port.
        ports: ports of an entry without a port; None covers every port.

    Raises:
        InvalidHost: `text` is not such an entry.
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
        raise InvalidHost(f"{text[:100]!r}: an address has no subdomains")
    return HostEntry("", False, address, ports)


def format_entry(host: str, port: int) -> str:
    """Return the entry for a host from `parse_host` and a port."""
    name = f"[{host}]" if ":" in host else host
    return name if port in WEB_PORTS else f"{name}:{port}"


def _ports(port: str, text: str) -> frozenset[int] | None:
    if port == "*":
        return None
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise InvalidHost(f"{text[:100]!r} has neither a port from 1 to 65535 nor `*` after its last colon")
    return frozenset({int(port)})


class HostVerdict(LazyNamedTuple):
    """The verdict of the lists on a destination."""

    verdict: Literal["listed", "denied", "unlisted"]
    why: str = ""
    """The config key and the entry that deny it."""


class HostTable(LazyNamedTuple):
    """The lists of the operator."""

    hosts: tuple[HostEntry, ...] = ()
    denied: tuple[HostEntry, ...] = ()
    blocklist: Any = None
    private: bool = False
    """Whether addresses of private networks are allowed without an entry (`security.allow_private_urls`)."""
    broken: str = ""
    """Why the lists cannot be read; then every host is denied."""

    @classmethod
    def of(cls, settings: Settings) -> HostTable:
        """Read the lists.

        Raises:
            ConfigError: an entry is invalid.
        """
        return cls(
            tuple(_entries("network.hosts", settings.network.hosts)),
            tuple(_entries("network.deny", settings.network.deny, ports=None)),
            settings.security.website_blocklist,
            settings.security.allow_private_urls,
        )

    def judge(self, host: str, port: int) -> HostVerdict:
        """Return the verdict on a host from `parse_host` and a port."""
        if self.broken:
            return HostVerdict("denied", self.broken)
        if any(entry.covers(host, port) for entry in self.denied):
            return HostVerdict("denied", "`network.deny` names it")
        if (blocked := blocked_site(self.blocklist, f"https://[{host}]" if ":" in host else host)) is not None:
            return HostVerdict("denied", blocked["message"])
        return HostVerdict("listed" if any(entry.covers(host, port) for entry in self.hosts) else "unlisted")

    def is_listed(self, host: str) -> bool:
        """Return whether `network.hosts` names a host, at any port."""
        return any(entry.covers(host, port) for entry in self.hosts for port in entry.ports or (443,))

    def ports(self, host: str) -> frozenset[int]:
        """Return the ports at which `network.hosts` names a host; an entry for every port adds none."""
        return frozenset(port for entry in self.hosts for port in entry.ports or () if entry.covers(host, port))

    def denies_address(self, address: str, port: int) -> bool:
        """Return whether `network.deny` forbids an IP address, which may be that of a name."""
        return any(entry.addresses is not None and entry.covers(address, port) for entry in self.denied)

    def may_connect(self, address: str, port: int) -> bool:
        """Return whether an IP address may be connected to: it is public, or an entry names the address."""
        return is_allowed_address(address, self.opens_private(address, port)) and not self.denies_address(address, port)

    def why_denied(self, url: str) -> str:
        """Return why the host of an address that the operator wrote gets no request, or ""."""
        try:
            parts = urlsplit(url)
            place = parse_host(parts.hostname or ""), parts.port or (443 if parts.scheme == "https" else 80)
        except (ValueError, InvalidHost) as exc:
            return f"the address cannot be read: {exc}"
        rule = self.judge(*place)
        return f"the host {place[0]} is denied: {rule.why}" if rule.verdict == "denied" else ""

    def may_ask_own(self, address: str, port: int) -> bool:
        """Return whether an IP address of a host that the operator wrote may be requested: a private one, too."""
        return is_allowed_address(address, private=True) and not self.denies_address(address, port)

    def opens_private(self, address: str, port: int) -> bool:
        """Return whether an IP address of a private network may be connected to: `network.hosts` names it."""
        return self.private or any(e.addresses is not None and e.covers(address, port) for e in self.hosts)


class HostTables:
    """The current table: that of the config, and what users permanently allowed in this process.

    Args:
        settings: returns the settings in effect: another object after each reload of the config.
        home: the home with the config that keeps the answers `always`; None keeps them in memory only.
    """

    def __init__(self, settings: Callable[[], Settings], home: Path | None = None) -> None:
        self._settings, self._home = settings, home
        self._added: list[str] = []
        self._read: tuple[list[Any], HostTable] | None = None
        self._restricts: tuple[object, int, bool] | None = None

    def current(self) -> HostTable:
        """Return the table; when the lists are invalid, a table that denies every host."""
        settings = self._settings()
        network, security = settings.network, settings.security
        given = [network.hosts, network.deny, security.website_blocklist, security.allow_private_urls]
        if self._read is None or self._read[0] != [*given, list(self._added)]:
            try:
                table = HostTable.of(settings)
                added = tuple(_entries("network.hosts", self._added))
                table = table._replace(hosts=(*table.hosts, *added))
            except ConfigError as exc:
                table = HostTable(broken=exc.message)
            self._read = [*given, list(self._added)], table
        return self._read[1]

    @property
    def tool_mode(self) -> Mode:
        """Treatment of hosts that no list names, for requests of tools."""
        mode: Mode = self._settings().network.tools
        return mode

    def judge_for_tool(self, host: str, port: int) -> HostVerdict:
        """Return the verdict for a tool: `listed` is allowed; for `unlisted` the user is asked."""
        rule, mode = self.current().judge(host, port), self.tool_mode
        if rule.verdict == "unlisted" and mode == "on":
            return HostVerdict("listed")
        if rule.verdict == "unlisted" and mode == "hosts":
            return HostVerdict("denied", "`network.hosts` does not name it (`network.tools` is `hosts`)")
        return rule

    def restricts_tools(self) -> bool:
        """Return whether a tool is refused some destination, or asks about it; each tool call needs it twice."""
        known, settings = self._restricts, self._settings()
        if known is not None and known[0] is settings and known[1] == len(self._added):
            return known[2]
        table = self.current()
        restricts = self.tool_mode != "on" or bool(table.denied or table.blocklist or table.broken)
        self._restricts = settings, len(self._added), restricts
        return restricts

    def allow_always(self, text: str) -> None:
        """Add an entry to `network.hosts`, in memory and in the config file.

        Raises:
            ConfigError: the file cannot be changed.
            UserError: Nix declares the list.
        """
        if self._home is not None:
            from hermes_agent.config.edit import set_value  # a slow import, for the rare answer `always`

            present = list(dict.fromkeys([*self._settings().network.hosts, *self._added]))
            set_value(self._home, ("network", "hosts"), [*present, *([] if text in present else [text])])
        self._added.append(text)


def _entries(key: str, texts: Sequence[str], **ports: Any) -> Iterator[HostEntry]:
    for text in texts:
        try:
            for name in _members(str(text).strip()):
                yield parse_entry(name, **ports)
        except InvalidHost as exc:
            raise ConfigError(f"{key}: {exc}", hint="docs/operator/network.md describes the entries.") from None


def _members(text: str) -> Sequence[str]:
    if not text.startswith(GROUP):
        return (text,)
    known = groups()
    name = text.removeprefix(GROUP)
    if name not in known:
        raise InvalidHost(f"{text!r} is not a group; the groups are {', '.join(known)}")
    return known[name]


@functools.cache
def groups() -> Mapping[str, Sequence[str]]:
    """Return the groups of `groups.toml`: those of hosts, and those that combine other groups."""
    import tomllib  # at the first use of a group

    read = tomllib.loads(Path(__file__).with_name("groups.toml").read_text(encoding="utf-8"))
    named: dict[str, Sequence[str]] = {name: tuple(hosts) for name, hosts in read["hosts"].items()}
    for name, parts in read["groups"].items():
        named[name] = tuple(dict.fromkeys(host for part in parts for host in named[part]))
    return named


def explain_unruled(backend: str, settings: Settings) -> str:
    """Return why the table of hosts does not hold for the connections of commands; empty when it does.

    Args:
        backend: name of the backend in which commands run.
    """
    mode = settings.terminal.network
    if backend in _CONTAINERS:
        if mode in ("hosts", "ask"):
            return (
                f"`terminal.network` is `{mode}`, and a {backend} container has all of the network (`on`) or none:"
                " commands reach no host"
            )
        lists = "; `network.deny` does not hold there" if settings.network.deny else ""
        return f"a {backend} container has the network of its engine{lists}" if mode == "on" else ""
    if backend != "local":
        return f"commands have the network of the backend {backend}: `terminal.network` and `network` do not hold there"
    if settings.terminal.sandbox == "off":
        return (
            "commands run outside a sandbox and have the network of this machine: `terminal.network` and `network` do"
            " not hold for them"
        )
    return ""


def log_connection(
    session: str, tool: str, host: str, port: int, verdict: str, moved: tuple[int, int] | None = None
) -> None:
    """Log a connection; `moved` has the numbers of bytes sent and received, when they are known."""
    sizes = "" if moved is None else f" sent={moved[0]} received={moved[1]}"
    logger.info("network: session=%s tool=%s host=%s port=%d%s verdict=%s", session, tool, host, port, sizes, verdict)
