"""Sites that the operator forbids: `security.website_blocklist`. Source: plugin contract §11.3.

Hosts as they are asked for, whatever their spelling, and entries of a list that name them.

The table of hosts: `network.hosts`, `network.deny` and `security.website_blocklist`, with groups by name.

What `terminal.network` does where commands run, by backend.

The line that each connection leaves in the log.

Which hosts commands and tools may reach: one table for all of them (`network` in the config).
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import re
import socket
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from hermes_agent.core.errors import ConfigError
from hermes_agent.system.safe_http import is_allowed_address


def blocked_site(block: Any, url: str) -> dict[str, str] | None:
    """Return why the blocklist forbids `url`, None when it does not.

    Args:
        block: `{"enabled": true, "domains": ["bad.example", "*.worse.example"]}`; a domain stands for those below it.

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
    """Return a host as it is asked for: `bücher.example` and `ｂücher.example` are `xn--bcher-kva.example`."""
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:  # a glob of characters, or no host at all
        return host.lower()


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


GROUP = "group:"
"""What an entry that names a group begins with."""

Mode = Literal["off", "ask", "hosts", "on"]
"""What becomes of a host that no list names: `on` allows it, `ask` asks the user, `hosts` refuses it; `off` refuses
listed ones, too."""
MODES: tuple[Mode, ...] = get_args(Mode)


class HostVerdict(NamedTuple):
    """What the lists say about a destination."""

    verdict: Literal["listed", "denied", "unlisted"]
    why: str = ""
    """The key and the entry that deny it."""


class HostTable(NamedTuple):
    """The lists of the operator."""

    hosts: tuple[HostEntry, ...] = ()
    denied: tuple[HostEntry, ...] = ()
    blocklist: Any = None
    private: bool = False
    """Addresses of private networks may be asked without an entry (`security.allow_private_urls`)."""
    broken: str = ""
    """Why the lists cannot be read; everything is denied then."""

    @classmethod
    def of(cls, get: Callable[[str], Any]) -> HostTable:
        """Read the lists; `get` returns what a key of the config says.

        Raises:
            ConfigError: an entry names nothing.
        """
        return cls(
            tuple(_entries("network.hosts", get("network.hosts") or ())),
            tuple(_entries("network.deny", get("network.deny") or (), ports=None)),
            get("security.website_blocklist"),
            get("security.allow_private_urls") is True,
        )

    def judge(self, host: str, port: int) -> HostVerdict:
        """Return what the lists say about a host, as `parsed_host` returns it, and a port."""
        if self.broken:
            return HostVerdict("denied", self.broken)
        if any(entry.covers(host, port) for entry in self.denied):
            return HostVerdict("denied", "`network.deny` names it")
        if (blocked := blocked_site(self.blocklist, f"https://[{host}]" if ":" in host else host)) is not None:
            return HostVerdict("denied", blocked["message"])
        return HostVerdict("listed" if any(entry.covers(host, port) for entry in self.hosts) else "unlisted")

    def is_listed(self, host: str) -> bool:
        """Say whether `network.hosts` names a host, at whatever port."""
        return any(entry.covers(host, port) for entry in self.hosts for port in entry.ports or (443,))

    def ports(self, host: str) -> frozenset[int]:
        """Return the ports at which `network.hosts` names a host; an entry for each port names none."""
        return frozenset(port for entry in self.hosts for port in entry.ports or () if entry.covers(host, port))

    def denies_address(self, address: str, port: int) -> bool:
        """Say whether a list forbids an IP address that a name leads to."""
        return any(entry.addresses is not None and entry.covers(address, port) for entry in self.denied)

    def may_connect(self, address: str, port: int) -> bool:
        """Say whether an IP address may be connected to: a public one, or one that an entry names as such."""
        return is_allowed_address(address, self.opens_private(address, port)) and not self.denies_address(address, port)

    def opens_private(self, address: str, port: int) -> bool:
        """Say whether an IP address of a private network may be asked: a list names the address itself."""
        return self.private or any(e.addresses is not None and e.covers(address, port) for e in self.hosts)


class HostTables:
    """The table as the config says now, and with what users allowed for good in this process.

    Args:
        get: returns what a key of the config says now.
        home: whose config takes the answer `always`; None for none.
    """

    def __init__(self, get: Callable[[str], Any], home: Path | None = None) -> None:
        self._get, self._home = get, home
        self._added: list[str] = []
        self._read: tuple[list[Any], HostTable] | None = None

    def current(self) -> HostTable:
        """Return the table; where the lists are broken, one that denies everything."""
        given = [self._get(key) for key in _KEYS]
        if self._read is None or self._read[0] != [*given, list(self._added)]:
            try:
                table = HostTable.of(self._get)
                added = tuple(_entries("network.hosts", self._added))
                table = table._replace(hosts=(*table.hosts, *added))
            except ConfigError as exc:
                table = HostTable(broken=exc.message)
            self._read = [*given, list(self._added)], table
        return self._read[1]

    @property
    def tool_mode(self) -> Mode:
        """What becomes of hosts that no list names where tools ask for them."""
        mode: Mode = self._get("network.tools") or "on"
        return mode

    def judge_for_tool(self, host: str, port: int) -> HostVerdict:
        """Return what a tool does with a destination: `listed` is allowed, and where `unlisted` the user is asked."""
        rule, mode = self.current().judge(host, port), self.tool_mode
        if rule.verdict == "unlisted" and mode == "on":
            return HostVerdict("listed")
        if rule.verdict == "unlisted" and mode == "hosts":
            return HostVerdict("denied", "`network.hosts` does not name it (`network.tools` is `hosts`)")
        return rule

    @property
    def restricts_tools(self) -> bool:
        """Whether there is a destination that tools do not reach, or ask about."""
        table = self.current()
        return self.tool_mode != "on" or bool(table.denied or table.blocklist or table.broken)

    def allow_always(self, text: str) -> None:
        """Add an entry to `network.hosts`, here and in the file.

        Raises:
            ConfigError: the file cannot be changed.
            UserError: Nix declares the list.
        """
        if self._home is not None:
            from hermes_agent.config.edit import set_value  # a round-trip parser; an answer `always` is rare

            present = list(dict.fromkeys([*(self._get("network.hosts") or ()), *self._added]))
            set_value(self._home, ("network", "hosts"), [*present, *([] if text in present else [text])])
        self._added.append(text)


_KEYS = ("network.hosts", "network.deny", "security.website_blocklist", "security.allow_private_urls")


def _entries(key: str, texts: Sequence[str], **ports: Any) -> Iterator[HostEntry]:
    for text in texts:
        try:
            for name in _members(str(text).strip()):
                yield parse_entry(name, **ports)
        except InvalidHost as exc:
            raise ConfigError(f"{key}: {exc}", hint="docs/operator/network.md says what an entry is.") from None


def _members(text: str) -> Sequence[str]:
    if not text.startswith(GROUP):
        return (text,)
    known = groups()
    name = text.removeprefix(GROUP)
    if name not in known:
        raise InvalidHost(f"{text!r} is no group; there are {', '.join(known)}")
    return known[name]


@functools.cache
def groups() -> Mapping[str, Sequence[str]]:
    """Return the groups of `groups.toml`: hosts by name, and the groups that are made of others."""
    read = tomllib.loads(Path(__file__).with_name("groups.toml").read_text(encoding="utf-8"))
    named: dict[str, Sequence[str]] = {name: tuple(hosts) for name, hosts in read["hosts"].items()}
    for name, parts in read["groups"].items():
        named[name] = tuple(dict.fromkeys(host for part in parts for host in named[part]))
    return named


_CONTAINERS = ("docker", "singularity")
"""Backends whose commands have the network of an engine, or none."""


def explain_unruled(backend: str, get: Callable[[str], Any]) -> str:
    """Return why the table of hosts does not decide about the connections of commands; empty when it does.

    Args:
        backend: where commands run.
        get: returns a setting by its key.
    """
    mode = get("terminal.network")
    if backend in _CONTAINERS:
        if mode in ("hosts", "ask"):
            return (
                f"`terminal.network` is `{mode}`, and a {backend} container has all of the network (`on`) or none:"
                " commands reach no host"
            )
        lists = "; `network.deny` does not hold there" if get("network.deny") else ""
        return f"a {backend} container has the network of its engine{lists}" if mode == "on" else ""
    if backend != "local":
        return f"commands have the network of the backend {backend}: `terminal.network` and `network` do not hold there"
    if get("terminal.sandbox") == "off":
        return (
            "commands run outside a sandbox and have the network of this machine: `terminal.network` and `network` do"
            " not hold for them"
        )
    return ""


logger = logging.getLogger(__name__)


def log_connection(
    session: str, tool: str, host: str, port: int, verdict: str, moved: tuple[int, int] | None = None
) -> None:
    """Note a connection; `moved` are the bytes that were sent and received, where they are known."""
    sizes = "" if moved is None else f" sent={moved[0]} received={moved[1]}"
    logger.info("network: session=%s tool=%s host=%s port=%d%s verdict=%s", session, tool, host, port, sizes, verdict)
