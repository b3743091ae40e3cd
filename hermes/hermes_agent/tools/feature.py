"""The slash commands `/tools` and `/proposals`, and the proposals of the home."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from hermes_agent.contracts.command import FOR_OPERATORS, SlashCommand
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.errors import CommandFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.tools import proposals
from hermes_agent.tools.call_scope import current_scope
from hermes_agent.tools.proposals import Proposals
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.toolsets import Toolsets


class ToolsCommandDeps(LazyNamedTuple):
    """Services of the commands."""

    home: Path
    tools: ToolRegistry
    toolsets: Toolsets


class ToolsCommandServices(LazyNamedTuple):
    """Services that the feature provides."""

    proposals: Proposals


def register(ctx: Registrar, deps: ToolsCommandDeps) -> ToolsCommandServices:
    """Register the commands and return the proposals."""
    found = Proposals(deps.home)
    ctx.register_slash_command(
        SlashCommand(
            "proposals",
            partial(proposals.answer, found),
            "List changes that the agent proposes, and accept or reject one",
            "[show|accept|reject ID]",
            where=FOR_OPERATORS,
            right="known",
            argument_mode="mixed",
            values=("show", "accept", "reject"),
        )
    )
    run = partial(_tools, deps.tools, deps.toolsets)
    ctx.register_slash_command(
        SlashCommand("tools", run, "List what the agent can use here", "[NAME]", where=FOR_OPERATORS)
    )
    return ToolsCommandServices(found)


def _tools(tools: ToolRegistry, toolsets: Toolsets, raw_args: str) -> str:
    scope = current_scope.get()
    platform = "cli" if scope is None else scope.platform
    name = raw_args.strip()
    entry = tools.get(name) if name else None
    if entry is not None:
        hidden = toolsets.why_hidden(name, platform)
        return f"{name} ({entry.toolset}): {entry.description}" + (f"\nNot offered here: {hidden}." if hidden else "")
    if name:
        raise CommandFailed(f"There is no tool `{name}`; /tools lists those that there are.")
    found: dict[str, list[str]] = {}
    for definition in tools.get_definitions(toolsets.offered_tools(platform)):
        tool = definition["function"]["name"]
        found.setdefault(tools.get_toolset_for_tool(tool) or "", []).append(tool)
    return "\n".join(f"{toolset}: {', '.join(names)}" for toolset, names in sorted(found.items())) or "No tools."
