"""Tools: the registry, the definitions that a model gets, and the dispatch of one call."""

from hermes_agent.tools.call_scope import CallScope, current_scope, use_scope
from hermes_agent.tools.dispatch import Dispatcher, ToolOutcome
from hermes_agent.tools.registry import RejectedTool, ToolRegistry, shown_tools, tool_schema
from hermes_agent.tools.results import tool_error, tool_result

__all__ = [
    "CallScope",
    "Dispatcher",
    "ToolOutcome",
    "RejectedTool",
    "ToolRegistry",
    "current_scope",
    "shown_tools",
    "tool_error",
    "tool_result",
    "tool_schema",
    "use_scope",
]
