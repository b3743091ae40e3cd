"""Why an upstream name is not served: the table `declined.toml`."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

__all__ = ["declined", "reason"]

TABLE = Path(__file__).resolve().parent / "declined.toml"


@functools.cache
def declined() -> dict[str, str]:
    """Return the reasons, by module or package; a package's holds for everything in it."""
    return {str(k): str(v) for k, v in tomllib.loads(TABLE.read_text(encoding="utf-8"))["modules"].items()}


def reason(fullname: str) -> str:
    """Return why hermes-agent does not serve `fullname`, in a few words."""
    table = declined()
    name = fullname
    while name:
        if name in table:
            return f"hermes-agent does not serve it: {table[name]}"
        name = name.rpartition(".")[0]
    return "hermes-agent does not serve it: no published plugin was known to need it"
