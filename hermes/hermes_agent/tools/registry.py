"""The tool registry. Its method names are upstream's. Source: plugin contract §4.1, §4.2."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Self

from hermes_agent.contracts.tool import ApprovalRequest, Effect, ToolEntry, ToolHandler
from hermes_agent.core.caches import CheckCache
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.registry import (
    BUILTIN,
    Conflict,
    Owner,
    RegistrationStore,
    RegistryEntry,
    RegistryFacade,
    current_owner,
    describe_owner,
    staged_store,
)
from hermes_agent.core.text import as_names
from hermes_agent.tools.arguments import (
    function_definition,
    name_problem,
    schema_problem,
    without_missing_tools,
)
from hermes_agent.tools.results import call_without_host, tool_error


class ToolTable(MutableMapping[str, ToolEntry]):
    """The current tools of a registry as a mapping (upstream's `ToolRegistry._tools`).

    A change is a registration.
    """

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
        """Register a tool, also in place of another one.

        Raises:
            PermissionError: another owner has the name, and the operator did not allow overriding.
            TypeError: the value is no tool.
            ValueError: the tool has another name.
        """
        if not isinstance(entry, ToolEntry):
            raise TypeError(f"{entry!r} is no tool: expected a tools.registry.ToolEntry, or call registry.register")
        if entry.name != name:
            raise ValueError(f"the tool is called {entry.name!r}, not {name!r}")
        staged_store(self._registry)._enter(entry, current_owner(), override=True)

    def __delitem__(self, name: str) -> None:
        """Remove a tool.

        Raises:
            KeyError: there is no such tool.
            PermissionError: another owner has the name, and the operator did not allow overriding.
        """
        if name not in self:
            raise KeyError(name)
        self._registry.deregister(name)

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> dict[str, ToolEntry]:
        """Return a dictionary of the current tools."""
        return dict(self)


logger = logging.getLogger(__name__)

Fault = Callable[[str, str], None]
Run = Callable[[str, dict[str, Any], dict[str, Any]], str]
shown_tools: ContextVar[Collection[str] | None] = ContextVar("showing", default=None)
"""The tools of the definitions in progress: a description may name only these (§4.7)."""


def tool_schema(
    name: str, description: str, properties: Mapping[str, Any], required: Collection[str] = ()
) -> dict[str, Any]:
    """Return the schema of a tool, as `ToolRegistry.register` expects it."""
    needed = {"required": list(required)} if required else {}
    parameters = {"type": "object", "properties": dict(properties), **needed}
    return {"name": name, "description": description, "parameters": parameters}


@lazy_dataclass(frozen=True, slots=True)
class RejectedTool:
    """A rejected registration: another owner has the name, or the name is invalid."""

    tool: str
    owner: str
    """Owner of the name; empty for an invalid name."""
    claimed_by: str

    def __str__(self) -> str:
        return name_problem(self.tool) or f"tool `{self.tool}` belongs to {describe_owner(self.owner)}"


class ToolRegistry(RegistryFacade[ToolEntry]):
    """Tools by name, each with its owner."""

    def __init__(self) -> None:
        super().__init__("tool")
        self.checks = CheckCache()
        self.refusals: list[RejectedTool] = []
        self._aliases: dict[str, str] = {}
        self._held_back: dict[str, float] = {}
        self._run: Run | None = None
        self._fault: Fault | None = None

    # -- registering -----------------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        toolset: str,
        schema: dict[str, Any],
        handler: ToolHandler,
        check_fn: Callable[[], Any] | None = None,
        requires_env: list[str] | None = None,
        is_async: bool = False,
        description: str = "",
        emoji: str = "",
        max_result_size_chars: float | None = None,
        dynamic_schema_overrides: Callable[[], dict[str, Any]] | None = None,
        override: bool = False,
        *,
        approval: Callable[[dict[str, Any]], ApprovalRequest | str | None] | None = None,
        parallel_safe: bool | Callable[[dict[str, Any]], str] = False,
        idempotent: bool = False,
        effect: Effect | None = None,
        destinations: Callable[[Mapping[str, Any]], Iterable[str]] | None = None,
        owner: Owner | None = None,
        scope: str | None = None,
    ) -> None:
        """Register a tool for `owner`, by default the owner of the context.

        `scope` is the key of a home; here and below it is ignored, since a process has one home.

        A name of another owner is rejected, with an error in the log and an entry in `refusals`, unless `override` is
        given and the operator allowed it. A name that providers do not accept is rejected, too: it would make them
        reject every request.

        Raises:
            PermissionError: `override` without the operator's permission.
            TypeError: the handler cannot be called.
            ValueError: the schema or its `parameters` is no dict.
        """
        if not callable(handler):
            raise TypeError(f"the handler of tool {name!r} is {handler!r}: expected something that can be called")
        if (problem := schema_problem(name, schema)) is not None:
            raise ValueError(problem)
        entry = ToolEntry(
            name,
            toolset,
            schema,
            handler,
            check_fn,
            as_names(requires_env),
            is_async,
            description or str(schema.get("description", "")),
            emoji,
            max_result_size_chars,
            dynamic_schema_overrides,
            approval,
            parallel_safe,
            idempotent,
            effect=effect,
            destinations=destinations,
        )
        claimant = owner or current_owner()
        staged_store(self)._enter(entry, claimant, override)

    def _enter(self, entry: ToolEntry, claimant: Owner, override: bool) -> None:
        name = entry.name
        problem = name_problem(name)
        if problem is not None:
            logger.error("Tool registration REJECTED: %s (%s)", problem, describe_owner(claimant.key))
            self.refusals.append(RejectedTool(name, "", claimant.key))
            return

        def may_replace(present: RegistryEntry[ToolEntry]) -> bool:
            return _both_mcp(present.value, entry) or self._may_replace(present, entry, claimant, override)

        with contextlib.suppress(Conflict):
            self._entries.add(name, entry, owner=claimant.key, replace=may_replace)

    def _may_replace(self, present: RegistryEntry[ToolEntry], entry: ToolEntry, owner: Owner, override: bool) -> bool:
        theirs = present.value.toolset
        if not override:
            logger.error(
                "Tool registration REJECTED: '%s' (toolset '%s') would shadow existing tool from toolset '%s'. "
                "Pass override=True to register() if the replacement is intentional, or deregister the existing "
                "tool first.",
                entry.name,
                entry.toolset,
                theirs,
            )
            self.refusals.append(RejectedTool(entry.name, present.owner, owner.key))
            return False
        if not (owner.may_override or owner.key == BUILTIN or entry.name in owner.free_tools):
            text = (
                f"Plugin module '{owner.key or 'unknown'}' cannot override built-in tool '{entry.name}' without "
                "operator opt-in (allow_tool_override)."
            )
            logger.error("%s", text)
            raise PermissionError(text)
        logger.info(
            "Tool '%s': toolset '%s' overriding existing toolset '%s' (override=True opt-in)",
            entry.name,
            entry.toolset,
            theirs,
        )
        return True

    def deregister(self, name: str, *, scope: str | None = None) -> None:
        """Remove a tool; a missing one is no error.

        Raises:
            PermissionError: another owner has the name, and the operator did not allow overriding.
        """
        target = staged_store(self)
        if target is not self:
            target.deregister(name)
            return
        present = self._entries.entries.get(name)
        if present is None:
            return
        owner, toolset = current_owner(), present.value.toolset
        mine = owner.key in (present.owner, BUILTIN) or owner.may_override or name in owner.free_tools
        if not mine and not toolset.startswith("mcp-"):
            text = (
                f"Plugin module '{owner.key or 'unknown'}' cannot deregister tool '{name}' (toolset "
                f"'{toolset}') without operator opt-in (allow_tool_override)."
            )
            logger.error("%s", text)
            raise PermissionError(text)
        if self._entries.remove(name, present) and not self.get_tool_names_for_toolset(toolset):
            self._aliases = {alias: target for alias, target in self._aliases.items() if target != toolset}

    def snapshot_registration(self, name: str, *, scope: str | None = None) -> ToolEntry | None:
        """Return the present tool of a name for `restore_registration`, or None."""
        return staged_store(self).get(name)

    def restore_registration(
        self, name: str, current: ToolEntry | None, previous: ToolEntry | None, *, scope: str | None = None
    ) -> bool:
        """Put `previous` in the place of `current`; return False if `current` is no longer there.

        Raises:
            PermissionError: another owner has the name, and the operator did not allow overriding.
        """
        if self.snapshot_registration(name) is not current:
            return False
        self.deregister(name)
        if previous is not None and self.snapshot_registration(name) is not previous:
            staged_store(self)._enter(previous, current_owner(), override=True)
        return self.snapshot_registration(name) is previous

    def with_stores(self, stores: Iterable[RegistrationStore]) -> Self:
        """Return a copy with other tools, without refusals."""
        other = super().with_stores(stores)
        other.refusals, other._aliases, other._held_back = [], dict(self._aliases), {}
        return other

    def _after_change(self, owner: str, fork: Self | None) -> None:
        if fork is not None:
            self._aliases |= fork._aliases

    # -- reading ---------------------------------------------------------------------------------------------

    def hold_back(self, owner: str) -> None:
        """Show the tools of an owner only to sessions that start from now on: others keep their cached prefix."""
        now = time.time()
        self._held_back |= {name: now for name in self.names() if self.owner(name) == owner}

    def show_to_all(self, owner: str) -> None:
        """Show the tools of an owner to every session again."""
        self._held_back = {name: since for name, since in self._held_back.items() if self.owner(name) != owner}

    def held_back(self, started_at: float) -> tuple[str, ...]:
        """Return the tools that a session which started then is not shown."""
        return tuple(name for name, since in self._held_back.items() if since > started_at)

    @property
    def _generation(self) -> int:
        """A number that rises with each change; plugins read it under this name (plugin contract §4.1)."""
        return self._entries.generation

    def replaced(self, name: str) -> RegistryEntry[ToolEntry] | None:
        """Return the tool of another owner that the tool of this name replaces, or None."""
        entry = self._entries.entries.get(name)
        return None if entry is None else entry.replaced

    def get_entry(self, name: str, *, scope: str | None = None) -> ToolEntry | None:
        """Return the tool, or None."""
        return self.get(name)

    def get_all_entries(self, *, scope: str | None = None) -> list[ToolEntry]:
        """Return all tools."""
        return [entry for _, entry in self.items()]

    def get_schema(self, name: str) -> dict[str, Any] | None:
        """Return the schema as registered, or None."""
        entry = self.get(name)
        return None if entry is None else entry.schema

    def get_all_tool_names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self.names())

    def get_tool_names_for_toolset(self, toolset: str) -> list[str]:
        """Return the sorted names of the tools of a toolset or alias."""
        target = self._aliases.get(toolset, toolset)
        return sorted(name for name, entry in self.items() if entry.toolset == target)

    def get_registered_toolset_names(self) -> list[str]:
        """Return the toolsets that have a tool, sorted."""
        return sorted({entry.toolset for _, entry in self.items()})

    def register_toolset_alias(self, alias: str, toolset: str) -> None:
        """Make `alias` another name of `toolset`."""
        self._aliases[alias] = toolset

    def get_registered_toolset_aliases(self) -> dict[str, str]:
        """Return the aliases with their toolsets."""
        return dict(self._aliases)

    def get_toolset_alias_target(self, alias: str) -> str | None:
        """Return the toolset of `alias`, or None."""
        return self._aliases.get(alias)

    def get_toolset_for_tool(self, name: str) -> str | None:
        """Return the toolset of a tool, or None."""
        entry = self.get(name)
        return None if entry is None else entry.toolset

    def get_tool_to_toolset_map(self) -> dict[str, str]:
        """Return the toolset of each tool."""
        return {name: entry.toolset for name, entry in self.items()}

    def get_emoji(self, name: str, default: str = "⚡") -> str:
        """Return the tool's emoji."""
        entry = self.get(name)
        return (entry.emoji if entry is not None else "") or default

    def get_max_result_size(self, name: str, default: float | None = None) -> float | None:
        """Return the tool's own result limit in characters, or `default`."""
        entry = self.get(name)
        return default if entry is None or entry.max_result_size_chars is None else entry.max_result_size_chars

    def is_usable(self, entry: ToolEntry) -> bool:
        """Return whether the tool's `check_fn` allows it to be shown."""
        if entry.check_fn is None:
            return True
        fault, owner = self._fault, self.owner(entry.name) or ""
        return self.checks.ask(entry.check_fn, None if fault is None else partial(fault, owner))

    def is_toolset_available(self, toolset: str) -> bool:
        """Return whether at least one tool of the toolset may be shown."""
        names = self.get_tool_names_for_toolset(toolset)
        return any(self.is_usable(entry) for name in names if (entry := self.get(name)))

    def check_toolset_requirements(self) -> dict[str, bool]:
        """Return for each toolset whether it is available."""
        return {name: self.is_toolset_available(name) for name in self.get_registered_toolset_names()}

    def get_available_toolsets(self) -> dict[str, dict[str, Any]]:
        """Return `available`, `tools`, `description` and `requirements` (names of variables) of each toolset."""
        return {
            toolset: {
                "available": self.is_toolset_available(toolset),
                "tools": [entry.name for entry in entries],
                "description": "",
                "requirements": _variables(entries),
            }
            for toolset, entries in self._by_toolset().items()
        }

    def get_toolset_requirements(self) -> dict[str, dict[str, Any]]:
        """Return the requirements of each toolset.

        The keys are `name`, `env_vars`, `check_fn` (the first one), `setup_url` (None) and `tools`.
        """
        return {
            toolset: {
                "name": toolset,
                "env_vars": _variables(entries),
                "check_fn": next((entry.check_fn for entry in entries if entry.check_fn is not None), None),
                "setup_url": None,
                "tools": [entry.name for entry in entries],
            }
            for toolset, entries in self._by_toolset().items()
        }

    def check_tool_availability(self, quiet: bool = False) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the usable toolsets, and `name`, `env_vars` and `tools` of each of the others."""
        found = self._by_toolset()
        usable = [toolset for toolset in found if self.is_toolset_available(toolset)]
        others = [
            {"name": toolset, "env_vars": _variables(entries), "tools": [entry.name for entry in entries]}
            for toolset, entries in found.items()
            if toolset not in usable
        ]
        return usable, others

    def _by_toolset(self) -> dict[str, list[ToolEntry]]:
        found: dict[str, list[ToolEntry]] = {name: [] for name in self.get_registered_toolset_names()}
        for _, entry in sorted(self.items()):
            found.setdefault(entry.toolset, []).append(entry)
        return found

    def get_definitions(self, tool_names: Collection[str], quiet: bool = False) -> list[dict[str, Any]]:
        """Return the definitions of the tools that may be shown, sorted by name: `{"type": "function", …}`."""
        usable = {n: entry for n in sorted(tool_names) if (entry := self.get(n)) is not None and self.is_usable(entry)}
        token = shown_tools.set(usable.keys())
        try:
            found = [function_definition(entry) for entry in usable.values()]
            return [{"type": "function", "function": without_missing_tools(f, usable)} for f in found]
        finally:
            shown_tools.reset(token)

    @property
    def _tools(self) -> ToolTable:
        return ToolTable(self)

    def unknown(self, name: str) -> str:
        """Return a sentence that there is no such tool, with the reason if one is known."""
        why = self.why_absent(name)
        return f"Unknown tool: {name}" + (f" ({why})" if why else "")

    # -- running ---------------------------------------------------------------------------------------------

    def on_fault(self, fault: Fault) -> None:
        """Set the callback for checks that fail: `fault(owner, text)`."""
        self._fault = fault

    def connect(self, run: Run) -> None:
        """Set the function that `dispatch` calls; the dispatcher does this once."""
        self._run = run

    def dispatch(self, name: str, args: dict[str, Any], *, scope: str | None = None, **kwargs: Any) -> str:
        """Run the handler of a tool and return its result text; errors become the result (§4.4).

        A registry without a host, which a test of a plugin makes, calls the handler without hooks and approvals. It
        returns a multimodal result as it is.
        """
        if self._run is not None:
            return self._run(name, args, kwargs)
        entry = self.get(name)
        return tool_error(self.unknown(name)) if entry is None else call_without_host(entry, args, kwargs)


def _variables(entries: list[ToolEntry]) -> list[str]:
    """Return the names in `requires_env`, without duplicates."""
    return list(dict.fromkeys(str(name) for entry in entries for name in entry.requires_env))


def _both_mcp(first: ToolEntry, second: ToolEntry) -> bool:
    return first.toolset.startswith("mcp-") and second.toolset.startswith("mcp-")
