"""Tools by toolset. Source: plugin contract §4.8."""

from hermes_agent.compat.tool_lists import create_custom_toolset as create_custom_toolset
from hermes_agent.compat.tool_lists import get_all_toolsets as get_all_toolsets
from hermes_agent.compat.tool_lists import get_toolset as get_toolset
from hermes_agent.compat.tool_lists import get_toolset_info as get_toolset_info
from hermes_agent.compat.tool_lists import get_toolset_names as get_toolset_names
from hermes_agent.compat.tool_lists import resolve_multiple_toolsets as resolve_multiple_toolsets
from hermes_agent.compat.tool_lists import resolve_toolset as resolve_toolset
from hermes_agent.compat.tool_lists import validate_toolset as validate_toolset


def __getattr__(name: str) -> object:
    if name == "TOOLSETS":
        return get_all_toolsets()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
