"""The names of the hooks. Source: plugin contract §3.1."""

from __future__ import annotations

__all__ = ["FIRED", "OWN_HOOKS", "TELEMETRY_SCHEMA", "VALID_HOOKS"]

TELEMETRY_SCHEMA = "hermes.observer.v1"
"""Value of `telemetry_schema_version`, which every callback is given."""

VALID_HOOKS: tuple[str, ...] = (
    "pre_tool_call",
    "post_tool_call",
    "transform_terminal_output",
    "transform_tool_result",
    "transform_llm_output",
    "pre_llm_call",
    "post_llm_call",
    "pre_verify",
    "pre_api_request",
    "post_api_request",
    "api_request_error",
    "on_session_start",
    "on_session_end",
    "on_session_finalize",
    "on_session_reset",
    "subagent_start",
    "subagent_stop",
    "pre_gateway_dispatch",
    "pre_approval_request",
    "post_approval_response",
    "kanban_task_claimed",
    "kanban_task_completed",
    "kanban_task_blocked",
)
"""The 23 names of the contract."""

OWN_HOOKS: tuple[str, ...] = (
    "on_stream_start",
    "on_stream_delta",
    "on_stream_end",
    "pre_command",
    "on_session_resume",
    "pre_auxiliary_call",
    "post_auxiliary_call",
    "on_skill_lifecycle",
)
"""Names beyond the contract that published plugins register."""

FIRED: frozenset[str] = frozenset(
    {
        "pre_tool_call",
        "post_tool_call",
        "transform_terminal_output",
        "transform_tool_result",
        "transform_llm_output",
        "pre_llm_call",
        "post_llm_call",
        "on_session_start",
        "on_session_end",
    }
)
"""Names that this release calls; a callback for another known name is kept and never called."""
