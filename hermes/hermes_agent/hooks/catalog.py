"""The catalog of hooks: when each fires, its keywords, and the meaning of answers.

The pages in docs/plugins/hooks/ are written from it (`hermes_agent.hooks.reference`), and a test compares it with the
calls. Every call of a hook has all of its keywords. Source: plugin contract §3.1 to §3.8; contract of 0.23 §7.2, §7.3.
"""

from __future__ import annotations

import re
from typing import Literal

from hermes_agent.core.lazy_types import LazyNamedTuple

HookStatus = Literal["fired", "never"]
"""`never`: this program has no such event. Callbacks are stored all the same."""


class Hook(LazyNamedTuple):
    """The description of a hook."""

    when: str
    """Half a sentence: when it fires."""
    keywords: tuple[str, ...]
    """All keywords of a callback, besides `telemetry_schema_version`."""
    answer: str = ""
    """The effect of an answer; empty if answers are ignored, so that the callback is an observer."""
    status: HookStatus = "fired"
    since: str = "0.19"
    """The release of the contract that brought it; "" if it is an extension of this program."""


_CALL = ("task_id", "session_id", "tool_call_id", "turn_id", "api_request_id")
_ENDED = (
    *("tool_name", "args", *_CALL, "result", "duration_ms"),
    *("status", "error_type", "error_message"),
)
_TURN = ("session_id", "task_id", "turn_id", "model", "platform")
_REQUEST = (
    *("task_id", "turn_id", "api_request_id", "session_id", "platform"),
    *("model", "provider", "base_url", "api_mode", "api_call_count"),
)
_SESSION = ("session_id", "model", "platform")
_BOUNDARY = ("session_id", "platform", "reason", "old_session_id", "new_session_id")
_APPROVAL = (
    *("command", "description", "pattern_key", "pattern_keys", "session_key", "surface"),
    *("turn_id", "tool_call_id"),
)
_KANBAN = ("task_id", "profile_name", "board", "assignee", "run_id")
_AUXILIARY_CALL = (
    *("aux_task", "plugin_id", "purpose", "session_id", "task_id", "turn_id", "platform", "api_request_id"),
    *("retry_count", "api_call_count", "model", "provider", "base_url", "api_mode", "streaming", "started_at"),
    *("message_count", "tool_count", "approx_input_tokens", "request_char_count", "max_tokens", "temperature"),
)
_STREAM = (*_REQUEST, "iteration", "surface")
_HUMAN_INPUT = ("kind", "request_id", "session_id", "session_key", "platform", "prompt")
_NO_BOARD = "there is no kanban board here"

HOOKS: dict[str, Hook] = {
    "pre_tool_call": Hook(
        "before each tool call, after `tool_request` middleware and before a person is asked",
        ("tool_name", "args", *_CALL, "middleware_trace"),
        '`{"action": "block", "message": text}` keeps the tool from running and gives the model the text; '
        '`{"action": "modify", "args": {…}}` changes these arguments, for each the last one that does; '
        '`{"action": "approve", "message": text, "rule_key": text}` asks a person first; a block wins over an '
        "approval, in any order, and of several the first one counts",
    ),
    "post_tool_call": Hook(
        "once after each tool call, also when it was blocked, failed or was cancelled",
        (*_ENDED, "middleware_trace"),
    ),
    "transform_terminal_output": Hook(
        "after a foreground command of the tool `terminal`, before its output is cut",
        ("command", "output", "returncode", "task_id", "tool_call_id", "env_type"),
        "the first text replaces the output",
    ),
    "transform_tool_result": Hook(
        "after `post_tool_call`",
        _ENDED,
        "the first text replaces the result that the model is given",
    ),
    "transform_llm_output": Hook(
        "once per turn, when the answer is there",
        ("response_text", "turn_id", "session_id", "model", "platform"),
        "the first text that is not empty replaces the reply, which is then stored; what was streamed is not recalled",
    ),
    "pre_llm_call": Hook(
        "once per turn, before the first request",
        (*_TURN, "user_message", "conversation_history", "is_first_turn", "sender_id", "parent_session_id"),
        'a text, or `{"context": text}`, is added to the message that the model is sent, and never stored',
    ),
    "post_llm_call": Hook(
        "once per turn, after the answer, unless the turn was interrupted or has none",
        (*_TURN, "user_message", "assistant_response", "conversation_history"),
    ),
    "pre_verify": Hook(
        "when the model wants to end a turn in which files were written, at most `agent.max_verify_nudges` times",
        ("session_id", "platform", "model", "coding", "attempt", "final_response", "changed_paths"),
        '`{"action": "continue", "message": text}` or `{"decision": "block", "reason": text}` gives the model '
        "the text and lets it go on; the first one counts",
    ),
    "pre_api_request": Hook(
        "before each request to the model, after `llm_request` middleware",
        (
            *(*_REQUEST, "user_message", "conversation_history", "request_messages", "message_count", "tool_count"),
            *("approx_input_tokens", "request_char_count", "max_tokens", "started_at", "middleware_trace", "request"),
            *("method", "url", "headers", "body", "retry_count", "system_prompt"),
        ),
    ),
    "post_api_request": Hook(
        "after each request that was answered",
        (
            *(*_REQUEST, "api_duration", "started_at", "ended_at", "finish_reason", "message_count", "response_model"),
            *("response", "usage", "assistant_message", "assistant_content_chars", "assistant_tool_call_count"),
            *("method", "url", "status_code", "first_chunk_at", "context_length", "moa_references"),
        ),
    ),
    "api_request_error": Hook(
        "after each request that failed",
        (
            *(*_REQUEST, "api_duration", "started_at", "ended_at", "status_code", "retry_count", "max_retries"),
            *("retryable", "reason", "error", "request"),
        ),
    ),
    "on_session_start": Hook("in the first turn of a new session", _SESSION),
    "on_session_end": Hook(
        "at the end of every turn, however it ended",
        (*_TURN, "completed", "interrupted", "failed", "turn_exit_reason"),
    ),
    "on_session_finalize": Hook(
        "when a session that had a turn is left: `/new`, the end of the program, a session over HTTP",
        _BOUNDARY,
    ),
    "on_session_reset": Hook("after `/new`, when the new session is there", _BOUNDARY),
    "subagent_start": Hook(
        "when the agent hands a task to another one",
        (
            *("parent_session_id", "parent_turn_id", "parent_subagent_id", "child_session_id"),
            *("child_subagent_id", "child_role", "child_goal"),
        ),
    ),
    "subagent_stop": Hook(
        "when that one has ended",
        (
            *("parent_session_id", "parent_turn_id", "child_session_id", "child_role", "child_summary"),
            *("child_status", "duration_ms", "tool_call_history"),
        ),
    ),
    "pre_gateway_dispatch": Hook(
        "for each message of a chat platform, before it is known who may send one",
        ("event", "gateway", "session_store"),
        '`{"action": "skip"}` drops the message, `{"action": "rewrite", "text": text}` replaces its text; '
        "the first one counts",
    ),
    "pre_approval_request": Hook("before a person is asked for approval", _APPROVAL),
    "post_approval_response": Hook("when the answer is there", (*_APPROVAL, "choice", "coalesced")),
    "kanban_task_claimed": Hook("there is no kanban board here", _KANBAN, status="never"),
    "kanban_task_completed": Hook("there is no kanban board here", (*_KANBAN, "summary"), status="never"),
    "kanban_task_blocked": Hook("there is no kanban board here", (*_KANBAN, "reason"), status="never"),
    "on_stream_start": Hook("when the first piece of an answer comes", _STREAM, since="0.20"),
    "on_stream_delta": Hook("for each piece of an answer's text", (*_STREAM, "delta", "kind", "index"), since="0.20"),
    "on_stream_end": Hook(
        "when the stream has ended, also when it failed or was interrupted",
        (*_STREAM, "final_text", "finished", "error", "chars", "finish_reason", "completed"),
        since="0.20",
    ),
    "on_interim_message": Hook(
        "when the model writes a text and goes on with tool calls",
        (*_TURN, "provider", "iteration", "surface", "text", "already_streamed"),
        since="0.20",
    ),
    "gateway_platform_event": Hook(
        "for what a user with access does in a chat besides messages: reactions, edits, deletions, threads",
        ("platform", "event_type", "payload"),
        since="0.20",
    ),
    "post_gateway_admission": Hook(
        "for each message of a user with access to a chat, before its turn; not for commands",
        ("session_key", "platform", "source", "message_id", "text"),
        '`{"action": "handled", "reply": text}` consumes the message and sends the reply; the first one counts',
        since="0.20",
    ),
    "pre_transcription": Hook(
        "before a recording is transcribed",
        ("file_path", "provider", "model", "language", "prompt", "source"),
        "`prompt`, `language` and `model` of a dict are used; the last plugin wins for each",
        since="0.20",
    ),
    "pre_tts_synthesis": Hook(
        "before a text is spoken; a rewritten text is judged once more by all plugins",
        ("text", "provider"),
        '`{"action": "block", "message": text}` refuses, `{"text": text}` is spoken instead; all other answers, errors '
        "and missed deadlines refuse",
        since="0.20",
    ),
    "transform_api_error_classification": Hook(
        "after each request to the model that failed, before it is decided whether to ask again",
        (
            *("provider", "model", "status_code", "error_type", "error_code", "error_message", "error_body", "error"),
            *("approx_tokens", "context_length", "num_messages"),
        ),
        '`{"reason": name}` says what kind of error it is; `retryable`, `should_compress` and `message` refine it; the '
        "first valid one counts",
        since="0.20",
    ),
    "agent_loop_stopped": Hook(
        "when a running turn is interrupted: by the user, a newer message, `/stop`, `/new` or the idle limit",
        ("session_key", "platform", "reason", "invalidation_reason"),
        since="0.20",
    ),
    "on_human_input_request": Hook(
        "when the agent starts to wait for a user: for approval, or for the answer to a question",
        _HUMAN_INPUT,
        since="0.20",
    ),
    "on_human_input_resolved": Hook("when that wait is over", (*_HUMAN_INPUT, "outcome"), since="0.20"),
    "pre_command": Hook(
        "before a slash command runs; `command` is its name, also for an alias",
        ("surface", "command", "alias_used", "args_raw", "args", "session_id", "session_key", "platform"),
        since="0.20",
    ),
    "on_session_resume": Hook(
        "in the first turn after a stored session was resumed",
        (*_SESSION, "message_count"),
        since="",
    ),
    "pre_auxiliary_call": Hook(
        "before a model request of an auxiliary task, or of a plugin with `ctx.llm`",
        (*_AUXILIARY_CALL, "request_messages", "system_prompt", "request"),
        since="0.20",
    ),
    "post_auxiliary_call": Hook(
        "after that request, answered or not",
        (
            *(*_AUXILIARY_CALL, "ended_at", "api_duration", "finish_reason", "response_model", "usage", "response"),
            *("assistant_content_chars", "assistant_tool_call_count", "error", "error_type", "duration_ms", "status"),
        ),
        since="0.20",
    ),
    "on_skill_lifecycle": Hook(
        "when the model opens a skill (`loaded`), a slash command does (`used`), or its file is gone (`removed`)",
        (
            *("name", "skill_name", "action", "provenance", "path", "plugin", "task_id", "session_id"),
            *("use_count", "reused", "reuse_after_patch"),
        ),
        since="0.20",
    ),
    "on_room_member_activity": Hook(
        "there is no hosted group chat here",
        (
            *("room_id", "thread_id", "member_id", "turn_id", "task_id", "execution_generation", "kind", "seq"),
            "payload",
        ),
        status="never",
        since="0.20",
    ),
    "on_kanban_dispatch_tick": Hook(
        _NO_BOARD, ("board", "profile_name", "dry_run", "outcome", "result"), status="never", since="0.20"
    ),
    "on_kanban_worker_spawned": Hook(
        _NO_BOARD, (*_KANBAN, "worker_pid", "workspace_path"), status="never", since="0.20"
    ),
    "on_kanban_worker_exited": Hook(
        _NO_BOARD,
        (*_KANBAN, "worker_pid", "exit_kind", "exit_code", "outcome", "retry_status"),
        status="never",
        since="0.20",
    ),
    "on_kanban_worker_stale_claim": Hook(
        _NO_BOARD, (*_KANBAN, "worker_pid", "heartbeat_stale", "retry_status"), status="never", since="0.20"
    ),
    "on_kanban_task_updated": Hook(_NO_BOARD, (*_KANBAN, "changed_fields"), status="never", since="0.20"),
}
"""Hooks by name: those of 0.19 in the contract's order, then the others."""


TELEMETRY_SCHEMA = "hermes.observer.v1"
"""Value of the keyword `telemetry_schema_version` of every callback."""

WITHOUT_SCHEMA = frozenset({"gateway_platform_event"})
"""Hooks without that keyword, as published."""

VALID_HOOKS: tuple[str, ...] = tuple(name for name, hook in HOOKS.items() if hook.since == "0.19")
"""The 23 names of 0.19."""

ACCEPTED_HOOKS = set(HOOKS)
"""`hermes_cli.plugins.VALID_HOOKS` (§1.11): plugins ask it whether a later hook exists, and add names of their own."""

OWN_HOOKS: tuple[str, ...] = tuple(name for name, hook in HOOKS.items() if hook.since != "0.19")
"""Names that came later, or that are extensions."""

FIRED: frozenset[str] = frozenset(name for name, hook in HOOKS.items() if hook.status == "fired")
"""Names that this program calls; a callback for another known name is stored and not called."""

OBSERVERS: frozenset[str] = frozenset(name for name, hook in HOOKS.items() if not hook.answer)
"""Names with callbacks that delay nothing, since their answers are ignored."""

_RENAMED = {"todo": "todo_list", "cronjob": "cronjob_manage", "process": "process_manage"}
TOOL_ALIASES: dict[str, str] = {**_RENAMED, **{new: old for old, new in _RENAMED.items()}}
"""Names of tools in both generations of the contract, each with the other name."""


def matches_tool(matcher: str, tool: str) -> bool:
    """Return whether a pattern, or a name that is no pattern, matches a tool by one of its names."""
    names = (tool, TOOL_ALIASES.get(tool, tool))
    try:
        return any(re.fullmatch(matcher, name) for name in names)
    except re.error:
        return matcher in names
