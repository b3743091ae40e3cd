"""A config file as plain values with their positions, and findings about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from hermes_agent.config.schema import KeyPath
from hermes_agent.core.errors import ConfigError
from hermes_agent.core.lazy_types import LazyNamedTuple

HINT = "every key with its type and default: docs/reference/config.md"
FindingLevel = Literal["error", "warning", "note"]
"""A warning is about an accepted value that does not have its intended effect."""
ENV_HINT = "a line is NAME=VALUE, with quotes and # comments as in a shell"


class ConfigFinding(LazyNamedTuple):
    """A finding about a config file."""

    file: str
    """Name of the file as the user gave it; empty for a value outside of files."""
    line: int | None
    """From 1; None for the whole file."""
    column: int | None
    """In characters, from 1."""
    key_path: str
    """Dotted path of the key; empty for the whole file."""
    message: str
    """One sentence that names the key, without the position."""
    level: FindingLevel = "error"

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}" if place else self.message


def in_order(findings: Iterable[ConfigFinding]) -> list[ConfigFinding]:
    """Return the findings by file (in order of appearance) and line, without duplicates."""
    unique = list(dict.fromkeys(findings))
    files = list(dict.fromkeys(finding.file for finding in unique))
    return sorted(unique, key=lambda f: (files.index(f.file), f.line or 0, f.column or 0))


def format_findings(findings: Iterable[ConfigFinding], hint: str = HINT) -> str:
    """Return one line for each finding and a last line with `hint`."""
    ordered = in_order(findings)
    count = "1 error" if len(ordered) == 1 else f"{len(ordered)} errors"
    return "\n".join([*map(str, ordered), f"{count}; {hint}"])


def config_error(findings: Iterable[ConfigFinding], hint: str = HINT) -> ConfigError:
    """Return the error with the findings as its message."""
    return ConfigError(format_findings(findings, hint))


class Position(LazyNamedTuple):
    """The position of a key or value; line and column count from 1."""

    line: int
    column: int
    token: str = ""
    """The scalar as written."""


class ConfigDocument:
    """A config file: its values, their positions, and the errors of reading it."""

    # written out: each command loads this module, and `dataclasses` takes 10 ms of its start
    __slots__ = ("exists", "findings", "keys", "name", "scalars", "value")

    def __init__(
        self,
        name: str,
        value: dict[str, Any] | None = None,
        findings: list[ConfigFinding] | None = None,
        exists: bool = True,
    ) -> None:
        self.name = name
        """Name for findings, as the user gave it."""
        self.value: dict[str, Any] = {} if value is None else value
        self.findings: list[ConfigFinding] = [] if findings is None else findings
        self.exists = exists
        self.keys: dict[int, dict[str | int, Position]] = {}
        """Positions of the keys or items of each mapping or list, by its `id`; the values live as long as `value`."""
        self.scalars: dict[int, dict[str | int, Position]] = {}
        """Positions of the values of each mapping or list, by its `id`."""

    def position(self, path: KeyPath) -> Position | None:
        """Return the position of the key at `path`, or of the nearest key above it."""
        return self._find_position(path, self.keys)

    def token(self, path: KeyPath) -> str:
        """Return the scalar at `path` as written."""
        spot = self._find_position(path, self.scalars, exact=True)
        return spot.token if spot else ""

    def raw_value(self, path: KeyPath) -> Any:
        """Return the value at `path` as written, or None."""
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
