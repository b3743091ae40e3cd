"""The tools that the model is told of. Source: plugin contract §4.7."""

from hermes_agent.compat.tool_lists import get_tool_definitions as get_tool_definitions
from hermes_agent.compat.tool_lists import handle_function_call as handle_function_call
