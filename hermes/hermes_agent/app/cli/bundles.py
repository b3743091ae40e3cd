"""`hermes bundles`: skills that are used together, as one command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import (
    JSON,
    YES,
    Args,
    CliSubcommand,
    argument,
    ensure_home,
    print_json,
    print_rows,
    printable,
)
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_agent.skills.prompts import SkillBundle, SkillBundles

bundles_command = CliSubcommand(
    "bundles",
    "skills that are used together: list, show, create, delete",
    epilog="`/NAME TASK` uses all skills of a bundle (docs/operator/extend.md).",
)
add_bundles = bundles_command.add
NAME = argument("name", metavar="NAME", help="name of the bundle, as in /NAME")


def _bundles() -> SkillBundles:
    from hermes_agent.skills.prompts import SkillBundles

    return SkillBundles(ensure_home())


def _row(bundle: SkillBundle) -> dict[str, Any]:
    return {**bundle._asdict(), "file": str(bundle.file)}


@bundles_command.default(JSON)
def _default(args: Args) -> int:
    return _list(args) or EXIT_OK


@bundles_command.action("list", "every bundle with its skills", JSON)
def _list(args: Args) -> int:
    found, problems = _bundles().read()
    _print_problems(problems)
    if args.json:
        return print_json([_row(bundle) for bundle in found.values()])
    if not found:
        print("No bundles. `hermes bundles create NAME --skill SKILL` makes one.")
        return EXIT_OK
    print_rows([(f"/{b.name}", ", ".join(map(printable, b.skills)), printable(b.description)) for b in found.values()])
    return EXIT_OK


@bundles_command.action("show", "a bundle: its skills, its instruction, its file", NAME, JSON)
def _show(args: Args) -> int:
    bundle = _bundles().get(args.name)
    missing = _missing_skills(bundle)
    if args.json:
        return print_json({**_row(bundle), "missing": missing})
    for line in bundle.text().splitlines():
        print(line[: len(line) - len(line.lstrip())] + printable(line))
    _print_missing(bundle.name, missing)
    return EXIT_OK


@bundles_command.action(
    "create",
    "make a bundle",
    NAME,
    argument("--skill", dest="skills", metavar="SKILL", action="append", default=[], help="a skill; once for each"),
    argument("-d", "--description", metavar="TEXT", default="", help="what the bundle is for"),
    argument("--instruction", metavar="TEXT", default="", help="text that follows those of the skills"),
    argument("--force", action="store_true", help="replace a bundle with that name"),
    JSON,
)
def _create(args: Args) -> int:
    skills = list(dict.fromkeys(skill.strip() for skill in args.skills or _asked_skills() if skill.strip()))
    about = {"description": args.description, "instruction": args.instruction}
    bundle = _bundles().write(args.name, skills, **about, replaces=args.force)
    missing = _missing_skills(bundle)
    if args.json:
        return print_json({**_row(bundle), "missing": missing})
    print(f"Wrote {bundle.file}. `/{bundle.name} TASK` uses it.")
    _print_missing(bundle.name, missing)
    return EXIT_OK


def _asked_skills() -> list[str]:
    """Return the skills that the user types, or none without a terminal."""
    from hermes_agent.app.plugins.terminal_io import ask_text, is_interactive

    return ask_text("Skills, with commas between them: ", hidden=False).split(",") if is_interactive() else []


@bundles_command.action("delete", "delete a bundle; its skills stay", NAME, YES)
def _delete(args: Args) -> int:
    from hermes_agent.app.plugins.terminal_io import confirmed

    bundles = _bundles()
    bundle = bundles.get(args.name)
    if not confirmed(f"Delete {bundle.file}?", "deleted", "`--yes` deletes it", yes=args.yes):
        return EXIT_FAILED
    bundles.delete(bundle.name)
    print(f"Deleted {bundle.file}; the skills stay.")
    return EXIT_OK


@bundles_command.action("reload", "read the files again, and say what is wrong with them")
def _reload(args: Args) -> int:
    found, problems = _bundles().read()
    _print_problems(problems)
    for bundle in found.values():
        _print_missing(bundle.name, _missing_skills(bundle))
    print(f"{len(found)} bundles, {len(problems)} files left out. A running agent reads them at each use.")
    return EXIT_FAILED if problems else EXIT_OK


def _print_problems(problems: list[str]) -> None:
    for problem in problems:
        print(f"hermes: {printable(problem)}", file=sys.stderr)


def _print_missing(name: str, missing: list[str]) -> None:
    if missing:
        print(f"{name}: not there yet: {', '.join(map(printable, missing))}; `hermes skills list` lists skills")


def _missing_skills(bundle: SkillBundle) -> list[str]:
    """Return the skills of a bundle that the home does not have; those of plugins count as there."""
    from hermes_agent.config import load
    from hermes_agent.skills.library import SkillSettings, skill_roots
    from hermes_agent.skills.skill_commands import slug
    from hermes_agent.skills.skill_file import SkillFolder

    home: Path = ensure_home()
    settings = SkillSettings.of(load(home).settings)
    skills = [skill for skill in SkillFolder(skill_roots(home, settings)).find() if not skill.flat]
    known = {skill.name for skill in skills} | {slug(skill.name) for skill in skills}
    return [name for name in bundle.skills if ":" not in name and name not in known and slug(name) not in known]
