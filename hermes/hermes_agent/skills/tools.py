"""Register the tools of this package: `skills_list`, `skill_view`. They are shown where there is a skill."""

from __future__ import annotations

import math
from typing import Any

from hermes_agent.contracts.owner import Owner
from hermes_agent.core.registry import BUILTIN
from hermes_agent.skills.library import SkillLibrary
from hermes_agent.skills.viewing import SCHEMA, SkillView
from hermes_agent.tools import ToolRegistry, current_scope, tool_result

__all__ = ["LIST_SCHEMA", "SkillsList", "register"]

LIST_SCHEMA: dict[str, Any] = {
    "name": "skills_list",
    "description": "List the skills of this home: name, description, category.",
    "parameters": {"type": "object", "properties": {"category": {"type": "string"}}},
}


class SkillsList:
    """The handler of `skills_list`. Skills of plugins are in no list."""

    def __init__(self, library: SkillLibrary) -> None:
        self._library = library

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `skills`, `categories`, `count` and a `hint` as JSON text."""
        scope = current_scope.get()
        offered = self._library.offered("" if scope is None else scope.platform)
        category = str(args.get("category") or "").strip("/")
        chosen = [skill for skill in offered if not category or skill.category == category]
        return tool_result(
            success=True,
            skills=[
                {"name": s.name, "description": s.document.description, "category": s.category or None} for s in chosen
            ],
            categories=self._library.categories(offered),
            count=len(chosen),
            hint="Open one with skill_view(name)."
            if chosen
            else "There is none; `categories` has those that there are.",
        )


def register(registry: ToolRegistry, library: SkillLibrary) -> None:
    """Register both for `library`."""
    owner, view, listing = Owner(BUILTIN), SkillView(library), SkillsList(library)
    registry.register(
        "skills_list", "skills", LIST_SCHEMA, listing, check_fn=library.any_there, emoji="📚", owner=owner
    )
    # a skill is asked for as a whole; half a skill misleads
    registry.register(
        "skill_view",
        "skills",
        SCHEMA,
        view,
        check_fn=library.any_there,
        emoji="📖",
        max_result_size_chars=math.inf,
        owner=owner,
    )
