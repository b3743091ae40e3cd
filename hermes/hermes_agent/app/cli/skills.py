"""`hermes skills list|show`: the skills of this home and of its plugins."""

from __future__ import annotations

import json

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, loaded_host, print_json, print_rows
from hermes_agent.core.errors import EXIT_OK, UserError

__all__ = ["add_skills"]

SKILL_COLUMNS = ("name", "source", "status", "description")

skills_command = CliSubcommand("skills", "list and show skills")
add_skills = skills_command.add


@skills_command.action("list", "every skill, those of plugins too", JSON)
def _list_skills(args: Args) -> int:
    with loaded_host() as host:
        offered = {skill.place for skill in host.skills.offered("cli")}
        rows = [
            (
                skill.name,
                skill.category or "home",
                "offered" if skill.place in offered else "not offered",
                skill.document.description,
            )
            for skill in host.skills.all_skills()
            if not skill.flat
        ]
        rows += [(name, "plugin", "by name", skill.description) for name, skill in sorted(host.plugin_skills.items())]
    if args.json:
        return print_json([dict(zip(SKILL_COLUMNS, row, strict=True)) for row in rows])
    if not rows:
        print(f"No skills. Those of this home go to {host.skills.directory}/NAME/SKILL.md.")
    print_rows(rows)
    return EXIT_OK


@skills_command.action(
    "show",
    "what the model is given when it opens a skill",
    argument("name", metavar="NAME", help="name, category/name, or plugin:name"),
    argument("file", metavar="FILE", nargs="?", default="", help="a file of the skill"),
    JSON,
)
def _show_skill(args: Args) -> int:
    from hermes_agent.skills.tools import SkillView

    with loaded_host() as host:
        shown = json.loads(SkillView(host.skills).view(args.name, args.file, platform="cli"))
    if not shown["success"]:
        more = shown.get("available_skills") or shown.get("matches") or []
        raise UserError(shown["error"], hint=f"{shown.get('hint', '')} {', '.join(more)}".strip())
    if args.json:
        return print_json(shown)
    print(shown["content"].rstrip("\n"))
    return EXIT_OK
