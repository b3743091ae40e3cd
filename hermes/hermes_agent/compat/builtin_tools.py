"""Upstream's functions behind tools: `tools.terminal_tool`, `tools.web_tools`, `tools.image_generation_tool`,
`tools.process_registry`. Each call has what the model's calls have: hooks, approval, redaction.

Source: plugin contract §4.12, §11.2.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.core.foreign import TAG, split_marked
from hermes_agent.plugins.dispatching import dispatch_tool

__all__ = [
    "ProcessRegistry",
    "check_image_generation_requirements",
    "check_terminal_requirements",
    "check_web_api_key",
    "cleanup_vm",
    "clear_task_env_overrides",
    "image_generate_tool",
    "process_registry",
    "register_task_env_overrides",
    "terminal_tool",
    "web_extract_tool",
    "web_search_tool",
]

logger = logging.getLogger(__name__)

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


def check_terminal_requirements() -> bool:
    """Say whether commands can run."""
    backend = host().shells.backend_or_none
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
        shells = host().shells
        _directories.setdefault(task_id, shells.cwd(task_id) or str(host().working_directory))
        shells.set_cwd(task_id, str(cwd))


def clear_task_env_overrides(task_id: str) -> None:
    """Have a task's commands begin where they did before `register_task_env_overrides`."""
    before = _directories.pop(task_id, "")
    if before:
        host().shells.set_cwd(task_id, before)


def cleanup_vm(task_id: str, *, force_remove: bool = False) -> None:
    """Forget a task's shell, and give back what its backend holds for it.

    Args:
        force_remove: upstream keeps some containers without it; here none outlives its task.
    """
    _directories.pop(task_id, None)
    host().shells.close(task_id)


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
