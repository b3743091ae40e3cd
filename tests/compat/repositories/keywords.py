"""What each hook is called with when everything is called once."""

from __future__ import annotations

from typing import Any

IDS = {"session_id": "session-1", "task_id": "task-1", "turn_id": "turn-1", "api_request_id": "request-1"}
MODEL = {"platform": "cli", "model": "a-model", "provider": "openai", "base_url": "https://example.invalid/v1"}
TIMES = {"api_mode": "chat_completions", "api_call_count": 1, "api_duration": 0.5, "started_at": 1.0, "ended_at": 1.5}
MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
USAGE = {"input_tokens": 1, "output_tokens": 1, "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
CALL = {"tool_name": "read_file", "args": {"path": "a.txt"}, "tool_call_id": "call-1"}
RESULT = {"result": "{}", "duration_ms": 1, "status": "ok", "error_type": None, "error_message": None}
SESSION = {"session_id": "session-1", "platform": "cli", "reason": "exit"}
OLD_AND_NEW = {"old_session_id": "session-1", "new_session_id": "session-2"}
PARENT = {"parent_session_id": "session-1", "parent_turn_id": "turn-1", "parent_subagent_id": ""}
CHILD = {"child_session_id": "session-2", "child_subagent_id": "sub-1", "child_role": "leaf", "child_goal": "look"}
APPROVAL = {
    "command": "rm -r x", "description": "deletes a folder", "pattern_key": "delete", "pattern_keys": ["delete"],
    "session_key": "session-1", "surface": "cli", "choice": "once",
}  # fmt: skip
REQUEST = {"method": "POST", "url": "https://example.invalid/v1", "headers": {}, "body": {"messages": MESSAGES}}
KEYWORDS: dict[str, dict[str, Any]] = {
    "pre_tool_call": IDS | CALL | {"middleware_trace": []},
    "post_tool_call": IDS | CALL | RESULT | {"middleware_trace": []},
    "transform_tool_result": IDS | CALL | RESULT,
    "transform_terminal_output": {
        "command": "true", "output": "", "returncode": 0, "task_id": "task-1", "env_type": "local",
    },
    "transform_llm_output": {"response_text": "hi", "session_id": "session-1", "model": "a-model", "platform": "cli"},
    "pre_llm_call": IDS
    | {"user_message": "hello", "conversation_history": MESSAGES, "is_first_turn": True, "sender_id": ""}
    | MODEL,
    "post_llm_call": IDS
    | {"user_message": "hello", "assistant_response": "hi", "conversation_history": MESSAGES}
    | MODEL,
    "pre_verify": IDS | MODEL | {"coding": False, "attempt": 1, "final_response": "hi", "changed_paths": []},
    "pre_api_request": IDS
    | MODEL
    | TIMES
    | {
        "user_message": "hello", "conversation_history": MESSAGES, "request_messages": MESSAGES, "message_count": 2,
        "tool_count": 0, "approx_input_tokens": 2, "request_char_count": 7, "max_tokens": 100,
        "middleware_trace": [], "request": REQUEST,
    },
    "post_api_request": IDS
    | MODEL
    | TIMES
    | {
        "finish_reason": "stop", "message_count": 2, "response_model": "a-model", "response": None, "usage": USAGE,
        "assistant_message": {"role": "assistant", "content": "hi"}, "assistant_content_chars": 2,
        "assistant_tool_call_count": 0,
    },
    "api_request_error": IDS
    | MODEL
    | TIMES
    | {
        "status_code": 500, "retry_count": 0, "max_retries": 3, "retryable": True, "reason": "server",
        "error": {"type": "ServerError", "message": "no"}, "request": REQUEST,
    },
    "on_session_start": {"session_id": "session-1"} | MODEL,
    "on_session_end": IDS | {"completed": True, "interrupted": False, "reason": "exit"} | MODEL,
    "on_session_finalize": SESSION | OLD_AND_NEW,
    "on_session_reset": SESSION | OLD_AND_NEW,
    "subagent_start": PARENT | CHILD,
    "subagent_stop": PARENT | CHILD | {"child_summary": "done", "child_status": "ok", "duration_ms": 1},
    "pre_gateway_dispatch": {"event": None, "gateway": None, "session_store": None},
    "pre_approval_request": APPROVAL,
    "post_approval_response": APPROVAL,
}  # fmt: skip
"""The full set of keywords of each hook; the contract's §3."""
