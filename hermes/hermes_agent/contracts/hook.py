"""Hooks: callbacks by name, called with keyword arguments only. Source: plugin contract §3.

Middleware: callbacks around a tool call and around a model request. Source: plugin contract §3.9.

A request middleware sees what is about to be sent and may replace it; an execution middleware stands around the
doing itself, and calls `next_call` for it, once, or answers in its place.
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
"""`callback(**payload)`; a coroutine function is awaited. Each gets the keywords that it names, or all of them
when it has `**kwargs`."""


MIDDLEWARE = Kind("middleware", "register_middleware", "middleware")

MIDDLEWARE_SCHEMA = "hermes.middleware.v1"
"""Value of `middleware_schema_version`, which every callback is given."""

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
"""The keywords of each kind, beside `middleware_schema_version`."""

VALID_MIDDLEWARE: tuple[str, ...] = tuple(MIDDLEWARE_KEYWORDS)
ACCEPTED_MIDDLEWARE = set(VALID_MIDDLEWARE)
"""The same, for plugins to add kinds to that they go through themselves: `hermes_cli.plugins.VALID_MIDDLEWARE`."""
REQUEST_KINDS: dict[str, str] = {"tool_request": "args", "llm_request": "request"}
"""The kinds that may replace something, and under which keyword it comes and goes back."""
EXECUTION_KINDS: dict[str, str] = {"tool_execution": "args", "llm_execution": "request"}
"""The kinds that stand around something, and the keyword of what `next_call` may be given."""

MiddlewareCallback = Callable[..., Any]
"""`callback(**keywords)`; a coroutine function is awaited, and awaits `next_call(…)`. Each gets the keywords that it
names, or all of them when it has `**kwargs`.

Request kinds return `{"args": {…}}` or `{"request": {…}}`, with the optional texts `source`, `reason` and `name` for
the trace, or anything else to leave it as it is. Execution kinds return the result: the tool's text, or the model's
response."""
