"""Answers to questions for names in a task's network: each name has an address there that stands for it.

So programs that know no proxy connect through the broker as well: the address that they connect to tells the name.
Nothing is asked outside: what a command puts into a name goes nowhere.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

from hermes_agent.policy.network import InvalidHost, parse_host
from hermes_agent.workspace.egress.inside import FAKE

__all__ = ["MOST_NAMES", "NameTable"]

MOST_NAMES = 4096
"""Names that have an address in one task."""
TTL_S = 60

_HEAD = struct.Struct("!6H")
_A, _IN, _ANSWER, _NO_SUCH_NAME, _NOT_UNDERSTOOD = 1, 1, 0x8180, 3, 1
_FIRST = int(ipaddress.IPv4Address(FAKE[0])) + 1


class NameTable:
    """Args: `refusal` returns why a name has no address, or an empty text."""

    def __init__(self, refusal: Callable[[str], str]) -> None:
        self._refusal = refusal
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def host(self, address: str) -> str | None:
        """Return the name that an address stands for."""
        number = int(ipaddress.IPv4Address(address)) - _FIRST
        return self._names[number] if 0 <= number < len(self._names) else None

    def address(self, name: str) -> str | None:
        """Return the address that stands for a name; None where there are too many."""
        number = self._numbers.get(name)
        if number is None:
            if len(self._names) >= MOST_NAMES:
                return None
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return str(ipaddress.IPv4Address(_FIRST + number))

    def answer(self, question: bytes) -> bytes | None:
        """Return the answer to a datagram; None for what is no question."""
        try:
            number, flags, count, *_ = _HEAD.unpack_from(question)
            if flags & 0x8000:
                return None
            if count != 1 or flags & 0x7800:
                return _HEAD.pack(number, _ANSWER | _NOT_UNDERSTOOD, 0, 0, 0, 0)
            name, end = _read_name(question, _HEAD.size)
            kind, group = struct.unpack_from("!2H", question, end)
        except (struct.error, IndexError, UnicodeDecodeError):
            return None
        asked = question[_HEAD.size : end + 4]
        try:
            host = parse_host(name)
        except InvalidHost:
            host = ""
        if not host or self._refusal(host) or (address := self.address(host)) is None:
            return _HEAD.pack(number, _ANSWER | _NO_SUCH_NAME, 1, 0, 0, 0) + asked
        if kind != _A or group != _IN:  # it is there, and has nothing of that kind
            return _HEAD.pack(number, _ANSWER, 1, 0, 0, 0) + asked
        record = struct.pack("!3HIH4s", 0xC00C, _A, _IN, TTL_S, 4, ipaddress.IPv4Address(address).packed)
        return _HEAD.pack(number, _ANSWER, 1, 1, 0, 0) + asked + record


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    """Return a name without its last dot, and where it ends."""
    labels = []
    while size := data[at]:
        if size > 63:
            raise IndexError("a pointer, or no label")
        labels.append(data[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    return ".".join(labels), at + 1
