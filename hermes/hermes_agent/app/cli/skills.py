"""`hermes skills list|show`: the skills of this home and of its plugins."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_agent.host import Host

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("skills", help="list and show skills")
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every skill, those of plugins too")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)
    show = actions.add_parser("show", help="what the model is given when it opens a skill")
    show.add_argument("name", metavar="NAME", help="name, category/name, or plugin:name")
    show.add_argument("file", metavar="FILE", nargs="?", default="", help="a file of the skill")
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(run=_show)


def _start() -> Host:
    from hermes_agent.app.start import start_host  # loads plugins: they bring skills

    return start_host()


def _list(args: argparse.Namespace) -> int:
    host = _start()
    offered = {skill.place for skill in host.skills.offered("cli")}
    rows = [
        {
            "name": skill.name,
            "source": skill.category or "home",
            "status": "offered" if skill.place in offered else "not offered",
            "description": skill.document.description,
        }
        for skill in host.skills.everything()
        if not skill.flat
    ]
    rows += [
        {"name": name, "source": "plugin", "status": "by name", "description": skill.description}
        for name, skill in sorted(host.plugin_skills.items())
    ]
    asyncio.run(host.aclose())
    if args.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif not rows:
        print(f"No skills. Those of this home go to {host.skills.directory}/NAME/SKILL.md.")
    widths = [max((len(row[key]) for row in rows), default=0) for key in ("name", "source", "status")]
    for row in rows if not args.json else ():
        cells = (row[key].ljust(width) for key, width in zip(("name", "source", "status"), widths, strict=True))
        print("  ".join((*cells, row["description"])).rstrip())
    return 0


def _show(args: argparse.Namespace) -> int:
    from hermes_agent.core.errors import UserError
    from hermes_agent.skills.viewing import SkillView

    host = _start()
    text = SkillView(host.skills).view(args.name, args.file, platform="cli")
    asyncio.run(host.aclose())
    shown = json.loads(text)
    if not shown["success"]:
        more = shown.get("available_skills") or shown.get("matches") or []
        hint = f"{shown.get('hint', '')} {', '.join(more)}".strip()
        raise UserError(shown["error"], hint=hint)
    print(json.dumps(shown, indent=2, ensure_ascii=False) if args.json else shown["content"].rstrip("\n"))
    return 0
