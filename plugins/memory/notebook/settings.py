"""The settings of the notebook: `notebook.json` of the home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["FIELDS", "NotebookSettings"]


class NotebookSettings(NamedTuple):
    """What may be set."""

    recall_count: int = 5
    recall_chars: int = 600
    max_entries: int = 20_000

    @classmethod
    def read(cls, home: Path) -> NotebookSettings:
        """Read them; what is missing, or no number, has its default.

        Raises:
            ValueError: the file is no JSON object.
        """
        try:
            given = json.loads((home / "notebook.json").read_text("utf-8"))
        except FileNotFoundError:
            return cls()
        if not isinstance(given, dict):
            raise ValueError(f"{home / 'notebook.json'} is no mapping")
        numbers = {k: int(v) for k, v in given.items() if k in cls._fields and str(v).lstrip("-").isdigit()}
        return cls(**numbers)

    @classmethod
    def write(cls, home: Path, values: dict[str, Any]) -> None:
        """Keep the numbers among `values`, whole or not at all."""
        kept = {k: int(v) for k, v in values.items() if k in cls._fields and str(v).lstrip("-").isdigit()}
        fresh = home / ".notebook.json.new"
        fresh.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        fresh.replace(home / "notebook.json")


FIELDS: list[dict[str, Any]] = [
    {"key": "recall_count", "description": "Entries that come with a message, at most", "default": "5"},
    {"key": "recall_chars", "description": "Characters of each of them, at most", "default": "600"},
    {"key": "max_entries", "description": "Entries kept for a person; the oldest turns go first", "default": "20000"},
]
