"""Upstream's names of the tools' runtime: how tools are found, how a handler's coroutine is awaited.

Source: plugin contract §4.1, §4.4, §4.7, and the published guide of the tools' runtime.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import logging
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hermes_agent.compat.hosting import host
from hermes_agent.compat.import_hook import served
from hermes_agent.core.read_only import ReadOnlyDict
from hermes_agent.tools.results import failure
from hermes_agent.tools.toolsets import LEGACY

__all__ = [
    "BUILTIN_MODULES",
    "discover_builtin_tools",
    "discover_mcp_tools",
    "legacy_toolsets",
    "registers_tools",
    "run_async",
    "sanitised_error",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

BUILTIN_MODULES = {
    "tools.image_generation_tool": "image_generate",
    "tools.memory_tool": "memory",
    "tools.process_registry": "process",
    "tools.skills_tool": "skill_view",
    "tools.terminal_tool": "terminal",
    "tools.tts_tool": "text_to_speech",
    "tools.vision_tools": "vision_analyze",
    "tools.web_tools": "web_search",
}
"""Upstream's modules of tools that are served, each with the tool of the agent that stands behind it."""
NOT_TOOLS = frozenset({"__init__.py", "registry.py", "mcp_tool.py"})
RUN_LIMIT_S = 300.0
MCP_LIMIT_S = 60.0


def discover_builtin_tools(tools_dir: Path | str | None = None) -> list[str]:
    """Import the modules that register a tool when they are imported, and return their names.

    Args:
        tools_dir: a folder whose modules are imported as `tools.<name>`, those that call `registry.register(…)` at
            their top level. Without one: those of the agent, whose tools are registered with the host.
    """
    if tools_dir is None:
        names = [module for module, tool in BUILTIN_MODULES.items() if host().tools.get(tool) is not None]
        for name in names:
            importlib.import_module(name)
        return names
    found = []
    for path in sorted(Path(tools_dir).glob("*.py")):
        if path.name in NOT_TOOLS or not registers_tools(path):
            continue
        name = f"tools.{path.stem}"
        try:
            _import(name, path)
            found.append(name)
        except Exception as exc:  # noqa: BLE001 - code of a plugin; the other modules are imported all the same
            logger.warning("Could not import tool module %s (%s): %r", name, path, exc)
    return found


def registers_tools(path: Path) -> bool:
    """Say whether a module calls `registry.register(…)` at its top level; one that cannot be read does not."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8"), filename=str(path)).body
    except (OSError, SyntaxError, ValueError):
        return False
    calls = (each.value.func for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call))
    return any(
        isinstance(call, ast.Attribute)
        and call.attr == "register"
        and isinstance(call.value, ast.Name)
        and call.value.id == "registry"
        for call in calls
    )


def discover_mcp_tools() -> list[str]:
    """Connect to the MCP servers of the config that are not connected, and return the names of all their tools."""
    servers = host().mcp
    servers.wait_connected(MCP_LIMIT_S)
    return sorted(name for status in servers.status() for name in status.tools)


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, from any thread, and return its result; what it raises is raised.

    It runs on the loop of all plugin code, which lasts: a client that it keeps can be used again. Where that loop
    waits for this call, it gets one of its own.

    Raises:
        TimeoutError: it was not done after 300 s, and is cancelled.
    """
    return host().bridge.wait_plugin(coroutine, deadline_s=RUN_LIMIT_S)


def legacy_toolsets() -> dict[str, list[str]]:
    """Return the tools of toolsets by their older names (`web_tools`), as they are registered now."""
    found = {name: host().toolsets.resolve(name) for name in LEGACY}
    return ReadOnlyDict(found, "toolsets.TOOLSETS[name] = {…} makes a toolset")


def sanitised_error(error_msg: str) -> str:
    """Return an error as the model is shown it: without what could be taken for a role or a fence."""
    return str(json.loads(failure(error_msg))["error"])


def _import(name: str, path: Path) -> None:
    if name in sys.modules or name in served():
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
