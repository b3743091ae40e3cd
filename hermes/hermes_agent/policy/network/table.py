"""The table of hosts: `network.hosts`, `network.deny` and `security.website_blocklist`, with groups by name."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hermes_agent.core.errors import ConfigError
from hermes_agent.io.http import is_allowed_address
from hermes_agent.policy.network.hosts import HostEntry, InvalidHost, parse_entry
from hermes_agent.policy.sites import blocked_site

__all__ = ["GROUP", "MODES", "Mode", "HostVerdict", "HostTable", "HostTables", "groups"]

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
