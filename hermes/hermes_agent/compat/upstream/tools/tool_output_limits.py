"""How much a tool may return: `tool_output` in the config. Source: plugin contract §4.10, §12.3."""

from hermes_agent.compat.output_limits import get_max_bytes as get_max_bytes
from hermes_agent.compat.output_limits import get_max_line_length as get_max_line_length
from hermes_agent.compat.output_limits import get_max_lines as get_max_lines
