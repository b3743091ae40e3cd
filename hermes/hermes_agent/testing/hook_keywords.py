"""Every keyword that a hook's callbacks are given, with a value that a test can live with.

The names are those of the table of hooks.
"""

from __future__ import annotations

import time
from typing import Any

from hermes_agent.config.nearness import nearest
from hermes_agent.hooks import HOOKS

__all__ = ["hook_keywords"]

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
    known_hook = HOOKS.get(hook)
    if known_hook is None:
        near = nearest(hook, tuple(HOOKS))
        raise ValueError(f"there is no hook {hook!r}" + (f"; did you mean {near!r}?" if near else ""))
    return {name: known.get(name, _value(name)) for name in known_hook.keywords} | given


def _value(name: str) -> Any:
    if name in _DICTS:
        return {}
    if name in _LISTS:
        return []
    if name in ("started_at", "ended_at"):
        return time.time()
    return _VALUES.get(name, "")
