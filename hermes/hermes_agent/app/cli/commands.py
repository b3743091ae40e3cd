"""`hermes commands`: every slash command, and what the config brings to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, loaded_host, print_json, print_rows
from hermes_agent.core.errors import EXIT_OK

if TYPE_CHECKING:
    from hermes_agent.host import Host

KINDS = ("builtin", "plugin", "quick", "bundle", "prompt", "skill", "personality", "skin", "provider")

commands_command = CliSubcommand(
    "commands",
    "list slash commands, prompts, skills, personalities, skins and own model servers",
    epilog="docs/operator/extend.md shows how the config and files of the home add to them.",
)
add_commands = commands_command.add


@commands_command.default(argument("--kind", choices=KINDS, help="only this kind"), JSON)
def _commands(args: Args) -> int:
    with loaded_host() as host:
        rows = [row for row in [*_slash_commands(host), *_choices(host)] if args.kind in (None, row["kind"])]
    if args.json:
        return print_json(rows)
    from hermes_agent.app.plugins.terminal_io import printable

    print_rows([(row["kind"], row["use"], printable(row["description"])) for row in rows] or [("none", "", "")])
    return EXIT_OK


def _slash_commands(host: Host) -> list[dict[str, Any]]:
    from hermes_agent.core.registry import BUILTIN

    table, router = host.commands, host.slash
    declared = {command.name: command for where in ("terminal", "chat") for command in table.commands(where)}
    rows = [
        _row("builtin" if table.owner(name) == BUILTIN else "plugin", name, command.args_hint, command.description)
        for name, command in sorted(declared.items())
    ]
    quick = {row.name for row in router.quick.rows()}
    found = router.skills.offered("cli")
    for row in sorted(router.rows("terminal", "cli")):
        kind = "quick"
        if row.name not in quick:
            skill = found[row.name]
            kind = "skill" if not skill.flat else "prompt" if skill.file.suffix == ".md" else "bundle"
        rows.append(_row(kind, row.name, row.hint, row.description))
    return rows


def _choices(host: Host) -> list[dict[str, Any]]:
    from hermes_agent.agent.personalities import known_personalities
    from hermes_agent.console.skins import load_skins

    found = known_personalities(host.settings().personalities)
    rows = [_row("personality", f"personality {name}", "", each.description) for name, each in sorted(found.items())]
    rows += [
        _row("skin", f"skin {name}", "", skin.description or skin.source)
        for name, skin in load_skins(host.home).items()
    ]
    servers = host.settings().providers
    rows += [
        _row("provider", name, "", str(entry.get("base_url") or "")) | {"use": f"model.provider: {name}"}
        for name, entry in servers.items()
        if isinstance(entry, dict)
    ]
    return rows


def _row(kind: str, name: str, hint: str, description: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "use": f"/{name} {hint}".rstrip(), "description": description}
