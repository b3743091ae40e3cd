"""`hermes skills`: skills of the home and of taps; list, install, update, check, publish."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.command import (
    JSON,
    YES,
    Args,
    CliSubcommand,
    activity,
    argument,
    ensure_home,
    loaded_host,
    print_json,
    print_rows,
)
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError

SKILL_COLUMNS = ("name", "source", "status", "description")

skills_command = CliSubcommand(
    "skills",
    "list, search, install and check skills, and manage taps",
    epilog="A tap is a git repository with skills/NAME/SKILL.md (docs/operator/skills.md).",
)
add_skills = skills_command.add
NAMES = argument("names", metavar="NAME", nargs="+", help="name, or TAP/NAME")
FORCE = argument("--force", action="store_true", help="accept what the scan only warns of")


def _hub() -> Any:
    from hermes_agent.app.skills.hub import SkillHub
    from hermes_agent.app.skills.taps import Taps
    from hermes_agent.config import load

    home = ensure_home()
    skills = home / "skills"
    return SkillHub(skills, Taps(skills, base=load(home).settings.skills.tap_base))


def _safe(text: str) -> str:
    from hermes_agent.app.plugins.terminal_io import printable

    return printable(text)


@skills_command.action("list", "every skill, those of plugins too", JSON)
def _list_skills(args: Args) -> int:
    from hermes_agent.skills import SkillLibrary

    with loaded_host() as host:
        library = host.service(SkillLibrary)
        offered = {skill.place for skill in library.offered("cli")}
        rows = [
            (
                skill.name,
                library.origin(skill) or skill.category or "home",
                "offered" if skill.place in offered else "not offered",
                skill.document.description,
            )
            for skill in library.all_skills()
            if not skill.flat
        ]
        rows += [(name, "plugin", "by name", skill.description) for name, skill in sorted(host.plugin_skills.items())]
    if args.json:
        return print_json([dict(zip(SKILL_COLUMNS, row, strict=True)) for row in rows])
    if not rows:
        print(f"No skills. Those of this home go to {library.directory}/NAME/SKILL.md.")
    print_rows([tuple(map(_safe, row)) for row in rows])
    return EXIT_OK


@skills_command.action(
    "show",
    "show a skill as the model gets it",
    argument("name", metavar="NAME", help="name, category/name, or plugin:name"),
    argument("file", metavar="FILE", nargs="?", default="", help="a file of the skill"),
    JSON,
)
def _show_skill(args: Args) -> int:
    from hermes_agent.skills import SkillLibrary
    from hermes_agent.skills.feature import SkillView

    with loaded_host() as host:
        shown = json.loads(SkillView(host.service(SkillLibrary)).view(args.name, args.file, platform="cli"))
    if not shown["success"]:
        more = shown.get("available_skills") or shown.get("matches") or []
        raise UserError(shown["error"], hint=f"{shown.get('hint', '')} {', '.join(more)}".strip())
    if args.json:
        return print_json(shown)
    print(shown["content"].rstrip("\n"))
    return EXIT_OK


@skills_command.action("settings", "settings that skills declare, and their values", JSON)
def _settings(args: Args) -> int:
    from hermes_agent.skills import SkillLibrary
    from hermes_agent.skills.library import setting_text
    from hermes_agent.skills.skill_file import declared_settings

    rows = []
    with loaded_host() as host:
        library = host.service(SkillLibrary)
        values = library.setting_values()
        for skill in library.all_skills():
            for each in declared_settings(skill.document):
                value, is_set = each.value(values)
                key, text = f"skills.config.{each.key}", setting_text(value)
                origin = "config" if is_set else "default" if value else "not set"
                rows.append(
                    {"key": key, "value": text, "origin": origin, "skill": skill.name, "about": each.description}
                )
    if args.json:
        return print_json(rows)
    if not rows:
        print("No skill declares a setting.")
        return EXIT_OK
    print_rows([tuple(map(_safe, (r["key"], r["value"], r["origin"], r["skill"], r["about"]))) for r in rows])
    print("`hermes config set KEY VALUE` sets one.")
    return EXIT_OK


@skills_command.action(
    "tap",
    "add, remove or list repositories with skills",
    argument("do", choices=("add", "remove", "list")),
    argument("repo", metavar="REPO", nargs="?", default="", help="owner/repo, a URL, or a folder with a repository"),
    argument("--path", metavar="FOLDER", default="skills/", help="folder with the skills (default: %(default)s)"),
    argument("--trust", action="store_true", help="install its skills also when the scan warns of something"),
    JSON,
)
def _tap(args: Args) -> int:
    hub = _hub()
    if args.do == "list":
        return _list_taps(args, hub)
    if not args.repo:
        raise UserError(f"which tap? `hermes skills tap {args.do} REPO`", exit_status=EXIT_USAGE)
    if args.do == "remove":
        tap = hub.taps.remove(args.repo)
        from_it = [row.name for row in hub.installed().values() if row.source == tap.repo]
        print(f"Removed the tap {tap.repo}.")
        if from_it:
            print(f"Its skills stay: {', '.join(from_it)}. `hermes skills remove NAME` removes one.")
        return EXIT_OK
    with activity(f"fetching {args.repo}"):
        tap, count = hub.taps.add(args.repo, args.path, trusted=args.trust)
    if args.json:
        return print_json({**tap._asdict(), "skills": count, "trust_level": tap.trust_level})
    print(
        f"Added {tap.repo} ({tap.trust_level}): {count} skills. `hermes skills search --source {tap.repo}` lists them."
    )
    return EXIT_OK


def _list_taps(args: Args, hub: Any) -> int:
    rows = [
        {
            "repo": tap.repo,
            "path": tap.path,
            "trust_level": tap.trust_level,
            "skills": len(hub.taps.skills(tap)),
            "commit": hub.taps.commit(tap),
            "fetched_at": hub.taps.fetched_at(tap),
        }
        for tap in hub.taps.all()
    ]
    if args.json:
        return print_json(rows)
    if not rows:
        print("No taps. `hermes skills tap add owner/repo` adds one.")
        return EXIT_OK
    print_rows(
        [(r["repo"], r["trust_level"], f"{r['skills']} skills", f"fetched {_time(r['fetched_at'])}") for r in rows]
    )
    return EXIT_OK


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else "never"


@skills_command.action(
    "search",
    "search the skills of the taps; needs no network",
    argument("words", metavar="WORD", nargs="*", help="in name, description or tags; none lists all"),
    argument("--source", metavar="TAP", default="", help="only this tap"),
    argument("--refresh", action="store_true", help="fetch the taps first"),
    JSON,
)
def _search(args: Args) -> int:
    hub = _hub()
    taps = [hub.taps.find(args.source)] if args.source else hub.taps.all()
    failed = _refresh(hub, taps) if args.refresh else []
    installed = hub.installed()
    words = [word.casefold() for word in args.words]
    rows = []
    for skill in (skill for tap in taps for skill in hub.taps.skills(tap)):
        text = " ".join((skill.name, skill.description, *skill.tags)).casefold()
        if all(word in text for word in words):
            row = installed.get(skill.name)
            is_installed = row is not None and row.source == skill.tap.repo
            rows.append(
                {
                    "identifier": skill.identifier,
                    "name": skill.name,
                    "description": skill.description,
                    "version": skill.version,
                    "tags": skill.tags,
                    "source": skill.tap.repo,
                    "trust_level": skill.tap.trust_level,
                    "installed": is_installed,
                }
            )
    rows.sort(key=lambda row: (args.words != [] and row["name"] not in args.words, str(row["name"])))
    if args.json:
        print_json(rows)
    else:
        print_rows(
            [(_safe(r["identifier"]), "installed" if r["installed"] else "", _safe(r["description"])) for r in rows]
        )
        if not rows:
            where = f"{len(taps)} tap{'s' * (len(taps) != 1)}"
            hint = "`hermes skills tap add owner/repo` adds one." if not taps else "`--refresh` fetches the taps again."
            print(f"Nothing found in {where}. {hint}", file=sys.stderr)
    return EXIT_FAILED if failed or not rows else EXIT_OK


def _refresh(hub: Any, taps: list[Any]) -> list[str]:
    failed = []
    for tap in taps:
        try:
            with activity(f"fetching {tap.repo}"):
                hub.taps.fetch(tap)
        except UserError as error:
            failed.append(tap.repo)
            print(f"{tap.repo}: {error.message}; its index stays as it was", file=sys.stderr)
    return failed


@skills_command.action(
    "inspect",
    "what a skill of a tap has, and what the scan says; installs nothing",
    argument("name", metavar="NAME", help="name, or TAP/NAME"),
    argument("--file", metavar="FILE", default="", help="show this file"),
    JSON,
)
def _inspect(args: Args) -> int:
    hub = _hub()
    skill = hub.taps.find_skill(args.name)
    with activity(f"scanning {skill.identifier}"):
        entries, scan = hub.scan(skill)
    if args.file:
        entry = entries.get(args.file)
        if entry is None or entry.data is None:
            raise UserError(f"{skill.identifier} has no file {args.file!r}", hint=f"Files: {', '.join(entries)}")
        print("".join(c if c.isprintable() or c in "\n\t" else "?" for c in entry.data.decode("utf-8", "replace")))
        return EXIT_OK
    row = {
        "identifier": skill.identifier,
        "description": skill.description,
        "version": skill.version,
        "trust_level": skill.tap.trust_level,
        "verdict": scan.verdict,
        "findings": scan.lines(),
        "installable": not hub.refusal(skill.tap, scan),
        "files": {path: entry.size for path, entry in entries.items()},
    }
    if args.json:
        return print_json(row)
    print(f"{_safe(skill.identifier)} ({skill.tap.trust_level}): {_safe(skill.description)}")
    print(f"scan: {scan.verdict}")
    for line in scan.lines():
        print(f"  {_safe(line)}")
    for path, size in row["files"].items():
        print(f"  {size:>9,}  {_safe(path)}")
    return EXIT_OK


@skills_command.action(
    "install",
    "scan skills of a tap and install them",
    argument("names", metavar="NAME", nargs="*", help="name, or TAP/NAME"),
    argument("--all", dest="every", action="store_true", help="every skill of --source, or of all taps"),
    argument("--source", metavar="TAP", default="", help="only this tap"),
    FORCE,
    JSON,
)
def _install(args: Args) -> int:
    hub = _hub()
    if bool(args.names) == args.every:
        raise UserError("name skills, or give --all", hint="hermes skills install TAP/NAME", exit_status=EXIT_USAGE)
    taps = [hub.taps.find(args.source)] if args.source else hub.taps.all()
    if args.every:
        wanted = [skill for tap in taps for skill in hub.taps.skills(tap)]
    else:
        wanted = [hub.taps.find_skill(name, args.source) for name in args.names]
    results = []
    for skill in wanted:
        row = {"identifier": skill.identifier, "name": skill.name, "installed": False, "reason": ""}
        try:
            with activity(f"scanning and installing {skill.identifier}"):
                scan = hub.install(skill, force=args.force)
            row |= {"installed": True, "verdict": scan.verdict, "findings": scan.lines()}
        except UserError as error:
            row["reason"] = error.message if not error.hint else f"{error.message}. {error.hint}"
        results.append(row)
    return _report_installed(args, results)


def _report_installed(args: Args, results: list[dict[str, Any]]) -> int:
    refused = [row for row in results if not row["installed"]]
    if args.json:
        print_json(results)
        return EXIT_FAILED if refused else EXIT_OK
    for row in results:
        if row["installed"]:
            print(f"Installed {_safe(row['identifier'])}: /{row['name']}")
            for line in row["findings"]:
                print(f"  {_safe(line)}")
    for row in refused:
        print(f"hermes: {_safe(row['reason'])}", file=sys.stderr)
    if len(results) > 1:
        print(f"{len(results) - len(refused)} installed, {len(refused)} refused.")
    return EXIT_FAILED if refused else EXIT_OK


@skills_command.action(
    "update",
    "fetch the taps, show what changed in installed skills, and update them",
    argument("names", metavar="NAME", nargs="*", help="only these"),
    argument("--check", action="store_true", help="show what changed, and update nothing"),
    argument("--offline", action="store_true", help="compare with what was fetched last"),
    YES,
    FORCE,
    JSON,
)
def _update(args: Args) -> int:
    from hermes_agent.app.plugins.terminal_io import confirmed

    hub = _hub()
    names = args.names or list(hub.installed())
    sources = {row.source for row in hub.installed().values() if row.name in names}
    failed = [] if args.offline else _refresh(hub, [tap for tap in hub.taps.all() if tap.repo in sources])
    results = []
    for name in names:
        row: dict[str, Any] = {"name": name, "state": "up to date"}
        results.append(row)
        try:
            with activity(f"comparing {name}"):
                update = hub.update(name)
            if update is None:
                continue
            row |= {
                "state": "changed",
                "diff": update.diff,
                "modified": update.modified,
                "verdict": update.scan.verdict,
            }
            if not args.json:
                _show_update(name, update)
            if update.modified and not args.force:
                row["state"] = "changed here"
                row["reason"] = f"{name} was changed here: {', '.join(update.modified)}; --force replaces it"
            elif not args.check and (
                confirmed(f"Update {name}?", "updated", "`--yes` updates it", yes=args.yes)
                if not args.json
                else args.yes
            ):
                with activity(f"updating {name}"):
                    hub.apply(update, force=args.force)
                row["state"] = "updated"
        except UserError as error:
            row |= {"state": "refused", "reason": error.message}
    if args.json:
        print_json(results)
    else:
        for row in results:
            print(f"{row['name']}: {row['state']}" + (f": {_safe(row['reason'])}" if row.get("reason") else ""))
        if not results:
            print("No skill was installed from a tap.")
    return EXIT_FAILED if failed or any(row["state"] in ("refused", "changed here") for row in results) else EXIT_OK


def _show_update(name: str, update: Any) -> None:
    print(f"{name}: {update.skill.tap.repo} has another state (scan: {update.scan.verdict})")
    for line in update.scan.lines():
        print(f"  {_safe(line)}")
    for line in update.diff.splitlines():
        print(f"  {''.join(c if c.isprintable() or c == chr(9) else '?' for c in line)}")


@skills_command.action("remove", "remove installed skills", NAMES)
def _remove(args: Args) -> int:
    hub = _hub()
    for name in args.names:
        hub.remove(name)
        print(f"Removed {name}. `hermes skills revert {name}` brings it back.")
    return EXIT_OK


@skills_command.action(
    "revert",
    "restore a skill as it was before its last change",
    argument("name", metavar="NAME", help="name, or category/name"),
    argument("state", metavar="STATE", nargs="?", default="", help="an earlier state, as --list shows it"),
    argument("--list", dest="listed", action="store_true", help="list the earlier states"),
)
def _revert(args: Args) -> int:
    hub = _hub()
    if args.listed:
        for state in hub.history.states(args.name):
            at = time.localtime(int(state.partition("-")[0]) / 1e9)
            print(f"{state}  {time.strftime('%Y-%m-%d %H:%M:%S', at)}")
        return EXIT_OK
    print(hub.history.revert(args.name, args.state))
    return EXIT_OK


@skills_command.action("audit", "scan the installed skills again, and compare them with the lock", JSON)
def _audit(args: Args) -> int:
    from hermes_agent.skills.scan import read_entries, scan_skill

    home = ensure_home()
    hub = _hub()
    installed = hub.installed()
    rows = []
    folders = sorted(path.parent for path in (home / "skills").glob("**/SKILL.md") if not _is_hidden(path, home))
    for folder in folders:
        place = str(folder.relative_to(home / "skills"))
        with activity(f"scanning {place}"):
            scan = scan_skill(folder.name, read_entries(folder))
        source = installed[place].source if place in installed else ""
        changed = hub.modified(place) if source else []
        rows.append(
            {"name": place, "source": source, "verdict": scan.verdict, "findings": scan.lines(), "changed": changed}
        )
    seen = {row["name"] for row in rows}
    rows += [
        {"name": name, "source": row.source, "verdict": "missing", "findings": [], "changed": hub.modified(name)}
        for name, row in installed.items()
        if name not in seen
    ]
    wrong = [row for row in rows if row["changed"] or row["verdict"] != "safe"]
    if args.json:
        print_json(rows)
    else:
        for row in wrong:
            print(f"{_safe(str(row['name']))}: {row['verdict']}")
            for line in [*row["findings"], *(f"differs from the lock: {one}" for one in row["changed"])]:
                print(f"  {_safe(line)}")
        print(f"{len(rows)} skills, {len(wrong)} with something to look at.")
    return EXIT_FAILED if wrong else EXIT_OK


def _is_hidden(path: Path, home: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(home / "skills").parts)


@skills_command.action(
    "publish",
    "copy a skill into a tap of yours and commit it there",
    argument("skill", metavar="NAME", help="a skill of this home, or a folder with SKILL.md"),
    argument("--to", metavar="FOLDER", required=True, help="working copy of the tap; a missing one is created"),
    argument("--message", metavar="TEXT", default="", help="message of the commit"),
    FORCE,
)
def _publish(args: Args) -> int:
    from hermes_agent.app.skills.publish import publish_skill

    folder = Path(args.skill).expanduser()
    if not (folder / "SKILL.md").is_file():
        folder = ensure_home() / "skills" / args.skill
    with activity(f"scanning and committing {folder.name}"):
        commit, target = publish_skill(folder, Path(args.to).expanduser(), args.message, os.environ, force=args.force)
    print(f"{folder.name}: committed as {commit[:12]} in {target}." if commit else f"{folder.name}: nothing changed.")
    print(f"`git -C {target} push` publishes it; `hermes skills tap add owner/repo` adds it on other machines.")
    return EXIT_OK
