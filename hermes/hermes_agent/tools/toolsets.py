"""Toolsets: named groups of tools, and which of them each platform gets.

Source: plugin contract §4.7, §4.8.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hermes_agent.config.settings import Settings, section
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import BUILTIN, Registry, current_owner, staged_store
from hermes_agent.tools.registry import ToolRegistry

logger = logging.getLogger(__name__)

LEGACY = {
    f"{name}_tools": name for name in ("web", "terminal", "vision", "skills", "browser", "cronjob", "file", "tts")
} | {"image_tools": "image_gen"}
COMPOSITES: dict[str, tuple[str, ...]] = {
    "debugging": ("terminal", "web", "file"),
    "safe": ("web", "vision", "image_gen"),
}
"""Toolsets that consist of others."""
PARTS: dict[str, tuple[str, ...]] = {
    "search": ("web_search",),
    "hermes-webhook": ("web_search", "web_extract", "vision_analyze", "clarify"),
}
"""Toolsets that are a part of others. A webhook brings untrusted text: it gets no tool that acts."""
DEFAULT_OFF = frozenset({"homeassistant", "spotify", "discord", "discord_admin", "video", "video_gen", "x_search"})
"""Toolsets that are offered only where the config names them."""
DEFAULT = ("hermes-cli",)


class ToolsetChoice(LazyNamedTuple):
    """The operator's choice of toolsets."""

    default: tuple[str, ...] = DEFAULT
    """`toolsets`: for platforms without a choice of their own."""
    platforms: Mapping[str, Collection[str]] = {}
    """`platform_toolsets`."""
    known: Mapping[str, Collection[str]] = {}
    """`known_plugin_toolsets`: those that existed when the choice for a platform was saved."""
    disabled: Collection[str] = frozenset()
    """`agent.disabled_toolsets`."""

    @classmethod
    @functools.lru_cache(maxsize=4)  # the same object until the config is read again
    def of(cls, settings: Settings) -> ToolsetChoice:
        """Read the choice from a config."""
        return section(
            cls,
            settings,
            default=settings.toolsets,
            platforms=settings.platform_toolsets,
            known=settings.known_plugin_toolsets,
            disabled=settings.agent.disabled_toolsets,
        )

    def for_platform(self, platform: str) -> tuple[str, ...]:
        """Return the toolsets that are named for a platform."""
        own = self.platforms.get(platform)
        if own is not None:
            return tuple(own)
        return self.default if self.default != DEFAULT else (f"hermes-{platform}",)


class Toolsets:
    """The toolsets of a registry.

    Args:
        selection: returns the current choice of the operator.
        servers: returns the names of the MCP servers of the config; their tools arrive later.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        selection: Callable[[], ToolsetChoice] = ToolsetChoice,
        servers: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._registry = registry
        self._servers = servers
        self._selection = selection
        self.custom: Registry[dict[str, Any]] = Registry("toolset")
        """Toolsets that plugins or operators created, by owner; one of the host's stores."""
        self._offered: dict[tuple[str, tuple[str, ...] | None], tuple[object, dict[str, str]]] = {}

    # -- what a name stands for ----------------------------------------------------------------------------------

    def resolve(self, name: str, visited: set[str] | None = None) -> list[str]:
        """Return the names of a toolset's registered tools, sorted; none for an unknown toolset.

        Args:
            visited: toolsets that led to this one.
        """
        seen = visited if visited is not None else set()
        name = LEGACY.get(name, name)
        if name in seen:
            return []
        seen.add(name)
        registry = self._registry
        if name in ("all", "*"):
            return list(registry.get_all_tool_names())
        if name in PARTS:
            return sorted(tool for tool in PARTS[name] if registry.get(tool) is not None)
        if name.startswith("hermes-"):
            bundle = {*(self._own() - DEFAULT_OFF), name.removeprefix("hermes-")}
            return sorted(tool for tool, entry in registry.items() if entry.toolset in bundle)
        custom = staged_store(self.custom).get(name) or {}
        tools = registry.get_tool_names_for_toolset(name) or registry.get_tool_names_for_toolset(f"mcp-{name}")
        found = {*tools, *custom.get("tools", ())}
        for part in (*COMPOSITES.get(name, ()), *custom.get("includes", ())):
            found.update(self.resolve(part, seen))
        return sorted(found)

    def resolve_all(self, names: Iterable[str]) -> set[str]:
        """Return the tools of several toolsets."""
        return {tool for name in names for tool in self.resolve(name)}

    def get(self, name: str) -> dict[str, Any] | None:
        """Return `description`, `tools` and `includes` of a toolset, or None for an unknown one."""
        name = LEGACY.get(name, name)
        custom = staged_store(self.custom).get(name)
        if custom is not None:
            members = dict.fromkeys((*custom["tools"], *self._registry.get_tool_names_for_toolset(name)))
            return {**custom, "tools": list(members), "includes": list(custom["includes"])}
        if name in COMPOSITES:
            parts = COMPOSITES[name]
            return {"description": f"Toolsets {', '.join(parts)}", "tools": [], "includes": list(parts)}
        is_bundle = name in PARTS or name.startswith("hermes-")
        tools = self.resolve(name) if is_bundle else self._registry.get_tool_names_for_toolset(name)
        if not tools:
            return None
        own = is_bundle or self._registry.owner(tools[0]) == BUILTIN
        text = (
            f"MCP server '{name.removeprefix('mcp-')}' tools" if name.startswith("mcp-") else f"Plugin toolset: {name}"
        )
        return {"description": f"Toolset {name}" if own else text, "tools": list(tools), "includes": []}

    def names(self) -> list[str]:
        """Return the names of all toolsets, sorted."""
        return sorted({*self._registry.get_registered_toolset_names(), *COMPOSITES, *PARTS, *staged_store(self.custom)})

    def exists(self, name: str) -> bool:
        """Return whether there is such a toolset."""
        return (
            name in ("all", "*", "no_mcp")
            or name.startswith("hermes-")
            or name.removeprefix("mcp-") in self._servers()
            or bool(self.resolve(name))
            or self.get(name) is not None
        )

    def create(self, name: str, description: str, tools: Iterable[str] = (), includes: Iterable[str] = ()) -> None:
        """Create a toolset from tools and other toolsets, for this process."""
        toolset = {"description": description, "tools": list(tools), "includes": list(includes)}
        staged_store(self.custom).add(name, toolset, owner=current_owner().key, replace=True)

    def replace(self, name: str, description: str, tools: Iterable[str], includes: Iterable[str]) -> None:
        """Create a toolset, also in place of an existing one.

        Raises:
            TypeError: a tool or toolset that belongs to it is missing.
        """
        tools, includes = list(dict.fromkeys(tools)), list(dict.fromkeys(includes))
        missing = [each for each in self._toolset_tools(name) if each not in (*tools, *includes)]
        if missing:
            raise TypeError(
                f"toolset {name!r} cannot be without {', '.join(missing)}: a tool is in the toolset that it is"
                " registered in. The operator takes toolsets away with agent.disabled_toolsets in config.yaml"
            )
        self.create(name, description, tools, includes)

    def remove(self, name: str) -> None:
        """Remove a toolset that was created.

        Raises:
            TypeError: tools are registered in it.
        """
        self.replace(name, "", (), ())
        staged_store(self.custom).remove(name)

    def _toolset_tools(self, name: str) -> list[str]:
        """Return what belongs to a toolset, whatever toolsets of this name were created."""
        return [*self._registry.get_tool_names_for_toolset(name), *PARTS.get(name, ()), *COMPOSITES.get(name, ())]

    # -- what a platform is offered ------------------------------------------------------------------------------

    def offered_tools(self, platform: str, wanted: Collection[str] | None = None) -> list[str]:
        """Return the tools that models of a platform may get, sorted.

        Args:
            wanted: toolsets that a task is limited to; disabled ones stay disabled.
        """
        return [name for name, why in self._judged(platform, wanted).items() if not why]

    def named_tools(self, platform: str, wanted: Collection[str] | None = None) -> frozenset[str]:
        """Return the tools of the toolsets that the operator or a task named individually, without bundles."""
        chosen = self._selection().for_platform(platform) if wanted is None else wanted
        single = [name for name in chosen if name not in ("all", "*") and not name.startswith("hermes-")]
        return frozenset(self.resolve_all(single))

    def why_hidden(self, tool: str, platform: str) -> str:
        """Return why a registered tool is not offered on a platform; empty if it is."""
        return self._judged(platform, None).get(tool, "it is not registered")

    def _judged(self, platform: str, wanted: Collection[str] | None) -> dict[str, str]:
        """Return for each tool why it is hidden, by the current registry and config."""
        selection = self._selection()
        state = (self._registry._generation, selection, self.custom.snapshot(), tuple(self._servers()))
        key = (platform, None if wanted is None else tuple(wanted))
        known = self._offered.get(key)
        if known is not None and known[0] == state:
            return known[1]
        judged = self._judge(platform, wanted, selection)
        if len(self._offered) > 64:
            self._offered.clear()
        self._offered[key] = (state, judged)
        return judged

    def _judge(self, platform: str, wanted: Collection[str] | None, selection: ToolsetChoice) -> dict[str, str]:
        registry = self._registry
        named = selection.for_platform(platform) if wanted is None else tuple(wanted)
        for name in named:
            if not self.exists(name):
                logger.warning("there is no toolset `%s`, which is named for %s", name, platform)
        off = self._disabled(selection.disabled)
        chosen = self.resolve_all(named)
        mcp = {entry.toolset for _, entry in registry.items() if entry.toolset.startswith("mcp-")}
        mcp.update(f"mcp-{name}" for name in self._servers())
        asked_mcp = mcp & {name if name in mcp else f"mcp-{name}" for name in named}
        known = selection.known.get(platform, ())
        own = self._own()

        def why(name: str, toolset: str) -> str:
            if name in off:
                return f"its toolset `{toolset}` is in agent.disabled_toolsets"
            if name in chosen:
                return ""
            if wanted is not None:
                return f"the task is limited to {', '.join(named) or 'no toolset'}"
            if toolset in mcp:
                return "the platform leaves MCP servers out" if "no_mcp" in named or asked_mcp else ""
            if toolset not in own and toolset not in DEFAULT_OFF and toolset not in known:
                return ""
            return f"its toolset `{toolset}` is not among those of {platform} (platform_toolsets)"

        return {name: why(name, entry.toolset) for name, entry in sorted(registry.items())}

    def _own(self) -> set[str]:
        """Return the built-in toolsets; what plugins add to one belongs to it."""
        return {entry.toolset for name, entry in self._registry.items() if self._registry.owner(name) == BUILTIN}

    def _disabled(self, names: Collection[str]) -> set[str]:
        """Return the tools of disabled toolsets; a platform's bundle stands for its own tools alone."""
        return self.resolve_all(name.removeprefix("hermes-") for name in names)
