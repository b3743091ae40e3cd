"""A config file as plain values, and where each of them stands in the file."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes_agent.config.findings import ConfigFinding
from hermes_agent.config.keypath import KeyPath

__all__ = ["ConfigDocument", "Position"]


class Position(NamedTuple):
    """Where something stands; line and column count from 1."""

    line: int
    column: int
    token: str = ""
    """The scalar as it was written."""


class ConfigDocument:
    """A config file: its values, where they stand, and what kept it from being read."""

    # written out: every command loads this, and `dataclasses` costs 10 ms of start-up
    __slots__ = ("exists", "findings", "keys", "name", "scalars", "value")

    def __init__(
        self,
        name: str,
        value: dict[str, Any] | None = None,
        findings: list[ConfigFinding] | None = None,
        exists: bool = True,
    ) -> None:
        self.name = name
        """Name for findings, as the person gave it."""
        self.value: dict[str, Any] = {} if value is None else value
        self.findings: list[ConfigFinding] = [] if findings is None else findings
        self.exists = exists
        self.keys: dict[int, dict[str | int, Position]] = {}
        """By `id` of the mapping or list: where each key or item stands. The values live as long as `value`."""
        self.scalars: dict[int, dict[str | int, Position]] = {}
        """By `id` of the mapping or list: where each key's value begins."""

    def position(self, path: KeyPath) -> Position | None:
        """Return where the key at `path` stands, or the nearest one above it."""
        return self._find_position(path, self.keys)

    def token(self, path: KeyPath) -> str:
        """Return the scalar at `path` as it was written."""
        spot = self._find_position(path, self.scalars, exact=True)
        return spot.token if spot else ""

    def raw_value(self, path: KeyPath) -> Any:
        """Return the value at `path` as it was written; None when there is none."""
        here: Any = self.value
        for part in path:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                return None
        return here

    def _find_position(
        self, path: KeyPath, spots: dict[int, dict[str | int, Position]], *, exact: bool = False
    ) -> Position | None:
        here: Any = self.value
        found: Position | None = None
        for part in path:
            spot = spots.get(id(here), {}).get(part)
            if spot is None:
                return None if exact else found
            found, here = spot, here[part]
        return found
