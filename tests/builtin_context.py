"""The context of built-in features over a tool registry without a host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hermes_agent.commands import CommandTable
from hermes_agent.host.features import BuiltinContext
from hermes_agent.tools import ToolRegistry


def context_of(tools: ToolRegistry) -> BuiltinContext:
    """Return a context that registers tools in `tools`, and slash commands in a table of its own."""
    services = cast(Any, SimpleNamespace(tools=tools, commands=CommandTable()))
    return BuiltinContext(services, cast(Any, None))
