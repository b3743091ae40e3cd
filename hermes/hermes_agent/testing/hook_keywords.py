"""Every keyword that a hook's callbacks are given, with a value that a test can live with.

Source: plugin contract §3.2 to §3.7. A test compares the names with what the agent gives.
"""

from __future__ import annotations

import time
from typing import Any

from hermes_agent.config.nearness import nearest
from hermes_agent.hooks import OWN_HOOKS, VALID_HOOKS

__all__ = ["hook_keywords"]

_CALL = ("task_id", "session_id", "tool_call_id", "turn_id", "api_request_id")
_TURN = ("session_id", "task_id", "turn_id", "model", "platform")
_REQUEST = (
    *_TURN,
    *("api_request_id", "provider", "base_url", "api_mode", "api_call_count", "method", "url"),
    *("message_count", "started_at"),
)
_APPROVAL = (
    *("command", "description", "pattern_key", "pattern_keys", "session_key", "surface"),
    *("turn_id", "tool_call_id"),
)
_KANBAN = ("task_id", "profile_name", "board", "assignee", "run_id")
_BOUNDARY = ("session_id", "platform", "reason", "old_session_id", "new_session_id")
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "pre_tool_call": ("tool_name", "args", *_CALL, "middleware_trace"),
    "post_tool_call": (
        *("tool_name", "args", *_CALL, "result", "duration_ms"),
        *("status", "error_type", "error_message"),
    ),
    "transform_tool_result": (
        *("tool_name", "args", *_CALL, "result", "duration_ms"),
        *("status", "error_type", "error_message"),
    ),
    "transform_terminal_output": ("command", "output", "returncode", "task_id", "env_type"),
    "transform_llm_output": ("response_text", "session_id", "model", "platform"),
    "pre_llm_call": (*_TURN, "user_message", "conversation_history", "is_first_turn", "sender_id"),
    "post_llm_call": (*_TURN, "user_message", "assistant_response", "conversation_history"),
    "pre_verify": (
        *("session_id", "platform", "model", "coding", "attempt"),
        *("final_response", "changed_paths"),
    ),
    "pre_api_request": (
        *(*_REQUEST, "user_message", "conversation_history", "request_messages", "tool_count"),
        *("approx_input_tokens", "request_char_count", "max_tokens", "middleware_trace", "request"),
        *("headers", "body"),
    ),
    "post_api_request": (
        *(*_REQUEST, "api_duration", "ended_at", "finish_reason", "response_model", "response", "usage"),
        *("assistant_message", "assistant_content_chars", "assistant_tool_call_count", "status_code"),
    ),
    "api_request_error": (
        *(*_REQUEST, "api_duration", "status_code", "retry_count", "max_retries", "retryable", "reason"),
        *("error", "request"),
    ),
    "on_session_start": ("session_id", "model", "platform"),
    "on_session_end": (*_TURN, "completed", "interrupted"),
    "on_session_finalize": _BOUNDARY,
    "on_session_reset": _BOUNDARY,
    "subagent_start": (
        *("parent_session_id", "parent_turn_id", "parent_subagent_id", "child_session_id"),
        *("child_subagent_id", "child_role", "child_goal"),
    ),
    "subagent_stop": (
        *("parent_session_id", "parent_turn_id", "child_session_id", "child_role"),
        *("child_summary", "child_status", "duration_ms"),
    ),
    "pre_gateway_dispatch": ("event", "gateway", "session_store"),
    "pre_approval_request": _APPROVAL,
    "post_approval_response": (*_APPROVAL, "choice"),
    "kanban_task_claimed": _KANBAN,
    "kanban_task_completed": (*_KANBAN, "summary"),
    "kanban_task_blocked": (*_KANBAN, "reason"),
}
_VALUES: dict[str, Any] = {
    "api_call_count": 1,
    "api_duration": 0.5,
    "api_mode": "chat_completions",
    "api_request_id": "request-1",
    "approx_input_tokens": 12,
    "assistant_content_chars": 2,
    "assistant_tool_call_count": 0,
    "attempt": 0,
    "base_url": "http://127.0.0.1/v1",
    "child_role": "leaf",
    "child_session_id": "child-session",
    "child_status": "completed",
    "child_subagent_id": "child-1",
    "choice": "once",
    "coding": True,
    "completed": True,
    "duration_ms": 1,
    "env_type": "local",
    "event": None,
    "finish_reason": "stop",
    "gateway": None,
    "interrupted": False,
    "is_first_turn": True,
    "max_retries": 3,
    "max_tokens": None,
    "message_count": 2,
    "method": "POST",
    "new_session_id": "session-2",
    "old_session_id": "session-1",
    "parent_session_id": "session-1",
    "pattern_key": "test:rule",
    "platform": "cli",
    "profile_name": "default",
    "provider": "custom",
    "request_char_count": 48,
    "response_text": "the answer",
    "result": '{"ok": true}',
    "retry_count": 0,
    "retryable": True,
    "returncode": 0,
    "run_id": 1,
    "session_key": "cli:session-1",
    "session_store": None,
    "status": "ok",
    "status_code": 200,
    "surface": "cli",
    "task_id": "task-1",
    "tool_count": 1,
    "tool_name": "a_tool",
    "turn_id": "turn-1",
    "url": "http://127.0.0.1/v1/chat/completions",
    "user_message": "the question",
    "assistant_response": "the answer",
    "final_response": "the answer",
}
_DICTS = ("args", "request", "headers", "body", "response", "usage", "error")
_LISTS = ("conversation_history", "middleware_trace", "request_messages", "pattern_keys", "changed_paths")


def hook_keywords(hook: str, given: dict[str, Any], **known: Any) -> dict[str, Any]:
    """Return what a callback of `hook` is called with: `given`, `known`, and a value for every other keyword.

    Args:
        known: keywords of the host at hand (`session_id`, `model`, …), used where the hook has them.

    Raises:
        ValueError: there is no such hook; the nearest name is in the text.
    """
    if hook not in _KEYWORDS and hook not in OWN_HOOKS:
        near = nearest(hook, VALID_HOOKS)
        raise ValueError(f"there is no hook {hook!r}" + (f"; did you mean {near!r}?" if near else ""))
    names = _KEYWORDS.get(hook, ())
    return {name: known.get(name, _value(name)) for name in names} | given


def _value(name: str) -> Any:
    if name in _DICTS:
        return {}
    if name in _LISTS:
        return []
    if name in ("started_at", "ended_at"):
        return time.time()
    return _VALUES.get(name, "")
