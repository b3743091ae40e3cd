"""Sections of plugins in the system prompt: `ctx.register_system_prompt_section`.

They are rendered once, when a session starts, and stored with its prompt. Source: plugin contract of 0.23 §6.4.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple

logger = logging.getLogger(__name__)

POSITION = "after_memory"
MAX_CHARS = 4000
MAX_SECTIONS = 32
MAX_TOTAL_CHARS = 8000
START, END = "<!-- hermes-plugin-sections:start -->", "<!-- hermes-plugin-sections:end -->"
_MARKER = "<!-- hermes-plugin-section"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")

Content = str | Callable[[Mapping[str, Any]], Any]


class PromptSection(LazyNamedTuple):
    """A registered section of the system prompt."""

    id: str
    content: Content
    max_chars: int
    plugin: str


def make_section(id: str, content: Content, position: str, max_chars: int, plugin: str) -> PromptSection:
    """Return a section.

    Raises:
        ValueError: the id, the position or the limit is unusable.
        TypeError: the content is neither text nor callable.
    """
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise ValueError(f"system prompt section id {id!r} is not usable: expected [a-z0-9][a-z0-9._-], at most 128")
    if position != POSITION:
        raise ValueError(f"system prompt section '{id}': position {position!r} is not '{POSITION}'")
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or not 1 <= max_chars <= MAX_CHARS:
        raise ValueError(f"system prompt section '{id}': max_chars is {max_chars!r}: expected 1 to {MAX_CHARS}")
    if not isinstance(content, str) and not callable(content):
        raise TypeError(
            f"system prompt section '{id}': content is {type(content).__name__}: expected text or a function"
        )
    return PromptSection(id, content, max_chars, plugin)


def render_sections(sections: Iterable[PromptSection], info: Mapping[str, Any]) -> str:
    """Return the block of the system prompt with all sections in order of id, or "" if there is none.

    A section that cannot be used is left out with a warning.

    Args:
        info: `session_id`, `model`, `provider`, `platform`, `profile_name`, `cwd`.
    """
    rendered: list[str] = []
    total = 0
    for section in sorted(sections, key=lambda each: each.id):
        text = _text_of(section, MappingProxyType(dict(info)))
        if not text:
            continue
        block = f"## Plugin Context: {section.id}\n<!-- hermes-plugin-section-chars:{len(text)} -->\n\n{text}"
        if len(rendered) >= MAX_SECTIONS:
            _leave_out(section, f"there are {MAX_SECTIONS} sections already")
        elif total + len(block) > MAX_TOTAL_CHARS:
            _leave_out(section, f"all sections together may have {MAX_TOTAL_CHARS} characters")
        else:
            rendered.append(block)
            total += len(block)
    return "\n".join((START, "\n\n".join(rendered), END)) if rendered else ""


def _text_of(section: PromptSection, info: Mapping[str, Any]) -> str:
    content = section.content
    try:
        text = content if isinstance(content, str) else content(info)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - plugin code; the other sections are rendered
        _leave_out(section, f"it raised {type(exc).__name__}: {exc}")
        return ""
    if not isinstance(text, str):
        _leave_out(section, f"it is {type(text).__name__}: expected text")
    elif len(text) > section.max_chars:
        _leave_out(section, f"it has {len(text)} characters, at most {section.max_chars} are allowed")
    elif _MARKER in text:
        _leave_out(section, "it contains a marker of the sections")
    else:
        return text if text.strip() else ""
    return ""


def _leave_out(section: PromptSection, reason: str) -> None:
    logger.warning(
        "system prompt section '%s' of plugin %s is left out: %s",
        *(section.id, section.plugin, reason),
        extra={"plugin": section.plugin},
    )
