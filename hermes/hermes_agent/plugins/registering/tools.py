"""`ctx.register_tool` and `ctx.register_skill`. Source: plugin contract §2.2, §4.2, §6.1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_agent.contracts.owner import Owner
from hermes_agent.contracts.skill import SKILL
from hermes_agent.contracts.tool import TOOL
from hermes_agent.core.registry import Conflict, describe_owner
from hermes_agent.plugins.record import RegistrationProblem
from hermes_agent.plugins.registering.registrant import Registration, add_once
from hermes_agent.tools.names import name_problem

__all__ = ["PluginToolOverrideError", "note_refused_tool", "register_skill", "register_tool"]


class PluginToolOverrideError(PermissionError):
    """A plugin wants to replace a tool and the operator did not allow it."""


def register_tool(
    by: Registration,
    name: str,
    toolset: str | None,
    schema: dict[str, Any] | None,
    handler: Callable[..., Any] | None,
    *,
    override: bool,
    **details: Any,
) -> None:
    """Register a tool; see `PluginContext.register_tool`."""
    if schema is None or handler is None:
        missing = "schema" if schema is None else "handler"
        raise TypeError(f"register_tool({name!r}) needs a {missing}")
    may = by.settings.may_override(by.manifest) or name in by.settings.free_tools
    if override and not may:
        raise PluginToolOverrideError(
            f"Plugin '{by.name}' cannot override built-in tool '{name}'. Set plugins.entries."
            f"{by.key}.allow_tool_override: true in config.yaml to allow this plugin to replace "
            "built-in tools."
        )
    tools = by.services.tools
    tools.register(name, toolset or by.name, schema, handler, override=override, owner=Owner(by.key, may), **details)
    owner = tools.owner(name)
    if owner == by.key:
        add_once(by.record.tools_registered, name)
    else:
        note_refused_tool(by, name, owner or "")


def note_refused_tool(by: Registration, name: str, owner: str) -> None:
    """Note that somebody else has the tool's name, or that it is none (`owner` is empty)."""
    problem = name_problem(name)
    if problem is not None:
        add_once(by.record.problems, RegistrationProblem(TOOL.label, str(name), "", problem, "rename it"))
        return
    remedy = f"let the plugin register it with override=True and set plugins.entries.{by.key}.allow_tool_override: true"
    add_once(
        by.record.problems,
        RegistrationProblem(TOOL.label, name, owner, f"tool `{name}` belongs to {describe_owner(owner)}", remedy),
    )


def register_skill(by: Registration, name: str, path: Path | str, *, description: str) -> None:
    """Register a skill as `plugin:name`."""
    try:
        skill = by.services.plugin_skills.register(name, path, plugin=by.name, owner=by.key, description=description)
    except Conflict as exc:
        by.refused(SKILL.label, exc.name, exc.owner)
        return
    add_once(by.record.skills_registered, skill.qualified)
