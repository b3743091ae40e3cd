"""Which hosts a call leads to, by its arguments, and what the operator's table of hosts says about them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.contracts.tool import ApprovalRequest, ToolEntry
from hermes_agent.policy.network import HostTables, InvalidHost, format_entry, log_connection, parse_host

__all__ = ["ToolDestinations", "parse_destination"]

_NAMED = re.compile(r"(?:.*[_-])?ur[il]s?|href|address(?:es)?|link", re.IGNORECASE)
"""Parameters that hold addresses, by their name."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_WEB = re.compile(r"(https?|wss?|ftp):/*", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_LOOPBACK = frozenset({"about", "blob", "data", "file", "javascript"})
"""Schemes that lead to no host."""


def parse_destination(address: str) -> tuple[str, int] | None:
    """Return the host and port of an address; None where it leads to no host.

    Raises:
        InvalidHost: what stands for the host is none.
    """
    text = re.sub(r"[\t\r\n]", "", address.strip()).replace("\\", "/")  # as browsers read it
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() in _LOOPBACK:
        return None
    if (web := _WEB.match(text)) is not None:
        text = f"{web[1]}://{text[web.end() :]}"
    elif "://" not in text:
        text = f"https://{text.removeprefix('//')}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as exc:
        raise InvalidHost(f"{address[:100]!r} is no address: {exc}") from None
    host = parse_host(parts.hostname or "")
    return host, port or _PORTS.get(parts.scheme.lower(), 443)


class ToolDestinations:
    """Args: `tables` are the lists of the operator."""

    def __init__(self, tables: HostTables) -> None:
        self._tables = tables

    @property
    def has_rules(self) -> bool:
        """Whether there is a destination that is refused or asked about."""
        return self._tables.restricts_tools

    def check(self, entry: ToolEntry, arguments: Mapping[str, Any]) -> str | list[ApprovalRequest]:
        """Return why the table refuses a call, else what it asks the user."""
        found: dict[str, ApprovalRequest] = {}
        for address, judged_later in _addresses(entry, arguments):
            try:
                place = parse_destination(address)
            except InvalidHost as exc:
                if judged_later or self._tables.tool_mode == "on":  # the handler says what is wrong
                    continue
                return f"{entry.name} is refused by the network settings: {exc}"
            if place is None:
                continue
            named, rule = format_entry(*place), self._tables.judge_for_tool(*place)
            if rule.verdict == "denied" and not judged_later:
                return f"{entry.name} is refused: {named} is not reached, {rule.why}"
            if rule.verdict == "unlisted":
                found.setdefault(named, self._request(entry, named, place, address))
        return list(found.values())

    def _request(self, entry: ToolEntry, named: str, place: tuple[str, int], address: str) -> ApprovalRequest:
        key, what = f"network:{place[0]}:{place[1]}", f"let {entry.name} reach {named}"
        return ApprovalRequest(entry.name, what, address[:400], key, keep=partial(self._tables.allow_always, named))

    def log_destinations(self, entry: ToolEntry, arguments: Mapping[str, Any], session: str, verdict: str) -> None:
        """Write where a call leads into the log."""
        for address, judged_later in _addresses(entry, arguments):
            with contextlib.suppress(InvalidHost):
                if not judged_later and (place := parse_destination(address)) is not None:
                    log_connection(session, entry.name, *place, verdict)


def _addresses(entry: ToolEntry, arguments: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the addresses of a call, and whether its handler judges them itself."""
    later = entry.destinations is not None
    if entry.destinations is not None:
        yield from ((address, False) for address in entry.destinations(arguments))
    decides = entry.effect.decides if entry.effect is not None and entry.effect.does == "opens" else ()
    for name, value in arguments.items():
        if name not in decides and _NAMED.fullmatch(str(name)) is None:
            continue
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text.strip() and (name in decides or "://" in text):
                yield text, later
