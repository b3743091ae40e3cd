"""Upstream's names of the tools' runtime: how tools are found, how a handler's coroutine is awaited.

Source: plugin contract §4.1, §4.4, §4.7, and the published guide of the tools' runtime.

Upstream's functions behind tools: `tools.terminal_tool`, `tools.web_tools`, `tools.image_generation_tool`,
`tools.process_registry`. Each call has what the model's calls have: hooks, approval, redaction.

Source: plugin contract §4.12, §11.2.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import json
import logging
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_agent.compat.agent import host
from hermes_agent.compat.import_hook import served
from hermes_agent.core.read_only import ReadOnlyDict
from hermes_agent.core.untrusted import TAG, split_marked
from hermes_agent.plugins.tool_access import dispatch_tool
from hermes_agent.tools.results import failure
from hermes_agent.tools.toolsets import LEGACY

if TYPE_CHECKING:
    from hermes_agent.workspace.task_shells import TaskShells

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
    from hermes_agent.mcp.servers import McpServers  # a tool function does not need it

    servers = host().service(McpServers)
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


_directories: dict[str, str] = {}
"""Where a task's shell stood before `register_task_env_overrides`."""


def terminal_tool(
    command: str,
    background: bool = False,
    timeout: int | None = None,
    task_id: str | None = None,
    session_id: str | None = None,
    force: bool = False,
    workdir: str | None = None,
    pty: bool = False,
    notify_on_complete: bool = False,
    watch_patterns: Sequence[str] | None = None,
) -> str:
    """Run a command as the model would, and return the tool's JSON text.

    Args:
        force: upstream skips the approval. Here it has no effect, and the log says so.
    """
    if force:
        logger.warning("terminal_tool(force=True): ignored, the command is checked and may need an approval")
    wanted = {"background": background, "pty": pty, "notify_on_complete": notify_on_complete}
    args = {"command": command, **{name: True for name, on in wanted.items() if on}}
    more = {"timeout": timeout, "workdir": workdir, "watch_patterns": list(watch_patterns or ())}
    return _call("terminal", args | {n: v for n, v in more.items() if v}, task_id=task_id, session_id=session_id)


def _shells() -> TaskShells:
    from hermes_agent.workspace.task_shells import TaskShells  # loaded with the host

    return host().service(TaskShells)


def check_terminal_requirements() -> bool:
    """Say whether commands can run."""
    backend = _shells().backend_or_none
    return backend is not None and not backend.refusal


def register_task_env_overrides(task_id: str, overrides: Mapping[str, Any]) -> None:
    """Have a task's commands begin in `overrides["cwd"]`, until a `cd`.

    Raises:
        TypeError: it names something else: which image a task has is the config's matter (`terminal`).
    """
    strange = sorted(set(overrides) - {"cwd"})
    if strange:
        raise TypeError(f"a task has no {', '.join(strange)} of its own here: the config's block `terminal` has it")
    cwd = overrides.get("cwd")
    if cwd:
        shells = _shells()
        _directories.setdefault(task_id, shells.cwd(task_id) or str(host().working_directory))
        shells.set_cwd(task_id, str(cwd))


def clear_task_env_overrides(task_id: str) -> None:
    """Have a task's commands begin where they did before `register_task_env_overrides`."""
    before = _directories.pop(task_id, "")
    if before:
        _shells().set_cwd(task_id, before)


def cleanup_vm(task_id: str, *, force_remove: bool = False) -> None:
    """Forget a task's shell, and give back what its backend holds for it.

    Args:
        force_remove: upstream keeps some containers without it; here none outlives its task.
    """
    _directories.pop(task_id, None)
    _shells().close(task_id)


def web_search_tool(query: str, limit: int = 5) -> str:
    """Search the web with the configured provider and return the tool's JSON text."""
    return _call("web_search", {"query": query, "limit": limit})


async def web_extract_tool(urls: Sequence[Any], format: str | None = None, char_limit: int | None = None) -> str:
    """Read web pages and return the tool's JSON text.

    Args:
        format: pages come as text; another format is refused.

    Raises:
        ValueError: that format is not there.
    """
    if format not in (None, "markdown", "text"):
        raise ValueError(f"web_extract gives text, not {format!r}")
    addresses = [str(one.get("url") if isinstance(one, Mapping) else one) for one in urls]
    args: dict[str, Any] = {"urls": addresses} | ({"char_limit": char_limit} if char_limit else {})
    return await asyncio.to_thread(_call, "web_extract", args)


def check_web_api_key() -> bool:
    """Say whether a provider can search the web."""
    return _is_usable("web_search")


def image_generate_tool(
    prompt: str,
    aspect_ratio: str = "landscape",
    image_url: str | None = None,
    reference_image_urls: Sequence[str] | None = None,
    **options: Any,
) -> str:
    """Have the configured provider draw a picture and return the tool's JSON text.

    Args:
        options: of upstream's own service (`num_inference_steps`, `seed`, …).

    Raises:
        TypeError: an option is given.
    """
    given = sorted(name for name, value in options.items() if value is not None)
    if given:
        raise TypeError(f"image_generate takes no {', '.join(given)}: the provider's settings stand in the config")
    more = {"image_url": image_url, "reference_image_urls": list(reference_image_urls or ())}
    args = {"prompt": prompt, "aspect_ratio": aspect_ratio} | {n: v for n, v in more.items() if v}
    return _call("image_generate", args)


def check_image_generation_requirements() -> bool:
    """Say whether a provider can draw pictures."""
    return _is_usable("image_generate")


class ProcessRegistry:
    """The background processes of the conversation that this thread works for, or of a task."""

    def list_sessions(self, task_id: str | None = None) -> list[dict[str, Any]]:
        """Return each process: `session_id`, `command`, `status`, …"""
        return list(self._do("list", task_id=task_id).get("processes") or [])

    def has_active_processes(self, task_id: str | None = None) -> bool:
        """Say whether one runs."""
        return any(one.get("status") == "running" for one in self.list_sessions(task_id))

    def count_running(self) -> int:
        """Return how many run."""
        return sum(one.get("status") == "running" for one in self.list_sessions())

    def poll(self, session_id: str) -> dict[str, Any]:
        """Return how a process does, with its new output."""
        return self._do("poll", session_id=session_id)

    def read_log(self, session_id: str, offset: int = 0, limit: int = 200) -> dict[str, Any]:
        """Return lines of a process's output.

        Args:
            offset: the first line, counted from 1; 0 means the last `limit` lines.
        """
        return self._do("log", session_id=session_id, limit=limit, offset=offset or None)

    def wait(self, session_id: str, timeout: int | None = None) -> dict[str, Any]:
        """Wait until a process ends, at most so many seconds."""
        return self._do("wait", session_id=session_id, timeout=timeout)

    def kill_process(self, session_id: str) -> dict[str, Any]:
        """End a process."""
        return self._do("kill", session_id=session_id)

    def write_stdin(self, session_id: str, data: str) -> dict[str, Any]:
        """Give a process input, with an approval where a command would need one."""
        return self._do("write", session_id=session_id, data=data)

    def submit_stdin(self, session_id: str, data: str = "") -> dict[str, Any]:
        """Give a process a line."""
        return self._do("submit", session_id=session_id, data=data)

    def close_stdin(self, session_id: str) -> dict[str, Any]:
        """End a process's input."""
        return self._do("close", session_id=session_id)

    def _do(self, action: str, *, task_id: str | None = None, **args: Any) -> dict[str, Any]:
        return dict(json.loads(_call("process", {"action": action, **_set_arguments(args)}, task_id=task_id)))


process_registry = ProcessRegistry()


def _call(name: str, args: dict[str, Any], **keywords: Any) -> str:
    """Return the result; of one that is untrusted text as a whole, without the marks, which are for the model."""
    result = dispatch_tool(host(), f"tools.{name}", name, args, {n: v for n, v in keywords.items() if v})
    parts = [part for part in split_marked(result) if part.text] if result.startswith(f"<{TAG} ") else []
    return parts[0].text if len(parts) == 1 else result


def _set_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


def _is_usable(name: str) -> bool:
    tools = host().tools
    entry = tools.get(name)
    return entry is not None and tools.is_usable(entry)
