"""Auxiliary task: a side task of a plugin that asks a model of its own, as the operator configures it.

Source: plugin contract §2.5; the texts of the errors are its own as far as it has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes_agent.contracts.kind import Kind

__all__ = ["AUXILIARY_TASK", "BUILTIN_TASKS", "TASK_DEFAULTS", "AuxiliaryTask", "make_auxiliary_task"]

AUXILIARY_TASK = Kind("auxiliary_task", "register_auxiliary_task", "auxiliary task", is_used=True)

BUILTIN_TASKS = frozenset(
    (
        *("vision", "compression", "web_extract", "approval", "mcp", "title_generation", "memory_query_rewrite"),
        *("tts_audio_tags", "skills_hub", "triage_specifier", "kanban_decomposer", "profile_describer", "curator"),
    )
)
"""Keys that the agent keeps for itself."""

TASK_DEFAULTS: Mapping[str, Any] = {
    "provider": "auto",
    "model": "",
    "base_url": "",
    "api_key": "",
    "timeout": 60,
    "extra_body": {},
}
"""Settings of a task where neither the plugin nor the config says anything; `timeout` is in seconds."""


class AuxiliaryTask(NamedTuple):
    """A task; `auxiliary.<key>` of the config says who is asked."""

    key: str
    display_name: str
    description: str
    defaults: Mapping[str, Any]
    """Every setting of `TASK_DEFAULTS`, as the plugin wants them."""


def make_auxiliary_task(
    key: str, *, display_name: str, description: str, defaults: Mapping[str, Any] | None = None
) -> AuxiliaryTask:
    """Return the task.

    Raises:
        ValueError: the key cannot be one, or is the agent's; or `defaults` is no mapping.
    """
    if not isinstance(key, str) or not key.strip():
        raise ValueError(f"auxiliary task key is {key!r}: expected a text that is not empty")
    if not key.replace("_", "").isalnum():
        raise ValueError(f"auxiliary task key '{key}' must contain only alphanumeric characters and underscores")
    if key in BUILTIN_TASKS:
        raise ValueError(
            f"cannot register auxiliary task '{key}' — that key is reserved for a built-in task. Choose another key, "
            "for example one that begins with the plugin's name."
        )
    if defaults is not None and not isinstance(defaults, Mapping):
        raise ValueError(f"the defaults of auxiliary task '{key}' are {defaults!r}: expected a mapping")
    return AuxiliaryTask(key, display_name, description, {**TASK_DEFAULTS, **(defaults or {})})
