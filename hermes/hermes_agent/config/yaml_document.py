"""What is wrong with a config, where, and in which words.

A config file as plain values, and where each of them stands in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from hermes_agent.config.schema import KeyPath
from hermes_agent.core.errors import ConfigError

HINT = "every key with its type and default: docs/reference/config.md"
FindingLevel = Literal["error", "warning", "note"]
"""A warning is about a value that is taken and does not do what it asks for."""
ENV_HINT = "a line is NAME=VALUE, with quotes and # comments as in a shell"


class ConfigFinding(NamedTuple):
    """One thing to say about a config file."""

    file: str
    """Name as the person gave it; empty when the value stands in no file."""
    line: int | None
    """From 1; None when it is about the file as a whole."""
    column: int | None
    """In characters, from 1."""
    key_path: str
    """Dotted path of the key; empty when it is about the file."""
    message: str
    """One sentence that names the key, without the place."""
    level: FindingLevel = "error"

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}" if place else self.message


def in_order(findings: Iterable[ConfigFinding]) -> list[ConfigFinding]:
    """Return them by file (in order of appearance) and line; the same sentence about one place once."""
    unique = list(dict.fromkeys(findings))
    files = list(dict.fromkeys(finding.file for finding in unique))
    return sorted(unique, key=lambda f: (files.index(f.file), f.line or 0, f.column or 0))


def format_findings(findings: Iterable[ConfigFinding], hint: str = HINT) -> str:
    """Return a line for each finding and a closing line that says how to go on."""
    ordered = in_order(findings)
    count = "1 error" if len(ordered) == 1 else f"{len(ordered)} errors"
    return "\n".join([*map(str, ordered), f"{count}; {hint}"])


def config_error(findings: Iterable[ConfigFinding], hint: str = HINT) -> ConfigError:
    """Return the error whose message is the `report`."""
    return ConfigError(format_findings(findings, hint))


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
