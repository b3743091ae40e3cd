"""How much a tool may return: `tool_output` in the config. Source: plugin contract §4.10, §12.3."""

from __future__ import annotations

from hermes_agent.compat.settings import load_config_readonly

__all__ = ["get_max_bytes", "get_max_line_length", "get_max_lines"]


def get_max_bytes() -> int:
    """Return the most bytes of a command's output that the model sees."""
    return _limit("max_bytes", 50_000)


def get_max_lines() -> int:
    """Return the most lines of a file that the model sees at once."""
    return _limit("max_lines", 2_000)


def get_max_line_length() -> int:
    """Return the most characters of a line that the model sees."""
    return _limit("max_line_length", 2_000)


def _limit(name: str, default: int) -> int:
    value = (load_config_readonly().get("tool_output") or {}).get(name)
    return value if isinstance(value, int) and value > 0 else default
