"""The skills in the system prompt: names and what they are for. Source: plugin contract §6.4.

It is made when a session starts and stays as it is with the session's prompt, so that the provider's cached prefix
holds. Skills of plugins are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hermes_agent.skills.finding import LocalSkill

__all__ = ["INDEX_CHARS", "index_text"]

LINE_CHARS = 200
"""Longest description; the whole one is in `skills_list`."""
INDEX_CHARS = 12_000
"""Longest index; what does not fit is counted, and `skills_list` has it."""
GENERAL = "general"
"""What skills without a category are shown under."""

_HEAD = (
    "## Skills (mandatory)\n"
    "A skill says how something is done here. Before you act, look whether one of these is about what is asked; if so, "
    "open it with skill_view(name) and keep to it.\n"
    "<available_skills>\n"
)
_TAIL = "</available_skills>"


def index_text(skills: Sequence[LocalSkill]) -> str:
    """Return the block for the system prompt; empty without skills."""
    if not skills:
        return ""
    ordered = sorted(skills, key=lambda skill: (skill.category or GENERAL, skill.name))
    lines: list[str] = []
    size, left_out = len(_HEAD) + len(_TAIL), 0
    for category, group in groupby(ordered, key=lambda skill: skill.category or GENERAL):
        block = [f"  {_safe(category)}:"]
        for skill in group:
            line = f"    - {_safe(skill.name)}: {_short(_safe(skill.document.description))}"
            size += len(line) + 1
            if size > INDEX_CHARS:
                left_out += 1
            else:
                block.append(line)
        if len(block) > 1:
            lines += block
    if left_out:
        lines.append(f"  ({left_out} more: skills_list has them)")
    return f"{_HEAD}{chr(10).join(lines)}\n{_TAIL}"


def _short(text: str) -> str:
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


def _safe(text: str) -> str:
    """A description must not end the block that it stands in."""
    return " ".join(text.replace("<", "‹").replace(">", "›").split())
