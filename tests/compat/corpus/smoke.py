"""Call once what was registered: hooks with all their keywords, checks, and tools with nothing to do."""

from __future__ import annotations

import io
import json
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from hermes_agent.host import Host
from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.tools import CallScope

__all__ = ["KEYWORDS", "call_everything"]

CALL_LIMIT_S = 5.0
TOTAL_LIMIT_S = 35.0
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
    "pre_approval_request": APPROVAL,
    "post_approval_response": APPROVAL,
}  # fmt: skip
"""The full set of keywords of each hook; the contract's §3."""


def call_everything(host: Host) -> list[str]:
    """Call everything that plugins registered; return a line for each call that failed in a way that is ours to know.

    What a plugin raises with made-up arguments is its own affair; a missing name of the host is not.
    """
    failures: list[str] = []
    until = time.monotonic() + TOTAL_LIMIT_S
    for what, call in _calls(host):
        if time.monotonic() > until:
            break
        error = _limited(call)
        if isinstance(error, ImportError | AttributeError | TypeError):
            failures.append(f"{what}: {type(error).__name__}: {error}")
    return failures


def _calls(host: Host) -> list[tuple[str, Any]]:
    keys = {r.manifest.key for r in host.plugins.records}
    calls: list[tuple[str, Any]] = []
    for name, keywords in KEYWORDS.items():
        for owner, function in host.hooks.listeners(name):
            if owner in keys:
                given = keywords | {"telemetry_schema_version": "hermes.observer.v1"}
                calls.append((f"hook {name}", lambda f=function, k=given: f(**k)))
    scope = CallScope("session-1", "task-1", "turn-1", Path.cwd(), Approvals(NoApprover("in a test"), timeout_s=1))
    for key in keys:
        for name in host.tools.owned_by(key):
            entry = host.tools.get_entry(name)
            if entry is not None and entry.check_fn is not None:
                calls.append((f"check of {name}", entry.check_fn))
            calls.append((f"tool {name}", lambda n=name: _tool(host, n, scope)))
    return calls


def _tool(host: Host, name: str, scope: CallScope) -> None:
    host.dispatcher.run_inline("call-1", name, {}, scope)


def _limited(call: Any) -> BaseException | None:
    """Run a call in a thread of its own and return what it raised; one that takes too long is left alone."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                value = call()
            json.dumps(value, default=str)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CALL_LIMIT_S)
    return raised[0] if raised else None
