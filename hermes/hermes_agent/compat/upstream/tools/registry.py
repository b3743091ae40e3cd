"""The registry of tools: `registry` is the host's own object. Source: plugin contract §4.1, §4.2."""

from typing import TYPE_CHECKING

from hermes_agent.compat.hosting import host
from hermes_agent.contracts.tool import ToolEntry as ToolEntry
from hermes_agent.tools import ToolRegistry as ToolRegistry
from hermes_agent.tools import tool_error as tool_error
from hermes_agent.tools import tool_result as tool_result

if TYPE_CHECKING:
    registry: ToolRegistry


def __getattr__(name: str) -> object:
    if name == "registry":
        return host().tools
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def invalidate_check_fn_cache() -> None:
    """Ask every tool's `check_fn` again next time."""
    host().tools.checks.forget()
