"""Upstream's `ToolRegistry._tools`: tools by name, where a change is a registration. Source: plugin contract §4.1."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from hermes_agent.contracts.owner import current_owner, staged_store
from hermes_agent.contracts.tool import ToolEntry

if TYPE_CHECKING:
    from hermes_agent.tools.registry import ToolRegistry

__all__ = ["ToolTable"]


class ToolTable(MutableMapping[str, ToolEntry]):
    """The tools of a registry, as they are at each use."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry

    def __getitem__(self, name: str) -> ToolEntry:
        entry = staged_store(self._registry).get(name)
        if entry is None:
            raise KeyError(name)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(staged_store(self._registry).names())

    def __len__(self) -> int:
        return len(staged_store(self._registry))

    def __setitem__(self, name: str, entry: ToolEntry) -> None:
        """Register a tool, also in the place of another one.

        Raises:
            PermissionError: the name is another owner's and the operator did not allow overriding.
            TypeError: it is no tool.
            ValueError: it has another name.
        """
        if not isinstance(entry, ToolEntry):
            raise TypeError(f"{entry!r} is no tool: expected a tools.registry.ToolEntry, or call registry.register")
        if entry.name != name:
            raise ValueError(f"the tool is called {entry.name!r}, not {name!r}")
        staged_store(self._registry)._enter(entry, current_owner(), override=True)

    def __delitem__(self, name: str) -> None:
        """Take a tool away.

        Raises:
            KeyError: there is none.
            PermissionError: it is another owner's and the operator did not allow overriding.
        """
        if name not in self:
            raise KeyError(name)
        self._registry.deregister(name)

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> dict[str, ToolEntry]:
        """Return them as a dictionary of their own."""
        return dict(self)
