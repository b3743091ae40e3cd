"""Settings of single channels in a platform's `extra`. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["resolve_channel_prompt", "resolve_channel_skills"]


def resolve_channel_prompt(config_extra: dict[str, Any], channel_id: str, parent_id: str | None = None) -> str | None:
    """Return what a channel adds to the system prompt: `channel_prompts: {<id>: <text>}`; else its parent's."""
    prompts = config_extra.get("channel_prompts")
    for value in _channel_entries(prompts, channel_id, parent_id):
        text = str(value).strip() if value is not None else ""
        if text:
            return text
    return None


def resolve_channel_skills(
    config_extra: dict[str, Any], channel_id: str, parent_id: str | None = None
) -> list[str] | None:
    """Return the skills that a channel works with, else its parent's; None when there are none.

    `channel_skill_bindings` is a list of `{id, skills}`, or a mapping from ids to skills.
    """
    bindings = config_extra.get("channel_skill_bindings")
    if isinstance(bindings, list):
        listed = [b for b in bindings if isinstance(b, Mapping) and "id" in b]
        bindings = {str(b["id"]): b.get("skills") or b.get("skill") for b in listed}
    for value in _channel_entries(bindings, channel_id, parent_id):
        given = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
        names = list(dict.fromkeys(str(name).strip() for name in given if str(name).strip()))
        if names:
            return names
    return None


def _channel_entries(table: Any, channel_id: str, parent_id: str | None) -> Iterator[Any]:
    """Yield what stands in `table` for the channel, then for its parent; YAML may have read an id as a number."""
    if not isinstance(table, Mapping):
        return
    by_text = {str(key): value for key, value in table.items()}
    for key in (channel_id, parent_id):
        if key is not None and str(key) in by_text:
            yield by_text[str(key)]
