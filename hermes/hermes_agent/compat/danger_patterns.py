"""Upstream's lists of regular expressions, for plugins that look a command up by themselves. Source: contract §10.4.

Nothing of ours judges by them: `policy.shell` reads the grammar. Each finds the plain form of what it describes. They
stand in `danger_patterns.toml`, which is read when a plugin asks for them.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

__all__ = ["dangerous_patterns", "hardline_patterns"]

Patterns = list[tuple[str, str]]
"""`(regex, description)`, to be searched for."""
_PART = re.compile(r"\{([A-Z_]+)\}")


def dangerous_patterns() -> Patterns:
    """Return what a person is asked about."""
    return _lists()["dangerous"]


def hardline_patterns() -> Patterns:
    """Return the same of what never runs (§10.3)."""
    return _lists()["hardline"]


@functools.cache
def _lists() -> dict[str, Patterns]:
    import tomllib  # few plugins ask

    document = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    parts: dict[str, str] = document["parts"]

    def whole(text: str) -> str:
        return _PART.sub(lambda match: whole(parts[match[1]]), text)

    return {name: [(whole(p), whole(about)) for p, about in pairs] for name, pairs in document["lists"].items()}
