"""Upstream's functions that discover tools, await their coroutines, and call the built-in tools.

The tool functions are those of upstream's `tools/terminal_tool.py`, `tools/web_tools.py`,
`tools/image_generation_tool.py` and `tools/process_registry.py`. A call through them is treated like a call of the
model: with hooks, approval and redaction. `MemoryStore` is that of `tools/memory_tool.py`. Source: plugin contract
§4.1, §4.4, §4.7, §4.12, §11.2, and upstream's published guide of the tool runtime.
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
from hermes_agent.compat.constants import ENTRY_DELIMITER
from hermes_agent.compat.environment import get_memory_dir
from hermes_agent.compat.import_hook import served
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.read_only import ReadOnlyDict
from hermes_agent.core.untrusted import TAG, split_marked
from hermes_agent.memory.notes import NoteChange, Notes
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
"""Upstream's tool modules that are served, each with the built-in tool that implements it."""
NOT_TOOLS = frozenset({"__init__.py", "registry.py", "mcp_tool.py"})
RUN_LIMIT_S = 300.0
MCP_LIMIT_S = 60.0


def discover_builtin_tools(tools_dir: Path | str | None = None) -> list[str]:
    """Import the modules that register a tool on import, and return their names.

    Args:
        tools_dir: a folder; its modules that call `registry.register(…)` at top level are imported as `tools.<name>`.
            None means the built-in tools that are registered with the host.
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
        except Exception as exc:  # noqa: BLE001 - plugin code; the other modules are still imported
            logger.warning("Could not import tool module %s (%s): %r", name, path, exc)
    return found


def registers_tools(module_path: Path) -> bool:
    """Return whether a module calls `registry.register(…)` at top level; False if it cannot be parsed."""
    try:
        body = ast.parse(module_path.read_text(encoding="utf-8"), filename=str(module_path)).body
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
    """Connect to the configured MCP servers, wait up to 60 s, and return the names of all their tools."""
    from hermes_agent.mcp.servers import McpServers  # a tool function does not need it

    servers = host().service(McpServers)
    servers.wait_connected(MCP_LIMIT_S)
    return sorted(name for status in servers.status() for name in status.tools)


def run_async(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result or raise its error.

    Callable from any thread but that of the core loop. The coroutine runs on the event loop of plugin code, which
    lives as long as the process, so clients that it keeps stay usable. If that loop waits for this call, the coroutine
    runs on a temporary loop.

    Raises:
        TimeoutError: it did not end within 300 s and was cancelled.
    """
    return host().bridge.wait_plugin(coro, deadline_s=RUN_LIMIT_S)


def legacy_toolsets() -> dict[str, list[str]]:
    """Return the registered tools of toolsets by upstream's older names (`web_tools`, …)."""
    found = {name: host().toolsets.resolve(name) for name in LEGACY}
    return ReadOnlyDict(found, "toolsets.TOOLSETS[name] = {…} makes a toolset")


def sanitised_error(error_msg: str) -> str:
    """Return an error as the model sees it: without text that looks like a role or a fence."""
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
"""The working directory of a task's shell before `register_task_env_overrides`."""


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
    """Run a command with the tool `terminal` and return its JSON result.

    Args:
        timeout: seconds.
        force: upstream skips the approval; here it is ignored with a warning in the log.
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
    """Return whether a backend is available."""
    backend = _shells().backend_or_none
    return backend is not None and not backend.refusal


def register_task_env_overrides(task_id: str, overrides: Mapping[str, Any]) -> None:
    """Set the working directory of a task's shell to `overrides["cwd"]`.

    Raises:
        TypeError: there is another key; images and other settings of a backend are set in the config (`terminal`).
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
    """Restore the working directory from before `register_task_env_overrides`."""
    before = _directories.pop(task_id, "")
    if before:
        _shells().set_cwd(task_id, before)


def cleanup_vm(task_id: str, *, force_remove: bool = False) -> None:
    """Close a task's shell and release what its backend holds for it.

    Args:
        force_remove: ignored; upstream keeps some containers without it, here every container ends with its task.
    """
    _directories.pop(task_id, None)
    _shells().close(task_id)


def web_search_tool(query: str, limit: int = 5) -> str:
    """Search the web with the configured provider and return the tool's JSON result."""
    return _call("web_search", {"query": query, "limit": limit})


async def web_extract_tool(urls: Sequence[Any], format: str | None = None, char_limit: int | None = None) -> str:
    """Read web pages and return the tool's JSON result.

    Args:
        format: None, `markdown` or `text`.

    Raises:
        ValueError: another format is requested.
    """
    if format not in (None, "markdown", "text"):
        raise ValueError(f"web_extract gives text, not {format!r}")
    addresses = [str(one.get("url") if isinstance(one, Mapping) else one) for one in urls]
    args: dict[str, Any] = {"urls": addresses} | ({"char_limit": char_limit} if char_limit else {})
    return await asyncio.to_thread(_call, "web_extract", args)


def check_web_api_key() -> bool:
    """Return whether the tool `web_search` is usable."""
    return is_usable("web_search")


def image_generate_tool(
    prompt: str,
    aspect_ratio: str = "landscape",
    image_url: str | None = None,
    reference_image_urls: Sequence[str] | None = None,
    **options: Any,
) -> str:
    """Generate an image with the configured provider and return the tool's JSON result.

    Args:
        options: options of upstream's own service, such as `seed`; only None is accepted.

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
    """Return whether the tool `image_generate` is usable."""
    return is_usable("image_generate")


class ProcessRegistry:
    """The background processes of the current conversation or of a task."""

    def list_sessions(self, task_id: str | None = None, session_key: str | None = None) -> list[dict[str, Any]]:
        """Return the processes, each with `session_id`, `command`, `status` and more.

        Args:
            session_key: accepted and ignored: the processes are always those of one conversation.
        """
        return list(self._do("list", task_id=task_id).get("processes") or [])

    def has_active_processes(self, task_id: str | None = None) -> bool:
        """Return whether a process is running."""
        return any(one.get("status") == "running" for one in self.list_sessions(task_id))

    def count_running(self) -> int:
        """Return the number of running processes."""
        return sum(one.get("status") == "running" for one in self.list_sessions())

    def poll(self, session_id: str) -> dict[str, Any]:
        """Return the status of a process and its new output."""
        return self._do("poll", session_id=session_id)

    def read_log(self, session_id: str, offset: int = 0, limit: int = 200) -> dict[str, Any]:
        """Return lines of a process's output.

        Args:
            offset: the first line, counted from 1; 0 means the last `limit` lines.
        """
        return self._do("log", session_id=session_id, limit=limit, offset=offset or None)

    def wait(self, session_id: str, timeout: int | None = None) -> dict[str, Any]:
        """Wait until a process ends, at most `timeout` seconds."""
        return self._do("wait", session_id=session_id, timeout=timeout)

    def kill_process(self, session_id: str, *, source: str = "", consume_output: bool = False) -> dict[str, Any]:
        """End a process.

        Args:
            source: accepted and ignored, like `consume_output`.
        """
        return self._do("kill", session_id=session_id)

    def write_stdin(self, session_id: str, data: str) -> dict[str, Any]:
        """Write to a process's input; needs an approval if a command would."""
        return self._do("write", session_id=session_id, data=data)

    def submit_stdin(self, session_id: str, data: str = "") -> dict[str, Any]:
        """Write a line to a process's input."""
        return self._do("submit", session_id=session_id, data=data)

    def close_stdin(self, session_id: str) -> dict[str, Any]:
        """Close a process's input."""
        return self._do("close", session_id=session_id)

    def _do(self, action: str, *, task_id: str | None = None, **args: Any) -> dict[str, Any]:
        return dict(json.loads(_call("process", {"action": action, **_set_arguments(args)}, task_id=task_id)))


process_registry = ProcessRegistry()


class MemoryStore:
    """The notes of the home's owner, for plugins that extend upstream's class.

    The tool `memory` does not use it. A change is checked and written like one of the tool. Every target but `user`
    means `memory`. What changes notes returns `success`, and `usage`, `entry_count` and `message`, or `error` and
    `current_entries`.

    Args:
        memory_char_limit: the longest text of `MEMORY.md`, in characters.
        user_char_limit: that of `USER.md`.
    """

    def __init__(self, memory_char_limit: int = 2200, user_char_limit: int = 1375) -> None:
        self.memory_char_limit, self.user_char_limit = memory_char_limit, user_char_limit
        self.memory_entries: list[str] = []
        self.user_entries: list[str] = []
        self._system_prompt_snapshot = {"memory": "", "user": ""}

    def load_from_disk(self) -> None:
        """Read both files. What `format_for_system_prompt` returns changes only here."""
        notes = self._notes()
        for target in self._system_prompt_snapshot:
            self._set_entries(target, notes.entries(target))
            section, _ = Notes(get_memory_dir(), {target: self._char_limit(target)}).block()
            self._system_prompt_snapshot[target] = section

    def save_to_disk(self, target: str) -> None:
        """Write the entries that are in this object, whatever stands in the file."""
        self._notes().write(_file_of(target), self._entries_for(target))

    def add(self, target: str, content: str) -> dict[str, Any]:
        """Add an entry, unless it is there."""
        return self._change(target, [{"action": "add", "content": content}], "Entry added.")

    def replace(self, target: str, old_text: str, new_content: str) -> dict[str, Any]:
        """Replace the one entry that has `old_text`."""
        change = {"action": "replace", "content": new_content, "old_text": old_text}
        return self._change(target, [change], "Entry replaced.")

    def remove(self, target: str, old_text: str) -> dict[str, Any]:
        """Remove the one entry that has `old_text`."""
        return self._change(target, [{"action": "remove", "old_text": old_text}], "Entry removed.")

    def apply_batch(self, target: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        """Make all changes or none: mappings with `action`, `content` and `old_text`."""
        if not operations:
            return {"success": False, "error": "operations is empty: give at least one change"}
        return self._change(target, operations, f"{len(operations)} changes made.")

    def format_for_system_prompt(self, target: str) -> str | None:
        """Return the section of the system prompt as of the last `load_from_disk`; None if it has no entries."""
        return self._system_prompt_snapshot[_file_of(target)] or None

    def reset_consolidation_failures(self) -> None:
        """Do nothing: no failed changes are counted here."""

    def _change(self, target: str, operations: Sequence[Mapping[str, Any]], message: str) -> dict[str, Any]:
        notes, file = self._notes(), _file_of(target)
        try:
            entries = notes.change(file, [NoteChange.from_arguments(operation) for operation in operations])
        except ToolFailed as exc:
            entries = notes.entries(file)
            self._set_entries(target, entries)
            usage = f"{self._char_count(target):,}/{self._char_limit(target):,}"
            return {"success": False, "error": str(exc), "current_entries": entries, "usage": usage}
        self._set_entries(target, entries)
        about = {"usage": notes.usage(file, entries), "entry_count": len(entries), "message": message}
        return {"success": True, "done": True, "target": target, **about}

    def _notes(self) -> Notes:
        return Notes(get_memory_dir(), {target: self._char_limit(target) for target in self._system_prompt_snapshot})

    def _entries_for(self, target: str) -> list[str]:
        return self.user_entries if target == "user" else self.memory_entries

    def _set_entries(self, target: str, entries: list[str]) -> None:
        if target == "user":
            self.user_entries = entries
        else:
            self.memory_entries = entries

    def _char_count(self, target: str) -> int:
        return len(ENTRY_DELIMITER.join(self._entries_for(target)))

    def _char_limit(self, target: str) -> int:
        return self.user_char_limit if target == "user" else self.memory_char_limit


def _file_of(target: str) -> str:
    return "user" if target == "user" else "memory"


def _call(name: str, args: dict[str, Any], **keywords: Any) -> str:
    """Call a tool and return its result; if all of it is untrusted text, without the marks for the model."""
    result = dispatch_tool(host(), f"tools.{name}", name, args, {n: v for n, v in keywords.items() if v})
    parts = [part for part in split_marked(result) if part.text] if result.startswith(f"<{TAG} ") else []
    return parts[0].text if len(parts) == 1 else result


def _set_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


def is_usable(name: str) -> bool:
    """Return whether a tool is registered and its check succeeds."""
    tools = host().tools
    entry = tools.get(name)
    return entry is not None and tools.is_usable(entry)
