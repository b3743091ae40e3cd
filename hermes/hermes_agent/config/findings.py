"""What is wrong with a config, where, and in which words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from hermes_agent.core.errors import ConfigError

__all__ = ["ENV_HINT", "HINT", "ConfigFinding", "FindingLevel", "config_error", "in_order", "format_findings"]

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
