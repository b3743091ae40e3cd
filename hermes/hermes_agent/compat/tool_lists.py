"""Upstream's `model_tools` and `toolsets` over the host's registry. Source: plugin contract §4.7, §4.8, §11.2."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from hermes_agent.compat.hosting import host, of_host
from hermes_agent.core.ids import new_id
from hermes_agent.core.tool_schemas import OPENAI, adapt_schema
from hermes_agent.plugins.dispatching import dispatch_tool
from hermes_agent.tools import ToolRegistry
from hermes_agent.tools.toolsets import Toolsets
from hermes_agent.tools.visibility import CheckCache

__all__ = [
    "create_custom_toolset",
    "get_all_toolsets",
    "get_tool_definitions",
    "get_toolset",
    "get_toolset_info",
    "get_toolset_names",
    "handle_function_call",
    "invalidate_check_fn_cache",
    "resolve_multiple_toolsets",
    "resolve_toolset",
    "tool_registry",
    "validate_toolset",
]

logger = logging.getLogger(__name__)

invalidate_check_fn_cache = of_host(lambda host: host.tools.checks, CheckCache.forget)
resolve_toolset = of_host(lambda host: host.toolsets, Toolsets.resolve)
get_toolset = of_host(lambda host: host.toolsets, Toolsets.get)
get_toolset_names = of_host(lambda host: host.toolsets, Toolsets.names)
validate_toolset = of_host(lambda host: host.toolsets, Toolsets.exists)


def tool_registry() -> ToolRegistry:
    """Return the host's own registry: what is patched on it is patched for the agent."""
    return host().tools


def create_custom_toolset(
    name: str, description: str, tools: list[str] | None = None, includes: list[str] | None = None
) -> None:
    """Give a list of tools and toolsets a name, for this process."""
    host().toolsets.create(name, description, tools or (), includes or ())


def resolve_multiple_toolsets(names: Iterable[str]) -> list[str]:
    """Return the tools of several toolsets, sorted."""
    return sorted(host().toolsets.resolve_all(names))


def get_all_toolsets() -> dict[str, dict[str, Any]]:
    """Return every toolset by name."""
    return {name: found for name in get_toolset_names() if (found := get_toolset(name)) is not None}


def get_toolset_info(name: str) -> dict[str, Any] | None:
    """Return what `get_toolset` does, with `name`, `resolved_tools`, `tool_count` and `is_composite`."""
    found = get_toolset(name)
    if found is None:
        return None
    resolved = resolve_toolset(name)
    more = {"name": name, "resolved_tools": resolved, "tool_count": len(resolved)}
    return found | more | {"is_composite": bool(found["includes"])}


def get_tool_definitions(
    enabled_toolsets: list[str] | None = None,
    disabled_toolsets: list[str] | None = None,
    quiet_mode: bool = False,
    skip_tool_search_assembly: bool = False,
) -> list[dict[str, Any]]:
    """Return what the model is told of the tools: `{"type": "function", "function": {…}}`, sorted by name.

    Args:
        enabled_toolsets: None means all.
        quiet_mode: say nothing of an unknown name.
        skip_tool_search_assembly: return every definition, however many there are.
    """
    asked = (*(enabled_toolsets or ()), *(disabled_toolsets or ()))
    for name in () if quiet_mode else asked:
        if not validate_toolset(name):
            logger.warning("there is no toolset %r", name)
    names = set(resolve_toolset("all") if enabled_toolsets is None else resolve_multiple_toolsets(enabled_toolsets))
    names -= set(resolve_multiple_toolsets(disabled_toolsets or ()))
    found = host().tools.get_definitions(names, quiet=quiet_mode)
    search = host().agent.search
    if search is not None and not skip_tool_search_assembly:
        found = search.split(found, named=resolve_multiple_toolsets(enabled_toolsets or ()))[0]
    functions = [d.get("function", d) for d in found]
    return [
        {"type": "function", "function": {**f, "parameters": adapt_schema(f.get("parameters"), OPENAI)}}
        for f in functions
    ]


def handle_function_call(
    function_name: str,
    function_args: dict[str, Any],
    task_id: str | None = None,
    tool_call_id: str | None = None,
    session_id: str | None = None,
    turn_id: str | None = None,
    api_request_id: str | None = None,
    user_task: str | None = None,
    **kwargs: Any,
) -> str:
    """Call a tool as the model would and return its result; errors are results, too.

    Outside a conversation hooks are told the ids that are given here.

    Args:
        kwargs: for the handler.
    """
    kwargs["task_id"] = task_id or new_id("task")
    if session_id:
        kwargs["session_id"] = session_id
    if turn_id:
        kwargs["turn_id"] = turn_id
    if api_request_id:
        kwargs["api_request_id"] = api_request_id
    if user_task:
        kwargs["user_task"] = user_task
    return dispatch_tool(host(), "model_tools", function_name, function_args, kwargs, tool_call_id or "")
