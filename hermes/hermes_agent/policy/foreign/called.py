"""A call of a tool, as far as it matters whose words it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.contracts.tool import Effect

__all__ = ["CheckedCall"]


class CheckedCall(NamedTuple):
    """A call of a tool."""

    name: str
    effect: Effect
    schema: Mapping[str, Any]
    arguments: Mapping[str, Any]
    session_id: str
    cwd: Path
    """What a path among the arguments is relative to."""
    since: float = 0.0
    """When it began, by the clock of files."""
    reached: str = ""
    """A host that it reached, if the sandbox knows."""

    def places(self, result: str) -> list[str]:
        """Return the files that it is about, resolved; of a command the folder in which it stood and its process."""
        place = self.effect.place
        if callable(place):
            return list(dict.fromkeys(place(self.arguments, result)))
        value = self.arguments.get(place) if place else None
        return [str((self.cwd / Path(str(value)).expanduser()).resolve())] if value else []

    @property
    def command(self) -> str:
        """What it runs, with what it is given beside."""
        return "\n".join(str(v) for v in self.arguments.values() if isinstance(v, str))

    def folders(self, places: Sequence[str]) -> list[Path]:
        """Return the folders in which a command stood."""
        return list(dict.fromkeys([self.cwd, *(Path(place) for place in places if place.startswith("/"))]))

    @property
    def fixed(self) -> frozenset[str]:
        """The parameters whose values the schema lists."""
        properties = (self.schema.get("parameters") or {}).get("properties") or {}
        defined = (self.schema.get("parameters") or {}).get("$defs") or {}
        return frozenset(n for n, p in properties.items() if isinstance(p, Mapping) and _is_listed(p, defined))


def _is_listed(schema: Mapping[str, Any], defined: Mapping[str, Any]) -> bool:
    """Say whether a schema lists its values, itself, where it refers to, or in the one type that it allows."""
    found = defined.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if isinstance(one := found.get("allOf"), list) and len(one) == 1:
        return _is_listed(one[0], {})
    return bool(found.get("enum"))
