"""Hooks, and middleware around tool calls and model requests.

A hook is a callback for a named event, called with keywords only. A request middleware may replace a request before it
is sent. An execution middleware wraps the execution: it calls `next_call` once, or returns a result of its own.
Source: plugin contract §3, §3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.kind import Kind

__all__ = [
    "ACCEPTED_MIDDLEWARE",
    "EXECUTION_KINDS",
    "HOOK",
    "HookCallback",
    "MIDDLEWARE",
    "MIDDLEWARE_KEYWORDS",
    "MIDDLEWARE_SCHEMA",
    "MiddlewareCallback",
    "REQUEST_KINDS",
    "VALID_MIDDLEWARE",
]


HOOK = Kind("hook", "register_hook", "hook")

HookCallback = Callable[..., Any]
"""`callback(**payload)`; a coroutine function is awaited. It gets the keywords that it names, or all of them with
`**kwargs`."""


MIDDLEWARE = Kind("middleware", "register_middleware", "middleware")

MIDDLEWARE_SCHEMA = "hermes.middleware.v1"
"""Value of the keyword `middleware_schema_version` of every callback."""

_TOOL = ("tool_name", "args", "original_args", "task_id", "session_id", "tool_call_id", "turn_id", "api_request_id")
_LLM = (
    *("request", "original_request", "task_id", "session_id", "turn_id", "api_request_id"),
    *("platform", "model", "provider", "base_url", "api_mode", "api_call_count"),
)

MIDDLEWARE_KEYWORDS: dict[str, tuple[str, ...]] = {
    "tool_request": _TOOL,
    "tool_execution": (*_TOOL, "next_call"),
    "llm_request": _LLM,
    "llm_execution": (*_LLM, "next_call"),
}
"""Keywords of each kind, in addition to `middleware_schema_version`."""

VALID_MIDDLEWARE: tuple[str, ...] = tuple(MIDDLEWARE_KEYWORDS)
ACCEPTED_MIDDLEWARE = set(VALID_MIDDLEWARE)
"""Kinds that `register_middleware` accepts. Plugins that run kinds of their own add them here
(`hermes_cli.plugins.VALID_MIDDLEWARE`)."""
REQUEST_KINDS: dict[str, str] = {"tool_request": "args", "llm_request": "request"}
"""Kinds that may replace a request, and the keyword that passes and returns it."""
EXECUTION_KINDS: dict[str, str] = {"tool_execution": "args", "llm_execution": "request"}
"""Kinds that wrap an execution, and the keyword of the argument of `next_call`."""

MiddlewareCallback = Callable[..., Any]
"""`callback(**keywords)`; a coroutine function is awaited, and awaits `next_call(…)`. It gets the keywords that it
names, or all of them with `**kwargs`.

Request kinds return `{"args": {…}}` or `{"request": {…}}`, with the optional texts `source`, `reason` and `name` for
the trace. Any other value leaves the request unchanged. Execution kinds return the result: the text of the tool, or the
response of the model."""
